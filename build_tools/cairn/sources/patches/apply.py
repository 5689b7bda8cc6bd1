"""Write the commits of a checkout as patch files, and apply such files: all or none, and none twice."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

import msgspec
from msgspec import structs

from cairn import files, owned
from cairn.errors import SourceError, UsageError
from cairn.output import Progress, wording
from cairn.output.wording import short_id
from cairn.sources.checkout import local_commits, local_work
from cairn.sources.checkout.local_commits import LocalCommit
from cairn.sources.git import lock, repository
from cairn.sources.git.repository import HIPIFY_TAG, UPSTREAM_TAG, Repository, root_at
from cairn.sources.hipify import report as hipify_report
from cairn.sources.hipify import run
from cairn.sources.hipify.report import HipifyReport
from cairn.sources.patches import patch_files
from cairn.sources.patches import patch_files as patches_put
from cairn.sources.patches.patch_files import Ground, Outcome, PatchFile, Put
from cairn.sources.worktree import journal, submodules, twin
from cairn.sources.worktree.journal import Move
from cairn.sources.worktree.parts import CommittedPart, walk_commit
from cairn.stack import HipifyKind

# As committed: subjects keep their [brackets], empty commits stay; neither the version of git nor the id of
# the commit is named, so that the same change gives the same bytes (git-format-patch(1)).
_EXACT = (
    *("--keep-subject", "--always", "--no-signature", "--zero-commit", "--no-stat", "--no-renames"),
    *("--binary", "--full-index", "--no-ext-diff", "--no-textconv", "--diff-algorithm=myers"),
)
# Whatever `format.*` is set to in the user's repository.
_UNCONFIGURED = (
    *("--no-attach", "--no-thread", "--no-to", "--no-cc", "--no-add-header", "--no-base", "--no-notes"),
    *("--no-from", "--no-signoff", "--no-cover-letter", "--suffix=.patch", "--encode-email-headers"),
    "--filename-max-length=64",
)


class ExportedPatch(msgspec.Struct, frozen=True, kw_only=True):
    """A patch file that was written.

    Attributes:
        path: of the submodule it is for; empty for the root.
        file: its path in the folder of patches.
        commit: that it was made of.
        subject: of the commit.
    """

    path: str
    file: str
    commit: str
    subject: str


def export(checkout: Path, output_dir: Path) -> tuple[tuple[ExportedPatch, ...], tuple[str, ...]]:
    """Write every commit above the diff base as a patch; those of a submodule go into a folder of its path.

    Patches that hipify was run on go into a folder `base` there; see `patch_files.find` for the layout.

    The files depend on the commits alone: exporting again writes the same bytes.

    Args:
        checkout: the working tree.
        output_dir: where they go; those that an earlier export left there are replaced.

    Returns:
        The patches in the order in which they apply; then edited or new files that are in no commit, and so
        in no patch.

    Raises:
        SourceError: it is not a checkout, or a commit is a merge.
        UsageError: the folder has files other than patches.
    """
    root = root_of(checkout, finished=False)
    refuse_other_files(output_dir)
    with tempfile.TemporaryDirectory(prefix="cairn-export-") as temporary:
        patches = [patch for part in walk_commit(root, "HEAD") for patch in _export(part, Path(temporary))]
        owned.replace_files(output_dir, Path(temporary))
    return tuple(patches), local_work.of(root).edits


def base_of(repo: Repository) -> str:
    """Return the diff base that the user's commits are on top of.

    Raises:
        SourceError: there is none.
    """
    for name in (HIPIFY_TAG, UPSTREAM_TAG):
        if repo.tag(name) is not None:
            if not repo.head_descends_from(name):
                raise SourceError(f"HEAD of {repo.work_tree} does not descend from {name}")
            return name
    raise SourceError(
        f"{repo.work_tree} has neither {HIPIFY_TAG} nor {UPSTREAM_TAG}",
        tip="check the project out with `cairn checkout`",
    )


def root_of(checkout: Path, *, finished: bool) -> Repository:
    """Return the root repository of a checkout.

    Raises:
        SourceError: it is not a checkout; or, where it must be `finished`, its last command was not.
    """
    root = root_at(checkout.absolute())
    if not root.has_commit():
        raise SourceError(f"{root.work_tree} is not a git checkout", tip="name the folder of a checkout")
    note = journal.read(root.git_dir)
    if finished and note is not None and note.phase != "ready":
        raise SourceError(
            f"the checkout {root.work_tree} is unfinished", tip="run the `checkout` command again"
        )
    return root


def refuse_other_files(folder: Path) -> None:
    """Raise a UsageError if replacing a folder would lose files that are not patches."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file", tip="name a folder for the patches")
    every = folder.rglob("*") if folder.is_dir() else ()
    paths = (path for path in every if not path.is_dir() and path.name != owned.MARK)
    no_patch = next((path for path in paths if path.suffix != ".patch"), None)
    if no_patch is not None:
        raise UsageError(
            f"{folder} has files other than patches ({no_patch})", tip="name a folder of its own"
        )


