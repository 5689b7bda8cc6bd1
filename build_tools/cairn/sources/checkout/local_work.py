"""Find the work that moving a checkout would lose, and refuse, or with --force keep it under a ref.

Edits, staged contents, new and ignored files, and commits that no branch keeps, in the root and in every
submodule. Files that Cairn itself wrote are recognised: by the journal where a run was killed
(`cairn.sources.worktree.journal`), by hipify's report, and by what a build recorded.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import msgspec
from msgspec import structs

from cairn.concurrency import side_by_side
from cairn.errors import SourceError
from cairn.output import console, wording
from cairn.sources.checkout import overwritten
from cairn.sources.checkout.overwritten import MovingPart
from cairn.sources.git import command, lock, repository
from cairn.sources.git.repository import Entry, Repository
from cairn.sources.hipify import report as hipify_report
from cairn.sources.worktree import contents, journal
from cairn.sources.worktree.journal import Journal, Move
from cairn.sources.worktree.parts import Module, walk, walk_submodules
from cairn.sources.worktree.submodules import Plan

_DROPPED = "refs/cairn/dropped"


class Losses(msgspec.Struct, frozen=True, kw_only=True):
    """Work that exists in this checkout only.

    Attributes:
        edits: files edited, deleted or new, from the root.
        ignored: files that git ignores and that would be overwritten or removed, from the root.
        commits: id and subject of commits that no branch or tag keeps.
    """

    edits: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.edits or self.ignored or self.commits)

    def __str__(self) -> str:
        parts = []
        if self.edits:
            parts.append(f"{wording.count(self.edits, 'edited or new file')} ({wording.some(self.edits)})")
        if self.ignored:
            counted = wording.count(self.ignored, "ignored file")
            parts.append(f"{counted} where the new commit has its own ({wording.some(self.ignored)})")
        if self.commits:
            parts.append(
                f"{wording.count(self.commits, 'commit')} that no branch keeps ({wording.some(self.commits)})"
            )
        return " and ".join(parts)


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """The changes and the user's work in one part, by paths relative to it.

    Attributes:
        part: it.
        changes: differences from HEAD, Cairn's own too.
        lost: the user's work.
    """

    part: MovingPart
    changes: tuple[str, ...]
    lost: Losses


def of(root: Repository) -> Losses:
    """Return the user's work that no branch or tag keeps, in the root and every submodule."""
    parts = [MovingPart(path=part.path, repository=part.repository) for part in walk(root)]
    return combined_losses(root, survey(parts))


def parts_to_move(
    root: Repository, commit: str, mirror: Path, plan: Plan
) -> tuple[list[MovingPart], list[Module]]:
    """Return the parts of a checkout that is about to move, and the submodules that the move removes.

    Args:
        root: the checkout's repository.
        commit: the commit that it moves to.
        mirror: the mirror that has the commit.
        plan: the submodules that are wanted.
    """
    parts = [MovingPart(path="", repository=root, is_moving=True, commit=commit, mirror=mirror)]
    for module, its_mirror in itertools.chain.from_iterable(plan):
        part = MovingPart(path=module.path, repository=module.repository, is_moving=True)
        parts.append(structs.replace(part, commit=module.commit, mirror=its_mirror))
    repositories = {part.repository for part in parts}
    modules = walk_submodules(root, initialized=True) if root.has_commit() else ()
    removed = [module for module in modules if module.repository not in repositories]
    parts += [MovingPart(path=m.path, repository=m.repository, is_moving=True) for m in removed]
    return parts, removed


