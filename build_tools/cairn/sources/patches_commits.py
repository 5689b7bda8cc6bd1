"""The commits a person has on top of a checkout, and what makes two of them the same patch."""

from __future__ import annotations

import hashlib
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cairn.sources.repository import Repository

_HUNK = re.compile(rb"^@@ -\S+ \+\S+ @@.*$", re.MULTILINE)
_INDEX = re.compile(rb"^index [0-9a-f]+\.\.[0-9a-f]+(?= |$)", re.MULTILINE)
_FORMAT = "%H%x00%P%x00%an%x00%ae%x00%at%x00%s"


@dataclass(frozen=True, kw_only=True)
class LocalCommit:
    """A commit above a diff base.

    Attributes:
        id: of the commit.
        subject: first line of its message.
        author: name.
        email: of the author.
        written: when, in seconds since 1970.
        is_merge: it has several parents, so it is no patch.
    """

    id: str
    subject: str
    author: str
    email: str
    written: int
    is_merge: bool


def above(repository: Repository, base: str) -> tuple[LocalCommit, ...]:
    """The commits that HEAD has and `base` has not, oldest first."""
    listed = repository.run("log", "-z", "--topo-order", "--reverse", f"--format={_FORMAT}", f"{base}..HEAD")
    fields = listed.split("\0")
    return tuple(_commit(*fields[at : at + 6]) for at in range(0, len(fields) - 5, 6))


def digest(repository: Repository, commit: str) -> str:
    """A sha256 of what a commit changes, wherever it is applied: lines added, removed and around them.

    Line numbers and the ids of the files are left out, white space is not: in Python it is code.
    (`git patch-id` drops it.)
    """
    options = ("--patch", "--binary", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv")
    exact = ("--root", "--no-commit-id", "--diff-algorithm=myers", "--unified=3")
    with tempfile.TemporaryDirectory(prefix="cairn-patch-") as folder:
        # Through a file, as bytes: sources need not be UTF-8.
        path = Path(folder, "diff")
        repository.run("diff-tree", "-r", *options, *exact, f"--output={path}", commit)
        plain = _INDEX.sub(b"index", _HUNK.sub(b"@@", path.read_bytes()))
    return hashlib.sha256(plain).hexdigest()


def _commit(commit: str, parents: str, author: str, email: str, written: str, subject: str) -> LocalCommit:
    return LocalCommit(
        id=commit,
        subject=subject,
        author=author,
        email=email,
        written=int(written),
        is_merge=" " in parents,
    )
