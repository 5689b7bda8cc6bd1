"""What commits say, read by GitPython: however git is configured, and however oddly they were written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cairn.errors import SourceError
from cairn.sources.manifest import changelog
from cairn.sources.manifest.changelog import Commit
from helpers.sources import git, make_hostile

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
SIGNED = b"A. U. Thor <a@example.invalid> 1700000000 +0200"


@pytest.fixture
def folder(tmp_path: Path, home: Path) -> Path:
    """A repository with a commit before all others, tagged `first`."""
    assert home.is_dir()
    path = tmp_path / "ré po"
    path.mkdir()
    git(path, "init", "--quiet", "--initial-branch=main")
    write(path)
    git(path, "tag", "first")
    return path


def write(
    folder: Path, *, signed: bytes = SIGNED, more: bytes = b"", message: bytes = b"Say it\n\nAt length.\n"
) -> str:
    """A commit on top of `main`, byte for byte: what `git commit` would not write as well."""

    def run(*args: str, text: bytes = b"") -> str:
        done = subprocess.run(["git", *args], cwd=folder, input=text, capture_output=True, check=False)
        return done.stdout.decode().strip()

    run("hash-object", "-w", "-t", "tree", "--stdin")
    parent = run("rev-parse", "--verify", "--quiet", "main")
    above = f"parent {parent}\n".encode() if parent else b""
    raw = b"tree %s\n%sauthor %s\ncommitter %s\n%s\n%s"
    raw %= (EMPTY_TREE.encode(), above, signed, signed, more, message)
    made = run("hash-object", "-w", "-t", "commit", "--literally", "--stdin", text=raw)
    run("update-ref", "refs/heads/main", made)
    return made


def only(folder: Path) -> Commit:
    (found,) = changelog.commits_between(folder, "first", "main")
    return found


def test_a_range_newest_first(folder: Path) -> None:
    one, two = write(folder), write(folder, message=b"Two")
    git(folder, "tag", "-m", "Annotated", "last", two)
    first, date = git(folder, "rev-parse", "first"), "2023-11-15T00:13:20+02:00"
    expected = (
        Commit(id=two, author="A. U. Thor", date=date, subject="Two", parent=one),
        Commit(id=one, author="A. U. Thor", date=date, subject="Say it", parent=first),
    )
    assert changelog.commits_between(folder, "first", "last") == expected
    assert changelog.commits_between(folder, "last", "first") == ()
    with pytest.raises(SourceError, match="nowhere"):
        changelog.commits_between(folder, "first", "nowhere")


def test_no_setting_and_no_variable_of_the_users_changes_what_is_read(
    folder: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = git(folder, "rev-parse", "first")
    one, two = write(folder, message=b"One"), write(folder, message=b"Two")
    for commit in (one, two):
        git(folder, "replace", commit, "first")
    make_hostile(home)
    (folder / ".git/config").write_text(
        (folder / ".git/config").read_text() + (home / ".gitconfig").read_text()
    )
    (folder / ".mailmap").write_text("Renamed <r@example.invalid> <a@example.invalid>\n")
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY", "GIT_INDEX_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "elsewhere"))
    for name in ("GIT_PYTHON_GIT_EXECUTABLE", "GIT_EXEC_PATH", "GIT_SSH_COMMAND", "GIT_EXTERNAL_DIFF"):
        monkeypatch.setenv(name, "/nowhere/git")
    for name, value in {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.abbrev",
        "GIT_CONFIG_VALUE_0": "4",
        "GIT_CONFIG_PARAMETERS": "'log.showSignature'='true'",
        "GIT_PYTHON_TRACE": "full",
        "GIT_TRACE": "1",
        "GIT_NAMESPACE": "odd",
        "GIT_GRAFT_FILE": "/nowhere/grafts",
        "GIT_SHALLOW_FILE": "/nowhere/shallow",
        "GIT_REPLACE_REF_BASE": "refs/replace",
        "TZ": "Asia/Tokyo",
    }.items():
        monkeypatch.setenv(name, value)
    # In a process of its own: GitPython looks at some of these once, when it is imported. The locale is set
    # in it: one that is not installed makes ASCII of Python's paths, and `site` then reads no folder `josé`.
    code = f"""
import json, os, pathlib, sys
os.environ["LC_ALL"] = "tr_TR.UTF-8"
from cairn import datafile
from cairn.sources.manifest import changelog
found = changelog.commits_between(pathlib.Path({str(folder)!r}), "first", "main")
json.dump([datafile.to_plain(one) for one in found], sys.stdout)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    date = "2023-11-15T00:13:20+02:00"
    expected = [
        {"id": two, "author": "A. U. Thor", "date": date, "subject": "Two", "parent": one},
        {"id": one, "author": "A. U. Thor", "date": date, "subject": "One", "parent": first},
    ]
    assert json.loads(done.stdout) == expected
    assert not (home / "ran").exists()


