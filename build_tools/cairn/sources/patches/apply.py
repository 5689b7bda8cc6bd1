"""Patch files as commits on a checkout: all of them or none, and none twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cairn.errors import SourceError
from cairn.output import wording
from cairn.sources.checkout import local_commits, local_work
from cairn.sources.checkout.local_commits import LocalCommit
from cairn.sources.git.repository import HIPIFY_TAG, UPSTREAM_TAG, Repository, root_at
from cairn.sources.patches import mail as patches_mail
from cairn.sources.patches import put as patches_put
from cairn.sources.patches import rebuild
from cairn.sources.patches import series as patches_series
from cairn.sources.patches.export import base_of, parts_of
from cairn.sources.patches.mail import Mail
from cairn.sources.patches.put import Ground, Outcome, Put
from cairn.sources.worktree import state
from cairn.sources.worktree.copy import Part
from cairn.stack import HipifyKind

Say = Callable[[str], None]

# What upstream calls the repositories of its projects in its folders of patches.
_UPSTREAMS_NAMES = {"torch": "pytorch", "audio": "pytorch_audio", "vision": "pytorch_vision"}


@dataclass(frozen=True, kw_only=True)
class Applied:
    """What became of a patch file.

    Attributes:
        path: the submodule it is for; empty for the root.
        file: its path in the folder of patches.
        commit: what it became; None where it became none.
        outcome: why.
        beneath: it went beneath hipify's commit.
    """

    path: str
    file: str
    commit: str | None
    outcome: Outcome = "applied"
    beneath: bool = False


@dataclass(frozen=True, kw_only=True)
class ApplyRequest:
    """What to apply, and to what.

    Attributes:
        checkout: the working tree.
        folder: of the patches.
        kind: who hipifies the project.
        project: its name in the stack; upstream's folders go by its repository.
        python: the interpreter hipify runs in; ours when None.
        dry_run: find out what would happen, and leave the checkout as it is.
    """

    checkout: Path
    folder: Path
    kind: HipifyKind = "none"
    project: str | None = None
    python: Path | None = None
    dry_run: bool = False


@dataclass(frozen=True, kw_only=True)
class _Work:
    """The patches for one repository."""

    part: Part
    base: tuple[Mail, ...]
    hipified: tuple[Mail, ...]


def apply(request: ApplyRequest, *, say: Say) -> tuple[Applied, ...]:
    """Commit every `*.patch` below a folder; `series.read` says which repository each is for.

    Patches for upstream's own files go beneath hipify's commit: hipify is run again on top of them. Authors,
    dates and messages stay. What a patch changes says whether it is there already, in a commit on top of
    the diff base or in upstream's own files. Nothing in the checkout changes unless every patch applies.

    Raises:
        UsageError: there are no patches, or one is not a patch.
        SourceError: there is no such submodule, edits stand in the way, or a patch does not apply.
    """
    with state.alone(request.checkout):
        root = root_at(request.checkout.absolute())
        parts = {part.path: part for part in parts_of(root)}
        note = state.read(root.git_dir)
        if note is not None and note.phase != "ready":
            raise SourceError(
                f"the checkout {root.work_tree} is unfinished", tip="run the `checkout` command again"
            )
        is_hipified = root.tag(HIPIFY_TAG) is not None
        series = patches_series.read(
            request.folder,
            parts=parts,
            root_names=_names(root, request, note.project if note else None),
            is_hipified=is_hipified,
        )
        local_work.refuse_edits(root, why="patches are not put on top of them")
        work = [
            _Work(
                part=parts[path],
                base=tuple(patches_mail.read(root, file) for file in files.base),
                hipified=tuple(patches_mail.read(root, file) for file in files.hipified),
            )
            for path, files in series.items()
        ]
        if is_hipified:
            return _on_hipified(root, tuple(parts.values()), work, request, say)
        return _on_upstreams(work, request, say)


def _names(root: Repository, request: ApplyRequest, project: str | None) -> frozenset[str]:
    """What a folder of the root's patches may be called."""
    names = {root.work_tree.name, *filter(None, (project, request.project))}
    return frozenset(names | {_UPSTREAMS_NAMES[name] for name in names & _UPSTREAMS_NAMES.keys()})