def _export(part: CommittedPart, folder: Path) -> list[ExportedPatch]:
    repo, base = part.repository, base_of(part.repository)
    above = _write(part, folder, local_commits.above(repo, base), f"{base}..HEAD", base)
    beneath = local_commits.beneath(repo)
    if not beneath:
        return above
    these = f"{UPSTREAM_TAG}..{beneath[-1].id}"
    return _write(part, folder, beneath, these, UPSTREAM_TAG, stage="base") + above


def _write(
    part: CommittedPart,
    folder: Path,
    commits: Sequence[LocalCommit],
    these: str,
    base: str,
    *,
    stage: str = "",
) -> list[ExportedPatch]:
    repo = part.repository
    if merge := next((commit for commit in commits if commit.is_merge), None):
        raise SourceError(
            f"{short_id(merge.id)} {merge.subject!r} in {repo.work_tree} is a merge, which cannot be a patch",
            tip=f"make your commits linear: git rebase {base}",
        )
    if not commits:
        return []
    place = PurePosixPath(part.path, stage)
    with tempfile.TemporaryDirectory(prefix="cairn-export-") as temporary:
        where = f"--output-directory={temporary}"
        repo.run("format-patch", "--quiet", *_EXACT, *_UNCONFIGURED, "--topo-order", where, these)
        written = sorted(Path(temporary).iterdir())
        target = folder / place
        target.mkdir(parents=True, exist_ok=True)
        for path in written:
            files.copy(path, target / path.name)
    return [
        ExportedPatch(path=part.path, file=str(place / path.name), commit=commit.id, subject=commit.subject)
        for path, commit in zip(written, commits, strict=True)
    ]


# TheRock calls a project's folder of patches after its repository (external-builds/pytorch/patches).
_UPSTREAMS_NAMES = {"torch": "pytorch", "audio": "pytorch_audio", "vision": "pytorch_vision"}


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """The result of applying one patch file.

    Attributes:
        path: the submodule it is for; empty for the root.
        file: its path in the folder of patches.
        commit: the commit that it became, or None.
        outcome: whether it was applied, and why not.
        beneath: it went beneath hipify's commit.
    """

    path: str
    file: str
    commit: str | None
    outcome: Outcome = "applied"
    beneath: bool = False


class ApplyRequest(msgspec.Struct, frozen=True, kw_only=True):
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


class _PartPatches(msgspec.Struct, frozen=True, kw_only=True):
    """The patches for one repository."""

    part: CommittedPart
    base: tuple[PatchFile, ...]
    hipified: tuple[PatchFile, ...]


