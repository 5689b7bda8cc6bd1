"""Hipify as a step of a checkout: it runs in a copy, and its result arrives in the checkout as commits.

The phase goes `placed` -> `hipifying` -> `ready`. Until the first commit arrives, nothing here has changed; a
run that is killed then finds in the journal what each repository was going to.

`remove_partly_written` is called by the next checkout, `undo_partial_hipify` by `cairn hipify`, and
`remove_generated` before every move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import structs

from cairn.concurrency import side_by_side
from cairn.errors import SourceError
from cairn.output import Progress
from cairn.sources.checkout import local_work, overwritten
from cairn.sources.checkout.overwritten import MovingPart
from cairn.sources.git import repository
from cairn.sources.git.repository import HIPIFY_SUBJECT, HIPIFY_TAG, UPSTREAM_TAG, Repository
from cairn.sources.hipify import report as hipify_report
from cairn.sources.hipify import run
from cairn.sources.hipify.report import HipifyReport
from cairn.sources.worktree import contents, journal, submodules, twin
from cairn.sources.worktree.journal import Journal, Move
from cairn.sources.worktree.parts import CommittedPart, walk, walk_submodules
from cairn.stack import HipifyKind, Project

_LOOKED_AT = 50  # commits; the user may have some on top of hipify's


def hipify_tree(
    root: Repository, before: Journal, *, kind: HipifyKind, python: Path | None, force: bool, say: Progress
) -> None:
    """Hipify, commit and tag a tree as its journal says; the journal's phase is then `ready`.

    A project that hipifies while it is built, or not at all, gets the second tag at the same commit.

    Raises:
        SourceError: hipify failed, or files of the user are where it makes its own, and no `force`.
    """
    modules = [structs.replace(module, commit=module.head or "") for module in walk_submodules(root)]
    parts = [CommittedPart(path="", repository=root, commit=root.head() or ""), *modules]
    commits = tuple(part.commit for part in parts)
    report: HipifyReport | None = None
    if run.runs_at_checkout(kind):
        with run.hipified(parts, kind, python=python, say=say) as again:
            report, commits = again.report(), again.commits
            for part, copied, commit in zip(parts, again.copies, commits, strict=True):
                if commit != part.commit:
                    twin.bring_back(part, copied.repository, commit)
    arriving = [(part, commit) for part, commit in zip(parts, commits, strict=True) if commit != part.commit]
    if arriving and report is not None:
        adds = run.by_part(report.generated, [part.path for part in parts])
        _refuse_overwriting(root, arriving, adds, force=force)
        moves = {
            journal.key(root, part.repository): Move(before=part.commit, after=commit)
            for part, commit in arriving
        }
        journal.write(root.git_dir, structs.replace(before, phase="hipifying", moves=moves))
    # The root first: it must not see that its submodules have moved.
    _fast_forward(parts[0], commits[0], committed=before.hipify_committed)
    rest = list(zip(parts[1:], commits[1:], strict=True))
    side_by_side(lambda arguments: _fast_forward(*arguments, committed=before.hipify_committed), rest)
    files_digest = None if before.hipify_committed else contents.tree_state(root.work_tree)
    if report is not None:
        if not before.hipify_committed:
            content_ids = hipify_report.ids(root, sorted({*report.changed, *report.generated}))
            report = structs.replace(report, contents=content_ids)
        hipify_report.write(root.git_dir, report)
    journal.write(root.git_dir, structs.replace(before, phase="ready", moves={}, files_digest=files_digest))


def _refuse_overwriting(
    root: Repository,
    arriving: Sequence[tuple[CommittedPart, str]],
    adds: Mapping[str, Sequence[str]],
    *,
    force: bool,
) -> None:
    """Refuse to overwrite files edited since hipify started, or ignored files where hipify writes its own."""
    parts = [
        MovingPart(
            path=part.path,
            repository=part.repository,
            is_moving=True,
            commit=commit,
            mirror=part.repository.common_dir,
            adds=tuple(adds[part.path]),
        )
        for part, commit in arriving
    ]
    # A fresh look: hipify may run for minutes, and somebody may have edited meanwhile.
    surveys = local_work.survey(parts)
    lost = local_work.combined_losses(root, surveys)
    if lost.edits or (lost and not force):
        local_work.refuse(root, lost)
    if lost:
        local_work.save_dropped(surveys, lost)


def _fast_forward(part: CommittedPart, commit: str, *, committed: bool) -> None:
    """Move a repository to hipify's commit and tag it, or, if not `committed`, update its files alone."""
    repo = part.repository
    if commit != part.commit:
        repo.run("merge", "--quiet", "--ff-only", "--no-squash", "--no-autostash", commit)
    if committed:
        repository.move_refs(repo, {f"refs/tags/{HIPIFY_TAG}": commit})
    elif commit != part.commit:
        repo.run("reset", "--quiet", part.commit)


def undo_partial_hipify(root: Repository, before: Journal) -> Journal:
    """Undo hipify's commits if a run was killed while they arrived; the journal is then at `placed`.

    Raises:
        SourceError: there are edits that are not hipify's, or HEAD was moved since.
    """
    parts = [MovingPart(path=part.path, repository=part.repository) for part in walk(root)]
    lost = local_work.combined_losses(root, local_work.survey(parts, before))
    if lost.edits:
        local_work.refuse(root, lost)
    moves = [(part.repository, before.moves.get(journal.key(root, part.repository))) for part in parts]
    begun = [(place, move.before or "", move.after or "") for place, move in moves if move is not None]
    for repo, old, new in begun:
        is_forward = repo.succeeds("merge-base", "--is-ancestor", old, new)
        if not is_forward or repo.head() not in (old, new):
            raise SourceError(
                f"the checkout {root.work_tree} is unfinished", tip="run the `checkout` command again"
            )
    remove_partly_written(root, before)
    for repo, old, _ in begun:
        repo.run("reset", "--quiet", "--hard", old)
    placed = structs.replace(before, phase="placed", moves={})
    journal.write(root.git_dir, placed)
    return placed