def secure(
    root: Repository, parts: Sequence[MovingPart], before: Journal | None, *, force: bool
) -> dict[str, str]:
    """Refuse to lose the user's work, all that neither an unfinished run nor hipify wrote, or keep a copy.

    Returns:
        By path, the tree ids of the parts that differ from their HEAD.
    """
    surveys = survey(parts, before)
    lost = combined_losses(root, surveys)
    # Hipified without a commit, and not edited since: what git calls a change is hipify's then. What is
    # staged, and what git was told not to look at, is still the user's.
    hipified = before.files_digest if before is not None else None
    if hipified is not None and contents.tree_state(root.work_tree) == hipified:
        theirs = {
            state.part.path_of(name)
            for state in surveys
            for name in (
                *_hidden_edits(state.part, *state.part.repository.index()),
                *_staged(state),
            )
        }
        lost = structs.replace(lost, edits=tuple(name for name in lost.edits if name in theirs))
    if lost and not force:
        if before is not None and before.is_of_earlier_version:
            raise SourceError(
                f"an earlier version of Cairn did not finish {root.work_tree}, which has {lost}; "
                "which of them are yours cannot be told",
                tip="let that version finish it, or pass --force: refs/cairn/dropped keeps all of it",
            )
        refuse(root, lost)
    return save_dropped(surveys, lost) if lost else _write_trees(surveys)


def survey(parts: Sequence[MovingPart], before: Journal | None = None) -> tuple[Survey, ...]:
    """Survey the work in each part that moving it would lose, except what an unfinished run wrote.

    Args:
        parts: the root first.
        before: the journal, where a run may be unfinished.
    """
    begun = [part for part in parts if part.repository.is_initialized()]
    within = {part.repository.work_tree for part in begun}
    coming: dict[MovingPart, list[str]] = {part: [] for part in begun}
    foreign: dict[MovingPart, list[str]] = {}
    for part in parts:
        if part in begun:
            continue
        _refuse_own_repository(part, parts[0])
        above = [
            begun_part
            for begun_part in begun
            if not begun_part.path or f"{part.path}/".startswith(f"{begun_part.path}/")
        ]
        holder = max(above, key=lambda begun_part: len(begun_part.path), default=None)
        place = part.path[len(holder.path) :].lstrip("/") if holder else ""
        # Git looks into every folder but that of a submodule, which looks after it itself.
        is_own = holder is None or place in holder.repository.gitlinks()
        if is_own and _is_there(part, parts[0]):
            foreign[part] = sorted(overwritten.files_below(part.repository.work_tree, within))
        elif holder is not None and place:
            coming[holder].append(place)
    moves = before.moves if before is not None else {}

    def look(part: MovingPart) -> Survey:
        if part not in coming:
            return _survey_foreign(part, foreign.get(part, ()))
        move = moves.get(journal.key(parts[0].repository, part.repository))
        is_upstreams = before is not None and before.phase == "moving"
        return _survey(part, within, coming[part], move=move, is_upstreams=is_upstreams)

    return side_by_side(look, parts)


