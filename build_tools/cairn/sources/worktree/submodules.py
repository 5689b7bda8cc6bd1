"""Fetch submodules into their mirrors and check them out; restore objects after a mirror is lost."""

from __future__ import annotations

import functools
import itertools
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

import msgspec

from cairn.concurrency import side_by_side
from cairn.errors import NetworkError, SourceError
from cairn.output import Progress
from cairn.retry import RetryPolicy
from cairn.sources import mirror
from cairn.sources.git import command, repository
from cairn.sources.git import url as git_url
from cairn.sources.git.repository import UPSTREAM_TAG, Repository
from cairn.sources.worktree import journal
from cairn.sources.worktree.journal import Journal, Move
from cairn.sources.worktree.parts import Module, of_commit, walk_submodules

Coming: TypeAlias = tuple[Module, Path]  # a submodule, and the mirror that has its commit
Plan: TypeAlias = tuple[tuple[Coming, ...], ...]
"""Submodules by their depth, the root's own first."""


class Fetching(msgspec.Struct, frozen=True, kw_only=True):
    """The settings for fetching submodules, from `checkout.CheckoutRequest`."""

    depth: int | None
    jobs: int
    retry: RetryPolicy
    say: Progress


def fetch_all(root: Repository, commit: str, source: Path, *, origin: str, how: Fetching) -> Plan:
    """Fetch every submodule that a commit of the root needs into its mirror, recursively.

    Nothing is done to the checkout, so that a failure leaves it as it was. Siblings are fetched side by side.

    Args:
        root: the checkout's repository, which may not be there yet.
        commit: its id.
        source: the mirror that has the commit.
        origin: where the root comes from.
        how: they are fetched.
    """
    levels: list[tuple[Coming, ...]] = []
    modules = of_commit(root, commit, origin=origin, objects=repository.bare(source))
    while modules:
        fetched = side_by_side(functools.partial(_fetch, how=how), modules, jobs=how.jobs)
        levels.append(fetched)
        modules = tuple(
            inner
            for module, mirror in fetched
            for inner in of_commit(
                module.repository,
                module.commit,
                origin=module.origin,
                within=module,
                objects=repository.bare(mirror),
            )
        )
    return tuple(levels)


def place_all(root: Repository, plan: Plan, *, moves: Mapping[str, Move], how: Fetching) -> None:
    """Check out every submodule at its commit; edits are dropped, since the caller has checked for them.

    Args:
        root: the checkout's repository, which is at its commit.
        plan: what `fetch_all` gave.
        moves: what each of them goes through, as the journal has it.
        how: they are placed.
    """

    def place(coming: Coming, *, alone: bool) -> None:
        move = moves[journal.key(root, coming[0].repository)]
        _place(coming, untouched=move.before == move.after, how=how, alone=alone)

    for level in plan:
        for module, _ in level:
            _refuse_detour(module)
        alone = len(level) < how.jobs
        side_by_side(functools.partial(place, alone=alone), level, jobs=how.jobs)
    parents = [root, *(module.repository for level in plan for module, _ in level)]
    for parent in parents:
        if modules := [module for level in plan for module, _ in level if module.parent == parent]:
            mark_ignored(parent, modules)


def remove(modules: Iterable[Module]) -> None:
    """Remove the working trees of submodules; their git directories stay for later.

    Args:
        modules: with their parents first.
    """
    for module in reversed(list(modules)):
        repo = module.repository
        if repo.work_tree.is_dir():
            # `.git` goes last: without it, the run after a kill would not know what its files are of.
            for entry in repo.work_tree.iterdir():
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                elif entry.name != ".git":
                    entry.unlink()
            (repo.work_tree / ".git").unlink(missing_ok=True)
            # So that `git --git-dir` shows what is kept there, though the working tree is gone.
            repository.untie(repo)


def mark_ignored(parent: Repository, modules: Iterable[Module]) -> None:
    """Keep submodules out of their parent's status and commits, and let plain `git submodule` know them.

    Hipify edits them, and a commit of the root must not name commits that exist on this machine only.
    """
    settings: list[tuple[str, str]] = []
    for module in modules:
        key = f"submodule.{module.name}"
        url = git_url.without_credentials(module.origin)
        settings += [(f"{key}.url", url), (f"{key}.active", "true"), (f"{key}.ignore", "all")]
    repository.configure(parent, settings)
    skip_gitlinks(parent)


def skip_gitlinks(parent: Repository) -> None:
    """Have git ignore which commits the submodules are at, so that no `git add --all` stages them."""
    # A mark stays where a checkout leaves the submodule's commit as it was.
    if paths := [path for path, is_skipped in parent.gitlinks().items() if not is_skipped]:
        parent.run("update-index", "-z", "--skip-worktree", "--stdin", stdin=command.nul_separated(paths))


def _fetch(module: Module, *, how: Fetching) -> Coming:
    source = mirror.of(module.origin, depth=how.depth, retry=how.retry)
    try:
        source.find(module.commit, say=how.say)
    except (SourceError, NetworkError) as error:
        raise type(error)(f"submodule {module.path}: {error}", tip=error.tip) from error
    return module, source.path


def _place(coming: Coming, *, untouched: bool, how: Fetching, alone: bool) -> None:
    module, mirror = coming
    repo = module.repository
    if not untouched:
        how.say(f"submodule {module.path}")
        repository.create(repo, origin=git_url.without_credentials(module.origin), parent=module.parent)
        repository.borrow_objects(repo, mirror)
        repository.place(repo, module.commit, alone=alone)
    tags = {f"refs/tags/{UPSTREAM_TAG}": module.commit, f"refs/tags/{repository.HIPIFY_TAG}": None}
    repository.move_refs(repo, tags)


def _refuse_detour(module: Module) -> None:
    """Refuse a link in the path of a submodule: its files would be written elsewhere (CVE-2024-32002)."""
    here = os.path.realpath(module.repository.work_tree)
    within = os.path.realpath(module.parent.work_tree)
    if os.path.commonpath([here, within]) != within:
        raise SourceError(f"submodule {module.path} leads out of the checkout through a link")


def refetch_lost_objects(
    root: Repository, note: Journal, *, origin: str, retry: RetryPolicy, say: Progress
) -> None:
    """Fetch the objects of a checkout again if its mirror was deleted since.

    Args:
        root: the checkout's repository.
        note: what it is of.
        origin: where the root comes from, with the credentials the note does not have.
        retry: how often a network fault is tried again.
        say: progress callback.
    """
    modules = (module.repository for module in walk_submodules(root, initialized=True))
    lost = next(filter(repository.has_lost_mirror, itertools.chain((root,), modules)), None)
    if lost is None:
        return
    say(f"the mirror of {lost.work_tree} is gone: fetching what it needs again")
    _lend(root, origin, note.commit, retry=retry, say=say)
    # Not `walk`: it looks at what is checked out, and git cannot tell as long as objects are missing.
    remaining = list(of_commit(root, "HEAD", origin=origin))
    while remaining:
        module = remaining.pop()
        if module.repository.git_dir.is_dir():
            _lend(module.repository, module.origin, module.commit, retry=retry, say=say)
            remaining += of_commit(module.repository, "HEAD", origin=module.origin, within=module)


def _lend(borrower: Repository, origin: str, commit: str, *, retry: RetryPolicy, say: Progress) -> None:
    if not repository.has_lost_mirror(borrower):
        return
    depth = 1 if (borrower.common_dir / "shallow").exists() else None
    source = mirror.of(origin, depth=depth, retry=retry)
    source.find(commit, say=say)
    repository.borrow_objects(borrower, source.path)
