"""A copy of a checkout to work in: its objects borrowed, its own files, refs and index untouched."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

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
    with tempfile.TemporaryDirectory(prefix="cairn-scratch-", ignore_cleanup_errors=True) as folder:
        root = repository.root_at(Path(folder, "tree"))
        places = {"": root}
        copies: list[Part] = []
        for part in parts:
            copied = replace(part, repository=places[part.path])
            _make(copied.repository, part)
            places |= {module.path: module.repository for module in _modules(copied)}
            copies.append(copied)
        yield tuple(copies)


def _modules(part: Part) -> tuple[submodules.Module, ...]:
    prefix = f"{part.path}/" if part.path else ""
    return submodules.of_commit(part.repository, part.commit, origin="", prefix=prefix)


def _make(own: Repository, original: Part) -> None:
    repository.create(own)
    common = original.repository.run("rev-parse", "--path-format=absolute", "--git-common-dir").strip()
    repository.borrow_objects(own, Path(common))
    repository.place(own, original.commit)
