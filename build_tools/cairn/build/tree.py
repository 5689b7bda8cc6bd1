"""What a build asks of the checkout it runs in: its time, its edits, and files git must not see."""

from __future__ import annotations

import hashlib
from pathlib import Path

from cairn import files
from cairn.errors import SourceError
from cairn.sources import git

_UPSTREAM = "THEROCK_UPSTREAM_DIFFBASE"


def commit_time(checkout: Path) -> int:
    """Seconds since 1970 of the upstream commit: two builds of it give every file in the wheel the same time.

    Raises:
        SourceError: the folder is no git checkout.
    """
    for name in (_UPSTREAM, "HEAD"):
        if git.succeeds(checkout, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"):
            return int(git.run(checkout, "log", "-1", "--format=%ct", name).strip())
    raise SourceError(f"{checkout} has no commit", tip="check the project out again")


def edits(checkout: Path) -> str:
    """A digest of what differs from the last commit in files that git knows."""
    return hashlib.sha256(git.run(checkout, "diff", "--no-ext-diff", "--binary", "HEAD").encode()).hexdigest()


def exclude(checkout: Path, name: str) -> None:
    """Make git ignore a file that the build writes into the tree, in this checkout only."""
    path = checkout / git.run(checkout, "rev-parse", "--git-path", "info/exclude").strip()
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    line = f"/{name}"
    if line not in text.splitlines():
        files.write_text(path, f"{text.rstrip()}\n{line}\n".lstrip())
