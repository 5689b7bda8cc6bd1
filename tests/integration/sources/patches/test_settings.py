"""What a user configured in the checkout itself changes neither an export's patches nor what they become."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cairn.sources.checkout import local_commits
from cairn.sources.git.repository import UPSTREAM_TAG, root_at
from cairn.sources.patches import apply
from helpers.sources import git

SETTINGS = {
    "am.keepcr": "false",
    "am.messageId": "true",
    "am.threeWay": "false",
    "apply.ignoreWhitespace": "change",
    "apply.whitespace": "fix",
    "commit.cleanup": "scissors",
    "core.commentChar": "%",
    "diff.algorithm": "histogram",
    "diff.context": "9",
    "diff.external": "/nowhere/diff",
    "diff.interHunkContext": "9",
    "diff.mnemonicPrefix": "true",
    "diff.noprefix": "true",
    "diff.orderFile": "order",
    "diff.relative": "true",
    "diff.renames": "copies",
    "diff.submodule": "log",
    "diff.suppressBlankEmpty": "true",
    "format.attach": "odd",
    "format.cc": "somebody@example.invalid",
    "format.coverLetter": "true",
    "format.encodeEmailHeaders": "false",
    "format.filenameMaxLength": "12",
    "format.forceInBodyFrom": "true",
    "format.from": "Some Body <somebody@example.invalid>",
    "format.headers": "X-Odd: yes",
    "format.mboxrd": "true",
    "format.notes": "*",
    "format.numbered": "true",
    "format.outputDirectory": "/nowhere/patches",
    "format.pretty": "oneline",
    "format.signOff": "true",
    "format.signature": "odd",
    "format.subjectPrefix": "ODD",
    "format.suffix": ".odd",
    "format.thread": "deep",
    "format.to": "somebody@example.invalid",
    "format.useAutoBase": "true",
    "i18n.commitEncoding": "ISO-8859-1",
    "i18n.logOutputEncoding": "ISO-8859-1",
    "log.follow": "true",
    "log.mailmap": "true",
    "log.showSignature": "true",
    "mailinfo.quotedCr": "strip",
    "mailinfo.scissors": "true",
    "merge.ff": "false",
    "merge.verifySignatures": "true",
}


@pytest.fixture
def checkout(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with two commits above the diff base, and in them all that a setting may touch."""
    assert home.is_dir()
    path = tmp_path / "checkout"
    path.mkdir()
    lines = "".join(f"line {number}\n\n" for number in range(60))
    git(path, "init", "--quiet", "--initial-branch=main")
    (path / "a.py").write_text(lines)
    (path / "order").write_text("zz\n")
    git(path, "add", ".")
    git(path, "commit", "--quiet", "-m", "Base")
    git(path, "tag", UPSTREAM_TAG)
    (path / "a.py").write_text(lines.replace("line 10\n", "line ten\n  \n").replace("line 14\n", "14\n"))
    (path / "blob.bin").write_bytes(bytes(range(256)))
    (path / "latin.txt").write_bytes(b"J\xf6\r\n")
    (path / "zz").write_text(lines)
    git(path, "add", ".")
    message = "[ROCm] Übung, which is too long a name for a file\n\n# No comment\n-- >8 --\nFrom here\n"
    author = "--author=Dévelopeuse <dev@example.invalid>"
    git(path, "commit", "--quiet", author, "--cleanup=verbatim", "-m", message)
    git(path, "mv", "a.py", "moved.py")
    git(path, "commit", "--quiet", "-m", "Move it")
    git(path, "notes", "add", "-m", "A note", "HEAD")
    monkeypatch.setenv("GIT_COMMITTER_NAME", "odd")
    return path


def everything(checkout: Path, folder: Path) -> list[object]:
    """What is read from a checkout, and what its patches become on another."""
    exported = apply.export(checkout, folder / "patches")
    patches = {path.name: path.read_bytes() for path in sorted((folder / "patches").glob("*.patch"))}
    own = root_at(checkout)
    commits = local_commits.between(own, UPSTREAM_TAG, "HEAD")
    digests = [local_commits.digest(own, commit.id) for commit in commits]
    other = folder / "other"
    shutil.copytree(checkout, other)
    git(other, "reset", "--quiet", "--hard", UPSTREAM_TAG)
    applied = apply.apply(apply.ApplyRequest(checkout=other, folder=folder / "patches"), say=print)
    ids = [(one.commit, one.outcome) for one in applied]
    return [exported, patches, commits, digests, own.changes(), own.commits_only_here(), ids]


def test_settings_of_the_checkout_change_nothing(checkout: Path, tmp_path: Path) -> None:
    expected = everything(checkout, tmp_path / "before")
    for name, value in SETTINGS.items():
        git(checkout, "config", name, value)
    assert everything(checkout, tmp_path / "after") == expected