def test_in_worktrees_bare_mirrors_partial_and_shallow_clones(folder: Path, tmp_path: Path) -> None:
    write(folder)
    git(folder, "config", "uploadpack.allowFilter", "true")
    origin = folder.as_uri()
    git(folder, "worktree", "add", "--quiet", "--detach", str(tmp_path / "tree"), "main")
    git(tmp_path, "clone", "--quiet", "--mirror", "--filter=tree:0", origin, "mirror.git")
    write(folder)
    git(tmp_path, "clone", "--quiet", "--bare", "--depth=2", origin, "shallow.git")
    assert len(changelog.commits_between(folder, "first", "main~1")) == 1
    assert len(changelog.commits_between(tmp_path / "tree", "first", "HEAD")) == 1
    assert len(changelog.commits_between(tmp_path / "mirror.git", "first", "main")) == 1
    assert len(changelog.commits_between(tmp_path / "shallow.git", "main~1", "main")) == 1


@pytest.mark.parametrize(
    ("more", "name"),
    [
        (b"", "J\N{REPLACEMENT CHARACTER}rg"),
        (b"encoding ISO-8859-1\n", "Jörg"),
        (b"encoding no-such-encoding\n", "J\N{REPLACEMENT CHARACTER}rg"),
        (b"encoding hex\n", "J\N{REPLACEMENT CHARACTER}rg"),
        (b"encoding idna\n", "J\N{REPLACEMENT CHARACTER}rg"),
        (b"encoding UTF-8\0\n", "J\N{REPLACEMENT CHARACTER}rg"),
        (b"mergetag object 1\n type commit\n \n encoding UTF-8\nencoding ISO-8859-1\n", "Jörg"),
        (b"gpgsig -----BEGIN\n \n -----END\nencoding ISO-8859-1\n", "Jörg"),
    ],
)
def test_encodings_of_old(folder: Path, more: bytes, name: str) -> None:
    write(folder, signed=b"J\xf6rg <j@example.invalid> 1700000000 +0000", more=more, message=b"J\xf6rg\n\nx")
    assert (only(folder).author, only(folder).subject) == (name, name)


@pytest.mark.parametrize(
    ("signed", "author", "date"),
    [
        (b"<> 0 +0000", "", ""),
        (b" <> 1700000000 -0330", "", "2023-11-14T18:43:20-03:30"),
        (b"Nobody", "Nobody", ""),
        (b"Early <e@example.invalid> 1000 -0700", "Early", "1969-12-31T17:16:40-07:00"),
        (b"Late <l@example.invalid> 99999999999999 +0000", "Late", ""),
        (b"Odd <x> Name <o@example.invalid> 1700000000 +0000", "Odd", "2023-11-14T22:13:20+00:00"),
    ],
)
def test_odd_authors_and_dates(folder: Path, signed: bytes, author: str, date: str) -> None:
    write(folder, signed=signed)
    assert (only(folder).author, only(folder).date) == (author, date)


def test_a_commit_without_author_and_committer(folder: Path) -> None:
    bare = write(folder, message=b"Base")
    raw = f"tree {EMPTY_TREE}\nparent {bare}\n\nOnly a message\n".encode()
    words = ["git", "hash-object", "-w", "-t", "commit", "--literally", "--stdin"]
    made = (
        subprocess.run(words, cwd=folder, input=raw, capture_output=True, check=True).stdout.decode().strip()
    )
    assert changelog.commits_between(folder, bare, made) == (
        Commit(id=made, author="", date="", subject="Only a message", parent=bare),
    )


@pytest.mark.parametrize(
    ("message", "subject"),
    [
        (b"", ""),
        (b"No line feed", "No line feed"),
        (b"\n\n  Late\n", "Late"),
        (b"Two  \nlines\r\n \t\r\nBody\n", "Two lines"),
        (
            b"\x1b[31mRed\x07 \xe2\x80\xae\n",
            "\N{REPLACEMENT CHARACTER}[31mRed\N{REPLACEMENT CHARACTER} \N{REPLACEMENT CHARACTER}",
        ),
        pytest.param(b"Huge\n\n" + b"line\n" * 1_000_000, "Huge", id="huge"),  # programs see it in a variable
    ],
)
def test_messages(folder: Path, message: bytes, subject: str) -> None:
    write(folder, message=message)
    assert only(folder).subject == subject


def test_gitpython_is_loaded_only_when_there_are_commits_to_read(folder: Path) -> None:
    code = f"""
import pathlib, sys
from cairn.cli import checkout, manifest, patches
from cairn.sources.manifest import changelog
assert changelog.commits_between(pathlib.Path({str(folder)!r}), "first", "main") == ()
sys.exit("git" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], env=dict(os.environ), check=False).returncode == 0
