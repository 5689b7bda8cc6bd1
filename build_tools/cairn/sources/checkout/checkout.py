"""Make or update the checkout of an upstream repository: at a hashtag, hipified, both diff bases tagged.

The diff bases are upstream's commit and that of hipify, with the tags that TheRock gives them.

The order is such that a run that is killed or refused leaves either the old checkout or a journal from which
the next run goes on (`cairn.sources.worktree.journal`): repair what an earlier run left; fetch everything
into the mirrors, submodules too; refuse to lose work of the user; move the files; tag; hipify.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import structs

from cairn.concurrency import side_by_side
from cairn.errors import SourceError
from cairn.output import Progress, silent
from cairn.output.wording import short_id
from cairn.retry import RetryPolicy
from cairn.sources import mirror
from cairn.sources.checkout import hipify_step, local_work
from cairn.sources.checkout.checkout_options import CheckoutOptions
from cairn.sources.checkout.describe import Checkout, describe, lfs_notes
from cairn.sources.git import lock, repository, url
from cairn.sources.git.repository import HIPIFY_TAG, UPSTREAM_TAG, Repository
from cairn.sources.mirror import Mirror, ResolvedCommit
from cairn.sources.worktree import contents, journal, submodules
from cairn.sources.worktree.journal import Journal, Move
from cairn.sources.worktree.parts import of_commit
from cairn.stack import Project


@dataclass(frozen=True, kw_only=True)
class CheckoutRequest(CheckoutOptions):
    """What to check out, where and how.

    Attributes:
        project: its project in the stack.
        checkout_dir: the working tree; made when missing.
        commit: what the hashtag is to mean, whatever it means at the origin now; None asks the origin.
        retry: with network faults.
    """

    project: Project
    checkout_dir: Path
    commit: str | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)

    @classmethod
    def of(cls, options: CheckoutOptions, *, project: Project, checkout_dir: Path) -> CheckoutRequest:
        """Make the request for a project from the options of a command."""
        return cls(project=project, checkout_dir=checkout_dir, **vars(options))


def checkout(request: CheckoutRequest, *, say: Progress = silent) -> Checkout:
    """Check out a project, or move an existing checkout to the requested commit.

    A checkout that is where it should be is not touched: local edits and commits stay. Where it must move and
    work would be lost, that is refused with a list of the work, unless `force`.

    Raises:
        SourceError: an unknown origin or hashtag, work that would be lost, a failed hipify, no version file.
        NetworkError: an origin could not be reached.
        SystemFailureError: no space left, or another run does not end.
    """
    request = dataclasses.replace(
        request, origin=url.absolute(request.origin), checkout_dir=request.checkout_dir.absolute()
    )
    with lock.hold(request.checkout_dir):
        root = repository.root_at(request.checkout_dir)
        before = _repair_earlier_run(root, request, say=say)
        _refuse_foreign(root, before)
        own_mirror = mirror.of(request.origin, depth=request.depth, retry=request.retry)
        resolved = own_mirror.find(_ref_to_fetch(request, own_mirror, say), say=say)
        after = _journal_when_done(request, resolved)
        if not _is_current(root, before, after):
            _move(root, request, resolved, own_mirror.path, before=before, after=after, say=say)
        elif before is not None and before != after:
            # Nothing moves, but it was asked for by different names this time.
            names = {"origin": after.origin, "hashtag": after.hashtag, "project": after.project}
            journal.write(root.git_dir, structs.replace(before, **names))
        notes = [*lfs_notes(root)]
        if resolved.other is not None:
            where = url.without_credentials(request.origin)
            notes.insert(
                0,
                f"{resolved.name} is a tag and a branch of {where}: the tag was taken, as git does; "
                f"the branch is {resolved.other}",
            )
        return structs.replace(describe(request.project, request.checkout_dir), notes=tuple(notes))


def hipify_checkout(
    project: Project, path: Path, *, commit: bool = True, python: Path | None = None, say: Progress = silent
) -> Checkout:
    """Hipify a checkout that was made without hipify, or by hand; one that is hipified stays as it is.

    Raises:
        SourceError: no checkout, an unfinished one, edits that hipify's would mix with, or hipify failed.
    """
    path = path.absolute()
    with lock.hold(path):
        root = repository.root_at(path)
        if not root.has_commit():
            raise SourceError(f"{path} is not a git checkout", tip="run the `checkout` command first")
        before = journal.read(root.git_dir)
        _sweep(root, before, say)
        before = before or hipify_step.adopt(root, project)
        if before.phase == "hipifying" and before.moves:
            before = hipify_step.undo_partial_hipify(root, before)
        if before.phase in ("moving", "hipifying"):
            raise SourceError(f"the checkout {path} is unfinished", tip="run the `checkout` command again")
        if hipify_step.is_done(root, before, project.hipify):
            say(f"{path} is hipified already")
            if before.phase != "ready":  # by hand, after our own hipify had failed
                journal.write(root.git_dir, structs.replace(before, phase="ready", hipify=True))
        else:
            local_work.refuse_edits(root, why="hipify would mix its edits with them")
            before = structs.replace(before, hipify=True, hipify_committed=commit)
            hipify_step.hipify_tree(root, before, kind=project.hipify, python=python, force=False, say=say)
        return describe(project, path)


def _repair_earlier_run(root: Repository, request: CheckoutRequest, *, say: Progress) -> Journal | None:
    """Repair the locks and objects that an earlier run left; return its journal, if any.

    Files that it was moving are dealt with in `_move`, by the journal's `moves`.
    """
    before = journal.read(root.git_dir) if root.git_dir.is_dir() else None
    journal.take_back(root)
    if before is None:
        return None
    _sweep(root, before, say)
    if url.identity(before.origin) == url.identity(request.origin):
        submodules.refetch_lost_objects(root, before, origin=request.origin, retry=request.retry, say=say)
    return before


def _sweep(root: Repository, before: Journal | None, say: Progress) -> None:
    if before is not None and before.phase != "ready":
        say(f"an earlier run did not finish {root.work_tree}: carrying on")
        lock.sweep(root.git_dir, folders=(root.work_tree,), below=True)


def _refuse_foreign(root: Repository, before: Journal | None) -> None:
    path = root.work_tree
    if path.is_symlink() and not path.exists():
        raise SourceError(f"{path} is a dangling link", tip="create the folder it points to, or remove it")
    if path.exists() and not path.is_dir():
        raise SourceError(f"{path} is a file", tip="name a different --checkout-dir")
    if before is None and not root.has_commit() and path.is_dir():
        # A run that was killed before it wrote its journal may have left one file that it was writing.
        entries = (entry for entry in path.rglob("*") if entry.is_symlink() or not entry.is_dir())
        if not all(lock.is_temporary(entry.name) for entry in entries):
            raise SourceError(
                f"{path} has files and is not a git checkout",
                tip="name a different --checkout-dir, or move it away",
            )


def _ref_to_fetch(request: CheckoutRequest, own_mirror: Mirror, say: Progress) -> str:
    """Return the name of the ref or commit to ask the origin for."""
    if request.commit is not None:
        return request.commit
    if request.as_of is None:
        return request.hashtag
    whole = own_mirror if own_mirror.depth is None else mirror.of_commits(request.origin, retry=request.retry)
    return mirror.as_of(whole, request.hashtag, request.as_of, say=say)


def _journal_when_done(request: CheckoutRequest, resolved: ResolvedCommit) -> Journal:
    """The journal of a checkout that has come to its end."""
    return Journal(
        project=request.project.name,
        origin=url.without_credentials(request.origin),
        hashtag=request.hashtag,
        commit=resolved.commit,
        phase="ready",
        submodules=request.submodules,
        hipify=request.hipify,
        hipify_committed=request.hipify and request.commit_hipify,
    )


def _is_current(root: Repository, before: Journal | None, after: Journal) -> bool:
    """Whether the checkout is already as wanted, apart from local edits and commits."""
    if before is None or before.phase != "ready" or not root.has_commit():
        return False
    if url.identity(before.origin) != url.identity(after.origin) or _choices(before) != _choices(after):
        return False
    modules = of_commit(root, "HEAD", origin=after.origin) if after.submodules else ()
    # Of the submodules, too: a mirror that was removed and made anew, with --depth, need not have the same
    # commits. Git takes the objects of all of them together: one run in place of one for each.
    heads = [module.repository.head() for module in modules]
    lent = contents.lent(*(module.repository.common_dir / "objects" for module in modules))
    tags = (f"refs/tags/{name}" for name in (UPSTREAM_TAG, HIPIFY_TAG))
    upstream, hipified, *present = root.resolve(*(f"{name}^{{commit}}" for name in (*tags, *heads)), env=lent)
    base = hipified if after.hipify_committed else upstream
    is_here = upstream == after.commit and base is not None and root.head_descends_from(base)
    return is_here and None not in (*heads, *present)


def _choices(before: Journal) -> tuple[object, ...]:
    return (before.commit, before.submodules, before.hipify, before.hipify_committed)


def _move(  # noqa: PLR0913 - where from, where to, and by what
    root: Repository,
    request: CheckoutRequest,
    resolved: ResolvedCommit,
    mirror_path: Path,
    *,
    before: Journal | None,
    after: Journal,
    say: Progress,
) -> None:
    """Fetch, secure the user's work, replace the files, tag and hipify: the rest of the module's order."""
    jobs = request.jobs or os.cpu_count() or 1
    how = submodules.Fetching(depth=request.depth, jobs=jobs, retry=request.retry, say=say)
    plan: submodules.Plan = ()
    if request.submodules:
        plan = submodules.fetch_all(root, resolved.commit, mirror_path, origin=request.origin, how=how)
    parts, removed = local_work.parts_to_move(root, resolved.commit, mirror_path, plan)
    trees = local_work.secure(root, parts, before, force=request.force)
    if before is not None and before.phase == "hipifying":
        hipify_step.remove_partly_written(root, before)
    lock.remove_temporary_files(root.git_dir)
    heads = side_by_side(lambda part: trees.get(part.path) or part.repository.head(), parts)
    moves = {
        journal.key(root, part.repository): Move(before=head, after=part.commit)
        for part, head in zip(parts, heads, strict=True)
    }
    # From here on the checkout is unfinished until the journal says `ready`.
    journal.write(root.git_dir, structs.replace(after, phase="moving", moves=moves))
    say(f"checking out {short_id(resolved.commit)} in {request.checkout_dir}")
    repository.create(root, origin=after.origin)
    repository.borrow_objects(root, mirror_path)
    submodules.remove(removed)
    hipify_step.remove_generated(root)
    repository.place(root, resolved.commit)
    repository.move_refs(root, _refs(root, resolved, before, say))
    submodules.place_all(root, plan, moves=moves, how=how)
    if request.hipify:
        placed = structs.replace(after, phase="placed")
        journal.write(root.git_dir, placed)
        kind, python = request.project.hipify, request.python
        hipify_step.hipify_tree(root, placed, kind=kind, python=python, force=request.force, say=say)
    else:
        journal.write(root.git_dir, after)


def _refs(
    root: Repository, resolved: ResolvedCommit, before: Journal | None, say: Progress
) -> dict[str, str | None]:
    refs: dict[str, str | None] = {
        f"refs/tags/{UPSTREAM_TAG}": resolved.commit,
        f"refs/tags/{HIPIFY_TAG}": None,
    }
    if resolved.kind == "branch":
        refs[f"refs/remotes/origin/{resolved.name}"] = resolved.commit
    if resolved.kind == "tag":
        current = root.tag(resolved.name)
        is_ours = before is not None and (before.hashtag, before.commit) == (resolved.name, current)
        if current in (None, resolved.commit) or is_ours:
            refs[f"refs/tags/{resolved.name}"] = resolved.target
        else:
            say(f"the tag {resolved.name} of {root.work_tree} is at a different commit and stays as it is")
    return refs
