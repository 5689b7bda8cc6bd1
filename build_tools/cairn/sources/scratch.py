"""A copy of a checkout to work in: its objects borrowed, its own files, refs and index untouched."""

from __future__ import annotations

import contextlib
import secrets
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cairn import files
from cairn.errors import SystemFailureError
from cairn.sources import repository, submodules
from cairn.sources.repository import Repository


@dataclass(frozen=True, kw_only=True)
class Part:
    """The root or a submodule of a checkout.

    Attributes:
        path: from the root, with `/`; empty for the root itself.
        repository: its own.
        commit: what its parent names; for the root, what the caller asked for.
    """

    path: str
    repository: Repository
    commit: str

    def named(self, name: str) -> str:
        """A file of this part, by its path from the root."""
        return f"{self.path}/{name}" if self.path else name


def parts_at(root: Repository, commit: str) -> tuple[Part, ...]:
    """The root at a commit, and every submodule that is checked out, at what that commit names."""
    parts = [Part(path="", repository=root, commit=commit)]
    for part in parts:
        there = (module for module in _modules(part) if module.repository.exists())
        parts.extend(Part(path=m.path, repository=m.repository, commit=m.commit) for m in there)
    return tuple(parts)


@contextlib.contextmanager
def copy(parts: Sequence[Part]) -> Iterator[tuple[Part, ...]]:
    """The same parts with working trees of their own, each at its commit, as long as the block runs.

    Parents come before their submodules, as `parts_at` has them.
    """
    with _folder() as folder:
        root = repository.root_at(folder / "tree")
        places = {"": root}
        copies: list[Part] = []
        for part in parts:
            copied = replace(part, repository=places[part.path])
            _make(copied.repository, part)
            places |= {module.path: module.repository for module in _modules(copied)}
            copies.append(copied)
        yield tuple(copies)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A folder in the cache, which goes with the block; those of killed runs go first, for they are large."""
    home = files.cache_dir() / "scratch"
    for lock in home.glob("*.lock"):
        # Locked: its run is alive.
        with contextlib.suppress(SystemFailureError), files.locked(lock, timeout=0):
            shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
            lock.unlink(missing_ok=True)
    folder = home / secrets.token_hex(8)
    lock = folder.with_suffix(".lock")
    with files.locked(lock):
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            lock.unlink(missing_ok=True)


def _modules(part: Part) -> tuple[submodules.Module, ...]:
    prefix = f"{part.path}/" if part.path else ""
    return submodules.of_commit(part.repository, part.commit, origin="", prefix=prefix)


def _make(own: Repository, original: Part) -> None:
    repository.create(own)
    common = original.repository.run("rev-parse", "--path-format=absolute", "--git-common-dir").strip()
    repository.borrow_objects(own, Path(common))
    repository.place(own, original.commit)
