"""What git's last words mean."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cairn import platforms
from cairn.errors import CairnError, NetworkError, SourceError, SystemFailureError
from cairn.sources.git import command
from cairn.sources.git.command import UnknownRefError, UnreachableError

FETCH = ("fetch", "--quiet", "origin", "main")


@pytest.mark.parametrize(
    ("stderr", "kind"),
    [
        ("fatal: unable to access 'https://h/a/': Could not resolve host: h", NetworkError),
        ("fatal: unable to access 'https://h/a/': The requested URL returned error: 503", NetworkError),
        ("fatal: unable to access 'https://h/a/': The requested URL returned error: 429", NetworkError),
        ("fatal: unable to access 'https://h/a/': The requested URL returned error: 403", UnreachableError),
        ("error: RPC failed; curl 92 HTTP/2 stream 5 was not closed cleanly\nfatal: early EOF", NetworkError),
        ("fatal: the remote end hung up unexpectedly", NetworkError),
        ("error: unable to write file 'a.txt'\nerror: unable to write file 'b.txt'", SystemFailureError),
        (
            "ssh: connect to host h port 22: Connection timed out\nfatal: Could not read from remote",
            NetworkError,
        ),
        ("remote: Repository not found.\nfatal: repository 'https://h/a/' not found", UnreachableError),
        # What the stack or a submodule names, in the words of curl before and since 8.7.
        (
            "fatal: unable to access 'http://[/': URL using bad/illegal format or missing URL",
            UnreachableError,
        ),
        ("fatal: unable to access 'http://h:x/': URL rejected: Port number was not", UnreachableError),
        ("fatal: could not read Username for 'https://h': terminal prompts disabled", UnreachableError),
        (
            "git@h: Permission denied (publickey).\nfatal: Could not read from remote repository.",
            UnreachableError,
        ),
        (
            "fatal: '/x' does not appear to be a git repository\nfatal: Could not read from remote",
            UnreachableError,
        ),
        ("fatal: couldn't find remote ref mian", UnknownRefError),
        ("fatal: remote error: upload-pack: not our ref 0000", UnknownRefError),
        ("error: unable to write file x: No space left on device\nfatal: early EOF", SystemFailureError),
        ("error: unable to create temporary file: Permission denied", SystemFailureError),
        ("fatal: something new", SourceError),
        (
            "remote: aborting due to possible repository corruption on the remote side.\nfatal: early EOF",
            SourceError,
        ),
    ],
)
def test_the_kind_of_a_failure(stderr: str, kind: type[CairnError]) -> None:
    assert type(command.error_of(FETCH, stderr, returncode=128)) is kind


def test_the_message_is_one_line_without_secrets() -> None:
    error = command.error_of(
        FETCH, "hint: x\nfatal: cannot read https://u:s3cret@h/a\nfatal: gone\n", returncode=128
    )
    assert str(error) == "git fetch: cannot read https://***@h/a; gone"


def test_what_a_server_said_is_told_without_its_zero_byte() -> None:
    said = "remote: fatal: unable to read abc\nremote: aborting due to possible repository corruption.\0\n"
    told = "remote: fatal: unable to read abc; remote: aborting due to possible repository corruption."
    assert str(command.error_of(FETCH, said, returncode=128)) == f"git fetch: {told}"


def test_silence_is_reported_by_the_exit_code() -> None:
    assert str(command.error_of(FETCH, "", returncode=7)) == "git fetch: exit code 7"


@pytest.mark.parametrize("words", [("status", "--porcelain"), ("diff",), ("add", "a")], ids=str)
def test_a_program_that_a_foreign_build_named_in_a_tree_gets_no_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    monkeypatch.setenv("DEPLOYMENT", "hunter2")  # whatever it is called
    tree = tmp_path / "tree"
    seen = tree / ".git/seen"  # no such program writes elsewhere
    tree.mkdir()
    (tree / "a").write_text("1\n")
    for first in (("init", "--quiet"), ("add", "a"), ("commit", "--quiet", "--message=x")):
        command.run(tree, *first)
    look = f"(env; cat /proc/{os.getpid()}/environ || echo refused) >> {seen}"
    with (tree / ".git/config").open("a") as config:
        config.write(f'[filter "x"]\nclean = "{look}; cat"\n[diff]\nexternal = "{look}; true"\n')
    (tree / ".git/info").mkdir(exist_ok=True)
    (tree / ".git/info/attributes").write_text("* filter=x\n")
    (tree / "a").write_text("2\n")
    command.run(tree, *words)
    assert "hunter2" not in seen.read_text()
    assert "refused" in seen.read_text() or platforms.here.exposed()