def apply(request: ApplyRequest, *, say: Progress) -> tuple[Applied, ...]:
    """Commit every `*.patch` below a folder; `patch_files.find` says which repository each is for.

    Patches for upstream's own files go beneath hipify's commit: hipify is run again on top of them. Authors,
    dates and messages stay. What a patch changes says whether it is there already, in a commit on top of
    the diff base or in upstream's own files. Nothing in the checkout changes unless every patch applies.

    Raises:
        UsageError: there are no patches, or one is not a patch.
        SourceError: there is no such submodule, edits stand in the way, or a patch does not apply.
    """
    with lock.hold(request.checkout):
        root = root_of(request.checkout, finished=True)
        parts = {part.path: part for part in walk_commit(root, "HEAD")}
        note = journal.read(root.git_dir)
        is_hipified = root.tag(HIPIFY_TAG) is not None
        names = {root.work_tree.name, *filter(None, (note.project if note else None, request.project))}
        names |= {_UPSTREAMS_NAMES[name] for name in names & _UPSTREAMS_NAMES.keys()}
        patches = patch_files.find(request.folder, parts=parts, root_names=names, is_hipified=is_hipified)
        local_work.refuse_edits(root, why="patches are not put on top of them")
        work = [
            _PartPatches(
                part=parts[path],
                base=tuple(patch_files.read(root, file) for file in base),
                hipified=tuple(patch_files.read(root, file) for file in hipified),
            )
            for path, (base, hipified) in patches.items()
        ]
        if is_hipified:
            return _on_hipified(root, tuple(parts.values()), work, request, say)
        return _on_upstreams(work, request, say)


def _on_upstreams(work: Sequence[_PartPatches], request: ApplyRequest, say: Progress) -> tuple[Applied, ...]:
    """Apply the patches to a checkout that is not hipified yet; those for hipified files have to wait."""
    applied: list[tuple[_PartPatches, str, tuple[Put, ...]]] = []
    for patched in work:
        head, puts = _put(patched, patched.base, base=base_of(patched.part.repository), say=say)
        waiting = tuple(Put(patch=patch, outcome="waits for hipify") for patch in patched.hipified)
        applied.append((patched, head, puts + waiting))
    return _moved(applied, request)


def _on_hipified(
    root: Repository,
    parts: Sequence[CommittedPart],
    work: Sequence[_PartPatches],
    request: ApplyRequest,
    say: Progress,
) -> tuple[Applied, ...]:
    beneath: dict[str, tuple[str, tuple[Put, ...]]] = {}
    for patched in work:
        repo, head = patched.part.repository, _hipified_from(patched.part)
        ground = Ground(
            part=patched.part,
            head=head,
            base=repo.tag(UPSTREAM_TAG) or head,
            commits=local_commits.beneath(repo),
        )
        beneath[patched.part.path] = patches_put.put(ground, patched.base) if patched.base else (head, ())
    if any(put.outcome == "applied" for _, puts in beneath.values() for put in puts):
        return _with_new_hipify(root, parts, work, beneath, request, say)
    applied: list[tuple[_PartPatches, str, tuple[Put, ...]]] = []
    for patched in work:
        head, puts = _put(patched, patched.hipified, base=base_of(patched.part.repository), say=say)
        applied.append((patched, head, beneath[patched.part.path][1] + puts))
    return _moved(applied, request)


def _hipified_from(part: CommittedPart) -> str:
    """Return the commit that hipify was run on: upstream's, or the last patch on top of it."""
    return local_commits.hipified_from(part.repository) or part.commit


def _put(
    patched: _PartPatches, patches: Sequence[PatchFile], *, base: str, say: Progress
) -> tuple[str, tuple[Put, ...]]:
    repo = patched.part.repository
    ground = Ground(
        part=patched.part,
        head=repo.head() or "",
        base=repo.tag(base) or base,
        commits=local_commits.above(repo, base),
    )
    say(f"applying {wording.count(patches, 'patch file')} to {repo.work_tree}")
    return patches_put.put(ground, patches)


def _moved(
    applied: Sequence[tuple[_PartPatches, str, tuple[Put, ...]]], request: ApplyRequest
) -> tuple[Applied, ...]:
    for patched, head, _ in applied if not request.dry_run else ():
        # Everything applies. Each of these steps is one of git's own, done or not; after a run that is killed
        # between two of them, the next run finds the patches of the first part there already, and goes on.
        patched.part.repository.run("merge", "--quiet", "--ff-only", head)
    return tuple(_applied(patched, put, request.folder) for patched, _, puts in applied for put in puts)