def remove_partly_written(root: Repository, before: Journal) -> None:
    """Remove the files, ignored ones too, that hipify's commits were adding when a run was killed.

    A file with different content, unless it is the beginning of such a file, is someone else's and stays.
    """
    only_added = ("--no-renames", "--diff-filter=A")
    for part in walk(root):
        repo, move = part.repository, before.moves.get(journal.key(root, part.repository))
        if move is not None and move.before and move.after:
            added = repo.read_entries("diff", "--name-only", "-z", *only_added, move.before, move.after)
            for name in journal.written_by_move(repo, added, move):
                path = repo.work_tree / name
                in_place = overwritten.is_below(repo.work_tree, str(Path(name).parent))
                if in_place and (path.is_symlink() or path.is_file()):
                    path.unlink()


def remove_generated(root: Repository) -> None:
    """Remove the files that an earlier hipify made: git would keep ignored ones whose source is gone.

    A file that has been edited since stays.
    """
    report = hipify_report.read(root.git_dir) if root.git_dir.is_dir() else None
    if report is None:
        return
    generated = set(report.generated) & report.contents.keys()
    edited = set(hipify_report.without_recorded(root, generated))
    for name in generated - edited:
        (root.work_tree / name).unlink(missing_ok=True)
    hipify_report.forget(root.git_dir)


def adopt(root: Repository, project: Project) -> Journal:
    """Make a repository that was cloned by hand, or by upstream's own scripts, a checkout of ours.

    Whichever of the two tags is missing is added, in submodules too.

    Returns:
        The journal of a finished checkout, for the caller to write.
    """
    head = root.commit_of("HEAD") or ""
    committed = root.tag(HIPIFY_TAG) or _recent_hipify_commit(root)
    by_hand = committed is None and _is_by_hand(root, project.hipify)
    repository.create(root)
    submodules.mark_ignored(root, [m for m in walk_submodules(root) if m.parent is root])
    for part in walk(root):
        _complete_tags(part.repository, hipified=committed is not None)
    return Journal(
        project=project.name,
        origin=root.origin_url() or str(root.work_tree),
        hashtag=head,
        commit=root.tag(UPSTREAM_TAG) or head,
        phase="ready",
        hipify=committed is not None or by_hand,
        hipify_committed=committed is not None,
    )


def is_done(root: Repository, before: Journal | None, kind: HipifyKind) -> bool:
    """Whether the tree is hipified: by the journal, a tag or a commit below HEAD, or the files themselves.

    A clone made by hand has no journal.
    """
    if before is not None and before.phase == "ready" and before.hipify:
        return True
    tagged = root.tag(HIPIFY_TAG)
    if (tagged is not None and root.head_descends_from(tagged)) or _recent_hipify_commit(root):
        return True
    return _is_by_hand(root, kind)


def _is_by_hand(root: Repository, kind: HipifyKind) -> bool:
    # Where a build hipifies, its files do not show a hipify at checkout.
    return run.runs_at_checkout(kind) and _has_hipified_files(root, root.tag(UPSTREAM_TAG))


def _complete_tags(part: Repository, *, hipified: bool) -> None:
    tagged = part.tag(HIPIFY_TAG) or _recent_hipify_commit(part)
    upstream = part.tag(UPSTREAM_TAG) or (f"{tagged}~1" if tagged else "HEAD")
    refs: dict[str, str | None] = {f"refs/tags/{UPSTREAM_TAG}": part.commit_of(upstream)}
    if hipified:
        refs[f"refs/tags/{HIPIFY_TAG}"] = tagged or part.commit_of(upstream)
    repository.move_refs(part, refs)


def _recent_hipify_commit(repository: Repository) -> str | None:
    """Return the hipify commit, whoever made it, among the most recent commits; None if there is none."""
    commits = repository.read_entries("log", "-z", "--format=%H %s", f"--max-count={_LOOKED_AT}", "HEAD")
    return next((line.split(" ")[0] for line in commits if line.partition(" ")[2] == HIPIFY_SUBJECT), None)


def _has_hipified_files(root: Repository, upstream: str | None) -> bool:
    """Whether the tree has files that hipify generated and that are not in upstream's commit.

    Args:
        root: the repository; its submodules are left out.
        upstream: its commit; None where it is unknown: commits that no remote has are then taken for local.
    """
    since = upstream or "HEAD"
    if upstream is None and (
        local := root.run("rev-list", "--first-parent", "HEAD", "--not", "--remotes").split()
    ):
        # Below the oldest local commit; for a root commit, the empty tree.
        empty = ("hash-object", "-t", "tree", "--stdin")
        since = root.commit_of(f"{local[-1]}~1") or root.run(*empty, stdin=b"").strip()
    only_added = ("--no-renames", "--diff-filter=A")
    added = root.read_entries("diff", "--name-only", "-z", *only_added, since, "HEAD", "--", "*hip*")
    new = root.read_entries("ls-files", "--others", "-z", "--", "*hip*")
    return any(run.is_signed(root.work_tree / name) for name in (*added, *new))
