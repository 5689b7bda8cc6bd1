"""What a person would lose if a checkout were moved, and refusing to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from cairn import wording
from cairn.errors import SourceError
from cairn.sources import hipify_build, patches_commits, submodules
from cairn.sources.parallel import side_by_side
from cairn.sources.repository import Repository


@dataclass(frozen=True, kw_only=True)
class Losses:
    """Work that exists in this checkout only.

    Attributes:
        edits: files edited or new, from the root.
        commits: id and subject of commits that no branch or tag keeps.
    """

    edits: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.edits or self.commits)

    def __str__(self) -> str:
        parts = []
        if self.edits:
            parts.append(f"{wording.count(self.edits, 'edited or new file')} ({wording.some(self.edits)})")
        if self.commits:
            parts.append(
                f"{wording.count(self.commits, 'commit')} that no branch keeps ({wording.some(self.commits)})"
            )
        return " and ".join(parts)


def of(root: Repository) -> Losses:
    """What moving the checkout would lose, in the root and every submodule."""
    parts = [("", root), *((f"{m.path}/", m.repository) for m in submodules.present(root))]
    found = side_by_side(_of_part, parts)
    edits = [edit for part in found for edit in part.edits]
    return Losses(
        edits=hipify_build.without_recorded(root, edits),  # what a build made is nobody's work
        commits=tuple(commit for part in found for commit in part.commits),
    )


def _of_part(part: tuple[str, Repository]) -> Losses:
    prefix, own = part
    where = f"{prefix.rstrip('/')}: " if prefix else ""
    # Hipify's tag keeps the patches below its commit, until it moves with the checkout.
    beneath = [f"{commit.id[:10]} {commit.subject}" for commit in patches_commits.beneath_only_here(own)]
    return Losses(
        edits=tuple(prefix + name for name in own.changes()),
        commits=tuple(where + commit for commit in (*own.commits_only_here(), *beneath)),
    )


def refuse(root: Repository, lost: Losses) -> NoReturn:
    """Raise a SourceError that says what would be lost, and the flag that allows it."""
    raise SourceError(
        f"{root.work_tree} has {lost}; checking out would lose them",
        tip="commit them to a branch (git switch -c NAME), or pass --force to drop them",
    )


def refuse_edits(root: Repository, *, why: str) -> None:
    """Raise a SourceError, with the reason why, when there are a person's uncommitted edits."""
    if edits := of(root).edits:
        raise SourceError(
            f"{root.work_tree} has {Losses(edits=edits)}; {why}",
            tip="commit or stash them first",
        )
