"""A copy of a checkout to work in: its objects borrowed, its own files, refs and index untouched."""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from cairn import files
from cairn.concurrency import side_by_side
from cairn.errors import SourceError, SystemFailureError
from cairn.sources.git import repository
from cairn.sources.git.repository import Repository
from cairn.sources.worktree.parts import CommittedPart, Module, of_commit

_REMOVERS = 8
_RECHECK = "check the project out again"


@contextlib.contextmanager
def copy(parts: Sequence[CommittedPart]) -> Iterator[tuple[CommittedPart, ...]]:
    """The same parts with working trees of their own, each at its commit, as long as the block runs.

    Every part's parent is among them.
    """
    with _folder() as folder:
        places = {"": repository.root_at(folder / "tree")}
        originals = {part.path: part.repository for part in parts}
        copies: dict[str, CommittedPart] = {}
        remaining = list(parts)
        while remaining:
            # Those whose parents are in place: their folders are there, and each is faster on one core.
            level = [replace(part, repository=places[part.path]) for part in remaining if part.path in places]
            if not level:
                raise SourceError(f"{remaining[0].path} is in no commit that is to be copied", tip=_RECHECK)
            alone = len(level) == 1
            copied = side_by_side(
                functools.partial(_make, alone=alone),
                [(p, originals[p.path]) for p in level],
                jobs=os.cpu_count() or 1,
            )
            places |= {module.path: module.repository for modules in copied for module in modules}
            copies |= {part.path: part for part in level}
            remaining = [part for part in remaining if part.path not in copies]
        yield tuple(copies[part.path] for part in parts)


def bring_back(own: Repository, copied: Repository, commit: str) -> None:
    """Fetch a commit that was made in a copy, which its objects must outlive."""
    quiet = ("--quiet", "--no-tags", "--no-write-fetch-head")
    own.run("fetch", *quiet, str(copied.git_dir), commit)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A folder in the cache, removed after the block; those of killed runs are removed before, for space."""
    home = files.cache_dir() / "scratch"
    for lock in home.glob("*.lock"):
        # Locked: its run is alive.
        with contextlib.suppress(SystemFailureError), files.locked(lock, timeout=0):
            _remove(lock.with_suffix(""))
            lock.unlink(missing_ok=True)
    folder = home / secrets.token_hex(8)
    lock = folder.with_suffix(".lock")
    with files.locked(lock):
        folder.mkdir()
        try:
            yield folder
        finally:
            _remove(folder)
            lock.unlink(missing_ok=True)


def _remove(folder: Path) -> None:
    """Remove a folder of many files, several of its folders at once: most of it is waiting for the disk."""
    branches = [path for pattern in ("tree/*/*", "tree/.git/modules/*/*") for path in folder.glob(pattern)]
    folders = [path for path in branches if path.is_dir() and not path.is_symlink()]
    side_by_side(functools.partial(shutil.rmtree, ignore_errors=True), folders, jobs=_REMOVERS)
    shutil.rmtree(folder, ignore_errors=True)


def _make(item: tuple[CommittedPart, Repository], *, alone: bool) -> tuple[Module, ...]:
    """Place one part; the submodules that its commit names, in their places there."""
    part, original = item
    own = part.repository
    repository.create(own)
    repository.borrow_objects(own, original.common_dir)
    repository.place(own, part.commit, alone=alone)
    return of_commit(own, part.commit, within=part)
