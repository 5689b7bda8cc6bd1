"""Giving a checkout its objects back when the mirror it borrowed them from is gone."""

from __future__ import annotations

from cairn.output import Progress
from cairn.sources.git import repository
from cairn.sources.git.command import RetryPolicy
from cairn.sources.git.repository import Repository
from cairn.sources.mirror import mirror
from cairn.sources.worktree import submodules
from cairn.sources.worktree.state import State


def revive(root: Repository, note: State, *, origin: str, retry: RetryPolicy, say: Progress) -> None:
    """Fetch again what a checkout needs, if a cache folder was emptied since it was made.

    Args:
        root: the checkout's repository.
        note: what it is of.
        origin: where the root comes from, with the credentials the note does not have.
        retry: with network faults.
        say: is told what is fetched.
    """
    if not is_needed(root):
        return
    say(f"the mirror of {root.work_tree} is gone: fetching what it needs again")
    _lend(root, origin, note.commit, retry=retry, say=say)
    level = list(submodules.of_commit(root, "HEAD", origin=origin))
    while level:
        module = level.pop()
        if module.repository.git_dir.is_dir():
            _lend(module.repository, module.origin, module.commit, retry=retry, say=say)
            prefix = f"{module.path}/"
            level += submodules.of_commit(module.repository, "HEAD", origin=module.origin, prefix=prefix)


def _lend(borrower: Repository, origin: str, commit: str, *, retry: RetryPolicy, say: Progress) -> None:
    depth = 1 if (borrower.common_dir / "shallow").exists() else None
    source = mirror.of(origin, depth=depth, retry=retry)
    source.find(commit, say=say)
    repository.borrow_objects(borrower, source.path)


def is_needed(root: Repository) -> bool:
    """Whether a mirror that a checkout borrows from is gone."""
    return repository.has_lost_mirror(root)