def combined_losses(root: Repository, surveys: Sequence[Survey]) -> Losses:
    """Combine the losses of all parts, by paths from the root."""

    def without_recorded(names: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the files that neither hipify nor a build made."""
        return hipify_report.without_recorded(root, names) if root.is_initialized() else tuple(names)

    return Losses(
        edits=without_recorded([state.part.path_of(name) for state in surveys for name in state.lost.edits]),
        ignored=without_recorded(
            [state.part.path_of(name) for state in surveys for name in state.lost.ignored]
        ),
        commits=tuple(
            f"{state.part.path}: {commit}" if state.part.path else commit
            for state in surveys
            for commit in state.lost.commits
        ),
    )


def _survey_foreign(part: MovingPart, names: Collection[str]) -> Survey:
    """Survey the folder of a part whose repository is not there."""
    repo = part.repository
    names = [name for name in names if not lock.is_temporary(Path(name).name)]
    _refuse_inner(part, names)
    # Its folder was removed, and its git directory is still there.
    commits = repo.without_files().commits_only_here() if (repo.git_dir / "HEAD").exists() else ()
    return Survey(part=part, changes=(), lost=Losses(edits=tuple(names), commits=commits))


def _survey(
    part: MovingPart,
    within: Collection[Path],
    coming: Collection[str],
    *,
    move: Move | None,
    is_upstreams: bool,
) -> Survey:
    """Survey one part.

    Args:
        part: it.
        within: working trees of the parts that are there.
        coming: paths in it where submodules are to be that are not there yet.
        move: what an unfinished run was doing with it.
        is_upstreams: that move was to a commit of upstream.
    """
    repo = part.repository
    if part.is_moving:
        _refuse_under_way(repo)
    changes = repo.changes()
    _refuse_inner(part, changes)
    index, hidden = repo.index()
    ignored = set(overwritten.by_move(part, index, within=within, coming=coming) if part.is_moving else ())
    _refuse_inner(part, ignored)
    names = {*changes, *ignored}
    ours = journal.written_by_move(repo, names, move) if move is not None and names else frozenset[str]()
    # A submodule's `.git` file and what a build lends to the tree are written there by `cairn.files`.
    edits = {
        name
        for name in {*changes, *_hidden_edits(part, index, hidden)} - ours
        if not lock.is_temporary(Path(name).name)
    }
    # Upstream's commit gets its tags when its files are there.
    commits = (move.after,) if move is not None and is_upstreams and move.after else ()
    lost = Losses(
        edits=tuple(sorted(edits)),
        ignored=tuple(sorted(ignored - {*changes, *ours})),
        # Hipify's commit comes on top of HEAD, and none is lost.
        commits=repo.commits_only_here(*commits) if part.adds is None else (),
    )
    return Survey(part=part, changes=changes, lost=lost)


def _is_there(part: MovingPart, root: MovingPart) -> bool:
    """Whether the folder of the root or of a submodule exists."""
    return not part.path or overwritten.is_below(root.repository.work_tree, part.path)


def _refuse_own_repository(part: MovingPart, root: MovingPart) -> None:
    git_dir = part.repository.work_tree / ".git"
    if part.is_moving and part.path and _is_there(part, root) and git_dir.is_dir():
        raise SourceError(
            f"{part.repository.work_tree} is a repository of its own, where a submodule belongs",
            tip="move it away, or run `git submodule absorbgitdirs` if it is the submodule",
        )


def _refuse_under_way(repo: Repository) -> None:
    if operation := repo.under_way():
        end = "git bisect reset" if operation == "bisect" else f"git {operation} --continue, or --abort"
        raise SourceError(
            f"a `git {operation}` is under way in {repo.work_tree}, and HEAD would move beneath it",
            tip=f"end it there first: {end}",
        )


def _refuse_inner(part: MovingPart, names: Collection[str]) -> None:
    # `git status` names a repository inside by its folder with a slash, and `git add` would take it as a
    # gitlink: hipify's commit must not have that, and --force must not remove a whole history.
    inner = sorted(name for name in names if name.endswith("/"))
    if part.is_moving and inner:
        raise SourceError(
            f"{part.repository.work_tree} contains a repository that is not one of its submodules: "
            f"{wording.some(inner)}",
            tip="move it out of the checkout",
        )


def _hidden_edits(part: MovingPart, index: Mapping[str, Entry], hidden: Sequence[str]) -> list[str]:
    """Return the files hidden from git (assume-unchanged, skip-worktree) that differ from the index."""
    repo = part.repository
    if not hidden:
        return []
    disk = contents.on_disk(repo, hidden)
    missing = [name for name in hidden if name not in disk]
    if missing and part.is_moving:
        raise SourceError(
            f"{repo.work_tree} is a sparse checkout: {wording.some(missing, shown=1)} are not there",
            tip="run `git sparse-checkout disable` there, or name a different --checkout-dir",
        )
    return [name for name in hidden if name in disk and disk[name] != index.get(name)]


def _staged(state: Survey) -> list[str]:
    """Return the files whose content in the index is neither in HEAD nor on disk."""
    repo = state.part.repository
    if not state.changes or not repo.is_initialized():
        return []
    index, head = repo.index()[0], contents.of_tree(repo, repo.commit_of("HEAD"))
    disk = contents.on_disk(repo, state.changes)
    return [n for n in state.changes if n in index and index[n] not in (head.get(n), disk.get(n))]


def _write_trees(surveys: Sequence[Survey]) -> dict[str, str]:
    """Write the trees of the parts that differ from HEAD into their repositories; return them by path.

    If this run is killed, the next one learns from them which changes it may drop.
    """
    for state in surveys:
        if state.lost and not state.part.repository.is_initialized():
            # Files were in its place, and need somewhere to be kept.
            repository.create(state.part.repository)
    dirty = [state for state in surveys if state.changes or state.lost]
    trees = side_by_side(lambda state: contents.snapshot(state.part.repository, state.lost.ignored), dirty)
    return {state.part.path: tree for state, tree in zip(dirty, trees, strict=True)}


def save_dropped(surveys: Sequence[Survey], lost: Losses) -> dict[str, str]:
    """Keep dropped work under a ref of its own in its repository, so that it can be restored; report it.

    `git restore --source REF -- FILE` brings a file back, `git switch -c NAME REF` the commits. What was
    staged and is neither in HEAD nor in the files is the commit's second parent, as of a stash.

    Returns:
        The trees, as `_write_trees` gives them.
    """
    trees = _write_trees(surveys)
    ref = _ref()
    refs = []
    for state in surveys:
        if state.lost:
            repo, tree = state.part.repository, trees[state.part.path]
            _save_as_ref(repo, ref, tree, f"Dropped by a checkout with --force: {state.lost}")
            repo.unmark(repo.index()[1])  # or git would leave the edits where they are, or end with an error
            refs.append(f"{ref} of {repo.git_dir}")
    # Now, since the run may still fail: the user must know where it is.
    console.current().warn(f"dropping {lost}; kept as {', '.join(refs)}")
    return trees


def keep_commits(repo: Repository, onto: str) -> None:
    """Keep HEAD under a ref before it and its branch move to a commit that lacks commits of the user.

    Args:
        repo: the root or a submodule.
        onto: where they move to.
    """
    elsewhere = ("--not", onto, f"refs/tags/{repository.HIPIFY_TAG}")
    log = repo.read_entries("log", "-z", "--format=%ce%x09%h %s", "HEAD", *elsewhere)
    pairs = (line.partition("\t") for line in log)
    if theirs := [text for email, _, text in pairs if email != command.EMAIL]:
        ref = _ref()
        repo.run("update-ref", ref, "HEAD")
        console.current().warn(
            f"{wording.count(theirs, 'commit')} of {repo.work_tree} made anew ({wording.some(theirs)}); "
            f"kept as they were as {ref}"
        )


def _ref() -> str:
    return f"{_DROPPED}/{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"


def _save_as_ref(repo: Repository, ref: str, tree: str, message: str) -> None:
    head, staged = repo.commit_of("HEAD"), contents.staged(repo)
    parents = [head] if head else []
    if staged not in (tree, repo.commit_tree(head)):
        parents.append(repo.run("commit-tree", staged, *_as_parents(parents), "-m", "Staged").strip())
    parents += repo.merge_heads()
    # Hipify's tag moves too, and what only it has is among the losses.
    tagged = repo.tag(repository.HIPIFY_TAG)
    if tagged is not None and not (head and repo.head_descends_from(tagged)):
        parents.append(tagged)
    repo.run("update-ref", ref, repo.run("commit-tree", tree, *_as_parents(parents), "-m", message).strip())


def _as_parents(commits: Sequence[str]) -> tuple[str, ...]:
    return tuple(word for commit in commits for word in ("-p", commit))


def refuse(root: Repository, lost: Losses) -> NoReturn:
    """Raise a SourceError that lists the work that would be lost and names the flag that allows it."""
    raise SourceError(
        f"{root.work_tree} has {lost}; checking out would lose them",
        tip="commit them to a branch (git switch -c NAME), or pass --force to drop them",
    )


def refuse_edits(root: Repository, *, why: str) -> None:
    """Raise a SourceError, with the reason why, when the user has uncommitted edits."""
    for part in walk(root):
        _refuse_under_way(part.repository)
    if edits := of(root).edits:
        raise SourceError(
            f"{root.work_tree} has {Losses(edits=edits)}; {why}",
            tip="commit or stash them first",
        )
