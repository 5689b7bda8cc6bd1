"""A copy of a checkout to work in: its objects borrowed, its own files, refs and index untouched."""

from __future__ import annotations

import contextlib
import functools
import itertools
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
from cairn.sources.worktree.parts import CommittedPart

_REMOVERS = 8
_RECHECK = "check the project out again"


@contextlib.contextmanager
def copy(parts: Sequence[CommittedPart]) -> Iterator[tuple[CommittedPart, ...]]:
    """The same parts with working trees of their own, each at its commit, as long as the block runs.

    Each copy has its git directory inside. Every part's parent is among the parts.
    """
    with _folder() as folder:
        tree = folder / "tree"
        copies = {part.path: replace(part, repository=repository.root_at(tree / part.path)) for part in parts}

        def depth(part: CommittedPart) -> int:
            return bool(part.path) + sum(part.path.startswith(f"{other.path}/") for other in parts)

        def make(part: CommittedPart) -> None:
            _make(copies[part.path], part.repository, root=tree)

        # Level by level: a parent makes the folders of its submodules.
        for _, level in itertools.groupby(sorted(parts, key=depth), key=depth):
            side_by_side(make, level, jobs=os.cpu_count() or 1)
        yield tuple(copies.values())


def bring_back(part: CommittedPart, copied: Repository, commit: str) -> None:
    """Give a repository a commit that was made in its copy, on top of the one that the copy was placed at."""
    pack = part.repository.common_dir / "objects" / "pack" / "pack"
    options = ("--revs", "--quiet", "--non-empty", "--window=0")
    copied.run("pack-objects", *options, str(pack), stdin=f"{commit}\n^{part.commit}\n".encode())


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
    branches = [path for pattern in ("tree/*/*",) for path in folder.glob(pattern)]
    folders = [path for path in branches if path.is_dir() and not path.is_symlink()]
    side_by_side(functools.partial(shutil.rmtree, ignore_errors=True), folders, jobs=_REMOVERS)
    shutil.rmtree(folder, ignore_errors=True)


def _make(copied: CommittedPart, original: Repository, *, root: Path) -> None:
    """Place one part; a submodule where the copy of its parent has a folder for it."""
    own = copied.repository
    if not copied.path:
        repository.create(own)
    else:
        if not own.work_tree.is_dir() or own.work_tree.resolve() != root.resolve() / copied.path:
            raise SourceError(f"{copied.path} is in no commit that is to be copied", tip=_RECHECK)
        # As `git init` has made the root's (gitrepository-layout(5)); running it for each takes longer.
        for folder in ("objects/info", "refs"):
            (own.git_dir / folder).mkdir(parents=True)
        shutil.copyfile(root / ".git" / "config", own.git_dir / "config")
        (own.git_dir / "HEAD").write_text("ref: refs/heads/main\n", encoding="ascii")
    repository.borrow_objects(own, original.common_dir)
    # Of many that are placed side by side, each is faster on one core.
    repository.place(own, copied.commit, alone=not copied.path)
