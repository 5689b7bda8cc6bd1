"""Hipify as a step of a checkout: noted before, committed and tagged after, undone when it was killed.

The note's phase goes `placed` -> `hipifying` -> `ready`. While it is `hipifying`, `heads` has the commit of
every repository before, and the file `cairn.ignored` the ignored files that were there. A run that finds this
phase puts all of it back: hipify is not idempotent, so a half hipified tree cannot be hipified further.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec

from cairn import files
from cairn.concurrency import side_by_side
from cairn.errors import SourceError
from cairn.output import Progress
from cairn.sources.checkout import local_work
from cairn.sources.checkout.local_work import Survey
from cairn.sources.git import command, repository
from cairn.sources.git.repository import HIPIFY_SUBJECT, HIPIFY_TAG, UPSTREAM_TAG, Repository
from cairn.sources.hipify import build_step, run
from cairn.sources.hipify import report as hipify_report
from cairn.sources.hipify.report import HipifyReport
from cairn.sources.worktree import contents, state, submodules
from cairn.sources.worktree import copy as worktree_copy
from cairn.sources.worktree.parts import CommittedPart, Module, Part, walk, walk_submodules
from cairn.sources.worktree.state import State, write
from cairn.stack import HipifyKind, Project

_IGNORED = "cairn.ignored"
_LOOKED_AT = 50  # commits; the user may have some on top of hipify's


def hipify_tree(
    root: Repository, note: State, *, kind: HipifyKind, python: Path | None, say: Progress
) -> None:
    """Hipify, commit and tag as the note says; it is `ready` afterwards.

    A project that hipifies while it is built, or not at all, gets the second tag at the same commit.
    """
    modules = list(walk_submodules(root))
    heads = {"": root.head() or ""} | {module.path: module.head or "" for module in modules}
    report: HipifyReport | None = None
    if run.runs_at_checkout(kind):
        say(f"hipifying {root.work_tree}")
        ignored = run.ignored(root)  # they may be many, hence a plain file beside the note
        files.write_bytes(root.git_dir / _IGNORED, b"\0".join(sorted(map(os.fsencode, ignored))))
        begun = msgspec.structs.replace(note, phase="hipifying", heads=heads)
        write(root.git_dir, begun)
        try:
            report = run.run(root, kind, ignored_before=ignored, python=python, say=say)
        except BaseException:
            # Now it is certain who wrote what; by the next run, the user may have edited.
            _undo(root, begun, made=run.ignored(root) - ignored)
            raise
    if note.committed:
        _commit_and_tag(root, modules, report, heads)
    edited = None if note.committed else contents.tree_state(root.work_tree)
    if report is not None:
        if not note.committed:
            content_ids = build_step.ids(root, sorted({*report.changed, *report.generated}))
            report = msgspec.structs.replace(report, contents=content_ids)
        hipify_report.write(root.git_dir, report)
    write(root.git_dir, msgspec.structs.replace(note, phase="ready", heads={}, files=edited))


def _commit_and_tag(
    root: Repository,
    modules: Sequence[Module],
    report: HipifyReport | None,
    heads: Mapping[str, str],
) -> None:
    generated = by_part(report.generated if report else (), heads)
    changed = by_part(report.changed if report else (), heads)

    def one(part: Part) -> None:
        path, own = part.path, part.repository
        touched = generated[path] or changed[path]
        commit = commit_part(own, generated[path], changed[path]) if touched else heads[path]
        repository.move_refs(own, {f"refs/tags/{HIPIFY_TAG}": commit})

    # The root first: it must not see that its submodules have moved.
    one(Part(path="", repository=root))
    side_by_side(one, modules)


def recovered(
    root: Repository, note: State | None, *, kind: HipifyKind, python: Path | None, force: bool, say: Progress
) -> State | None:
    """The note, after undoing a hipify that was killed: every repository is as it was before.

    Raises:
        SourceError: there is more than hipify wrote, and no `force`.
    """
    if note is None or note.phase != "hipifying":
        return note
    say(f"finding out what the unfinished hipify of {root.work_tree} wrote")
    surveys, generated = _survey(root, note, kind=kind, python=python, say=say)
    if lost := local_work.together(root, surveys):
        if not force:
            local_work.refuse(root, lost)
        local_work.drop(surveys, lost)
    return _undo(root, note, made=generated)


def _survey(
    root: Repository, note: State, *, kind: HipifyKind, python: Path | None, say: Progress
) -> tuple[list[Survey], set[str]]:
    """What is in each part that hipify did not write, and the ignored files that it made.

    Hipify is run once more, on a copy of what it began with: what the copy has too, it wrote.
    """
    parts = [part for path in note.heads if (part := _part(root, path)).repository.is_begun()]
    surveys = [*local_work.survey(parts)]
    ignored, remembered = run.ignored(root), root.git_dir / _IGNORED
    # Without the list, nothing that is ignored can be said to be hipify's.
    before = map(os.fsdecode, remembered.read_bytes().split(b"\0")) if remembered.exists() else ignored
    new = by_part(ignored.difference(before), note.heads)
    if not any(new.values()) and not any(one.changes for one in surveys):
        return surveys, set()
    generated: set[str] = set()
    copied = [CommittedPart(path=p.path, repository=p.repository, commit=note.heads[p.path]) for p in parts]
    with worktree_copy.copy(copied) as copies:
        # Where it failed the first time, it fails again, after it has written the same.
        with contextlib.suppress(SourceError):
            run.run(copies[0].repository, kind, ignored_before=(), python=python, say=say)
        ignored_there = by_part(run.ignored(copies[0].repository), note.heads)
        for number, copy in enumerate(copies):
            own, here = parts[number].repository, new[copy.path]
            commit_part(copy.repository, ignored_there[copy.path])
            names = [*surveys[number].changes, *here]
            ours = state.written_by_hipify(own, names, head=copy.commit, hipified=copy.repository)
            lost = surveys[number].lost
            edits = tuple(name for name in lost.edits if name not in ours)
            surveys[number] = dataclasses.replace(
                surveys[number], lost=dataclasses.replace(lost, edits=edits)
            )
            generated |= {parts[number].named(name) for name in here if name in ours}
    return surveys, generated


def _part(root: Repository, path: str) -> local_work.MovingPart:
    return local_work.MovingPart(path=path, repository=repository.root_at(root.work_tree / path))


def _undo(root: Repository, note: State, *, made: Collection[str]) -> State:
    """Put every repository back to where it was before hipify.

    Args:
        root: the checkout's repository.
        note: the note of the run.
        made: ignored files that hipify made.
    """
    for path, head in note.heads.items():
        own = _part(root, path).repository
        if not own.is_begun():
            continue  # a submodule that was removed by hand
        at = own.commit_of("HEAD")
        if at not in (None, head) and own.commit_of("HEAD~1") == head and _is_head_hipifys(own):
            own.run("update-ref", "HEAD", head)  # our own commit, which no tag names yet
        elif at != head:
            # Commits of the user: they are on a branch, or would have been refused. Leave that where it is.
            own.run("checkout", "--quiet", "--force", "--detach", head)
        own.run("reset", "--quiet", "--hard")
        own.run("clean", "--quiet", "-fd")
        if own.tag(HIPIFY_TAG):
            repository.move_refs(own, {f"refs/tags/{HIPIFY_TAG}": None})
    for name in made:
        (root.work_tree / name).unlink(missing_ok=True)
    hipify_report.forget(root.git_dir)
    undone = msgspec.structs.replace(note, phase="placed", heads={})
    write(root.git_dir, undone)
    return undone


def remove_generated(root: Repository) -> None:
    """Remove what an earlier hipify made; git would keep the files it ignores, for sources that are gone.

    A file that has been edited since stays.
    """
    report = hipify_report.read(root.git_dir) if root.git_dir.is_dir() else None
    if report is None:
        return
    generated = set(report.generated) & report.contents.keys()
    edited = set(build_step.without_recorded(root, generated))
    for name in generated - edited:
        (root.work_tree / name).unlink(missing_ok=True)
    hipify_report.forget(root.git_dir)


def adopt(root: Repository, project: Project) -> State:
    """The note for a checkout that was made by hand, or by upstream's own scripts.

    Those of the two tags that are missing are added, in submodules too.
    """
    head = root.commit_of("HEAD") or ""
    committed = root.tag(HIPIFY_TAG) or _recent_hipify_commit(root)
    by_hand = committed is None and _is_by_hand(root, project.hipify)
    repository.create(root)
    submodules.mark_ignored(root, [m for m in walk_submodules(root) if m.parent is root])
    for part in walk(root):
        _complete_tags(part.repository, hipified=committed is not None)
    return State(
        project=project.name,
        origin=root.origin_url() or str(root.work_tree),
        hashtag=head,
        commit=root.tag(UPSTREAM_TAG) or head,
        phase="ready",
        hipify=committed is not None or by_hand,
        committed=committed is not None,
    )


def is_done(root: Repository, note: State, kind: HipifyKind) -> bool:
    """Whether the tree is hipified: by the note, a tag or a commit below HEAD, or the files themselves."""
    if note.phase == "ready" and note.hipify:
        return True
    tagged = root.tag(HIPIFY_TAG)
    if (tagged is not None and root.at_or_above(tagged)) or _recent_hipify_commit(root):
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


def by_part(names: Collection[str], parts: Collection[str]) -> dict[str, list[str]]:
    """Files by the root (empty) or submodule they are in, with paths from there."""
    by_part: dict[str, list[str]] = {path: [] for path in parts}
    deepest_first = sorted(parts, key=len, reverse=True)
    for name in names:
        owner = next(path for path in deepest_first if not path or name.startswith(f"{path}/"))
        by_part[owner].append(name[len(owner) + 1 :] if owner else name)
    return by_part


def commit_part(
    repository: Repository, generated: Collection[str] = (), changed: Collection[str] | None = None
) -> str:
    """Commit everything hipify did to one repository; the commit, or HEAD where there is nothing to commit.

    Generated files are committed even where the project ignores them, so that the commit has everything. It
    depends on the tree, the parent and the parent's time alone, so that it is the same for everyone. It is
    made without `git commit`, which runs hooks, reads the user's settings and fails where nothing changed.

    Args:
        repository: the root or a submodule.
        generated: files that hipify made, from the repository's own folder.
        changed: those that it changed; None looks for them, which takes a walk through all files.
    """
    if changed is None:
        repository.run("add", "--all")
    generated = {*generated, *(changed or ())}
    if generated:
        names = command.nul_separated(sorted(generated))
        from_input = ("--pathspec-from-file=-", "--pathspec-file-nul")  # git 2.25
        repository.run("--literal-pathspecs", "add", "--all", "--force", *from_input, stdin=names)
    tree = repository.run("write-tree").strip()
    head, old_tree, date = (
        repository.run("log", "-1", "--format=%H %T %cd", "--date=raw").strip().split(" ", 2)
    )
    if tree == old_tree:
        return head
    dates = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
    new = repository.run("commit-tree", tree, "-p", head, "-m", HIPIFY_SUBJECT, env=dates).strip()
    repository.run("update-ref", "-m", f"commit: {HIPIFY_SUBJECT}", "HEAD", new, head)
    return new


def hipified_commit(repository: Repository, commit: str, tree: str) -> str:
    """The commit that `commit_part` makes on a commit where hipify leaves that tree, without hipifying."""
    old_tree, date = (
        repository.run("log", "-1", "--format=%T %cd", "--date=raw", commit).strip().split(" ", 1)
    )
    if tree == old_tree:
        return commit
    who = f"Cairn <{command.EMAIL}> {date}"
    text = f"tree {tree}\nparent {commit}\nauthor {who}\ncommitter {who}\n\n{HIPIFY_SUBJECT}\n"
    return repository.run("hash-object", "-t", "commit", "--stdin", stdin=text.encode()).strip()


def _is_head_hipifys(repository: Repository) -> bool:
    """Whether HEAD is a commit that `commit_part` made, as it made it."""
    subject = repository.run("log", "-1", "--format=%ae %ce %s", "HEAD").strip()
    return subject == f"{command.EMAIL} {command.EMAIL} {HIPIFY_SUBJECT}"


def _recent_hipify_commit(repository: Repository) -> str | None:
    """The hipify commit among the last ones, also of someone else; None without one."""
    listed = repository.run("log", "--format=%H %s", f"--max-count={_LOOKED_AT}", "HEAD").splitlines()
    return next((line.split(" ")[0] for line in listed if line.partition(" ")[2] == HIPIFY_SUBJECT), None)


def _has_hipified_files(root: Repository, upstream: str | None) -> bool:
    """Whether there are files that hipify generated and upstream's commit does not have.

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
    added = root.listed("diff", "--name-only", "-z", *only_added, since, "HEAD", "--", "*hip*")
    new = root.listed("ls-files", "--others", "-z", "--", "*hip*")
    return any(run.is_signed(root.work_tree / name) for name in (*added, *new))