def _applied(patched: _PartPatches, put: Put, folder: Path) -> Applied:
    return Applied(
        path=patched.part.path,
        file=put.patch.path.relative_to(folder).as_posix(),
        commit=put.commit,
        outcome=put.outcome,
        beneath=put.patch in patched.base,
    )


class _Rebuilt(msgspec.Struct, frozen=True, kw_only=True):
    """One repository as it will be: `hipified` is for the tag, `head` has the patches above it too."""

    part: CommittedPart
    hipified: str
    head: str
    done: tuple[Put, ...]


def _with_new_hipify(
    root: Repository,
    parts: Sequence[CommittedPart],
    work: Sequence[_PartPatches],
    beneath: Mapping[str, tuple[str, tuple[Put, ...]]],
    request: ApplyRequest,
    say: Progress,
) -> tuple[Applied, ...]:
    """Hipify a copy again on the new patches, apply those for hipified files on top, and move there."""
    above = {patched.part.path: patched.hipified for patched in work}
    for part in parts:
        _refuse_others(part, above.get(part.path, ()))
    bases = [
        structs.replace(part, commit=beneath[part.path][0] if part.path in beneath else _hipified_from(part))
        for part in parts
    ]
    places: list[_Rebuilt] = []
    with run.hipified(bases, request.kind, python=request.python, say=say) as again:
        report = again.report()
        for part, copied, commit in zip(bases, again.copies, again.commits, strict=True):
            ground = Ground(part=part, head=commit, base=commit, commits=())
            repository.move_refs(copied.repository, {"HEAD": commit})
            head, puts = patches_put.put_on(copied.repository, ground, above.get(part.path, ()))
            twin.bring_back(part, copied.repository, head)
            places.append(_Rebuilt(part=part, hipified=commit, head=head, done=puts))
    if not request.dry_run:
        _move(root, places, report)
    put = {place.part.path: place.done for place in places}
    return tuple(
        _applied(patched, item, request.folder)
        for patched in work
        for item in beneath[patched.part.path][1] + put[patched.part.path]
    )


def _refuse_others(part: CommittedPart, patches: Sequence[PatchFile]) -> None:
    """Refuse commits on top of hipify's that the patches do not recreate, since they would have to move."""
    repo = part.repository
    if mine := patches_put.not_of(repo, local_commits.above(repo, base_of(repo)), patches):
        shown = wording.some([f"{short_id(commit.id)} {commit.subject}" for commit in mine])
        raise SourceError(
            f"{repo.work_tree} has {wording.count(mine, 'commit')} on top of hipify's, "
            f"and there are patches that go beneath it: {shown}",
            tip="export them (cairn patches export), check out again, then apply both folders",
        )


def _move(root: Repository, places: Sequence[_Rebuilt], report: HipifyReport | None) -> None:
    """Bring every repository of a checkout to its new commits; nothing in them is edited.

    A run that is killed here leaves what a killed hipify leaves, and the next checkout begins again. Where a
    part has its patches already, it refuses first, as it does for all commits that no branch keeps.
    """
    note = journal.read(root.git_dir)
    if note is not None:
        moves = {
            journal.key(root, place.part.repository): Move(
                before=place.part.repository.commit_of("HEAD"), after=place.head
            )
            for place in places
        }
        journal.write(root.git_dir, structs.replace(note, phase="hipifying", moves=moves))
    for place in places:
        repo = place.part.repository
        # The branch moves too, if there is one: all that it changed is in the new commits, under the
        # message and author of the patches.
        local_work.keep_commits(repo, place.head)
        repo.run("reset", "--quiet", "--hard", place.head)
        repository.move_refs(repo, {f"refs/tags/{HIPIFY_TAG}": place.hipified})
    for place in places:
        submodules.skip_gitlinks(place.part.repository)
    if report is not None:
        hipify_report.write(root.git_dir, report)
    if note is not None:
        journal.write(root.git_dir, note)