def _on_upstreams(work: Sequence[_Work], request: ApplyRequest, say: Say) -> tuple[Applied, ...]:
    """On a checkout that is not hipified yet: what is for hipified files has to wait."""
    done: list[tuple[_Work, str, tuple[Put, ...]]] = []
    for one in work:
        own = one.part.repository
        head, puts = _put(one, one.base, base=base_of(own), say=say)
        waiting = tuple(Put(mail=mail, outcome="waits for hipify") for mail in one.hipified)
        done.append((one, head, puts + waiting))
    return _moved(done, request)


def _on_hipified(
    root: Repository, parts: Sequence[Part], work: Sequence[_Work], request: ApplyRequest, say: Say
) -> tuple[Applied, ...]:
    beneath: dict[str, tuple[str, tuple[Put, ...]]] = {}
    for one in work:
        own = one.part.repository
        head = _base(one.part)
        ground = Ground(
            part=one.part, head=head, base=own.tag(UPSTREAM_TAG) or head, commits=local_commits.beneath(own)
        )
        beneath[one.part.path] = patches_put.put(ground, one.base) if one.base else (head, ())
    if any(put.outcome == "applied" for _, puts in beneath.values() for put in puts):
        return _with_new_hipify(root, parts, work, beneath, request, say)
    done: list[tuple[_Work, str, tuple[Put, ...]]] = []
    for one in work:
        head, puts = _put(one, one.hipified, base=base_of(one.part.repository), say=say)
        done.append((one, head, beneath[one.part.path][1] + puts))
    return _moved(done, request)


def _with_new_hipify(
    root: Repository,
    parts: Sequence[Part],
    work: Sequence[_Work],
    beneath: Mapping[str, tuple[str, tuple[Put, ...]]],
    request: ApplyRequest,
    say: Say,
) -> tuple[Applied, ...]:
    """Hipify again on top of the new patches, and put those for hipified files on top of that."""
    above = {one.part.path: one.hipified for one in work}
    for part in parts:
        _refuse_others(part, above.get(part.path, ()))
    bases = [
        replace(part, commit=beneath[part.path][0] if part.path in beneath else _base(part)) for part in parts
    ]
    places, report = rebuild.rebuilt(bases, above, request.kind, python=request.python, say=say)
    if not request.dry_run:
        rebuild.move(root, places, report)
    put = {place.part.path: place.done for place in places}
    return tuple(
        _applied(one, item, request.folder)
        for one in work
        for item in beneath[one.part.path][1] + put[one.part.path]
    )


def _base(part: Part) -> str:
    return local_commits.hipified_from(part.repository) or part.commit


def _refuse_others(part: Part, mails: Sequence[Mail]) -> None:
    """Commits on top of hipify's would have to move: only those that the patches make again may."""
    own = part.repository
    mine: tuple[LocalCommit, ...] = patches_put.not_of(own, local_commits.above(own, base_of(own)), mails)
    if mine:
        shown = wording.some([f"{commit.id[:12]} {commit.subject}" for commit in mine])
        raise SourceError(
            f"{own.work_tree} has {wording.count(mine, 'commit')} on top of hipify's, "
            f"and there are patches that go beneath it: {shown}",
            tip="export them (cairn patches export), check out again, then apply both folders",
        )


def _put(one: _Work, mails: Sequence[Mail], *, base: str, say: Say) -> tuple[str, tuple[Put, ...]]:
    own = one.part.repository
    ground = Ground(
        part=one.part,
        head=own.head() or "",
        base=own.tag(base) or base,
        commits=local_commits.above(own, base),
    )
    say(f"applying {wording.count(mails, 'patch file')} to {own.work_tree}")
    return patches_put.put(ground, mails)


def _moved(done: Sequence[tuple[_Work, str, tuple[Put, ...]]], request: ApplyRequest) -> tuple[Applied, ...]:
    for one, head, _ in done if not request.dry_run else ():
        # Everything applies. Each of these steps is git's own and whole; a run that is killed between
        # two of them is carried on by the next.
        one.part.repository.run("merge", "--quiet", "--ff-only", head)
    return tuple(_applied(one, put, request.folder) for one, _, puts in done for put in puts)


def _applied(one: _Work, put: Put, folder: Path) -> Applied:
    return Applied(
        path=one.part.path,
        file=put.mail.path.relative_to(folder).as_posix(),
        commit=put.commit,
        outcome=put.outcome,
        beneath=put.mail in one.base,
    )
