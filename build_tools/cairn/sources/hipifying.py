"""Hipify as a step of a checkout: noted before, committed and tagged after, undone when it was killed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

from cairn.sources import hipify, repository, submodules, treestate
from cairn.sources.repository import HIPIFY_TAG, UPSTREAM_TAG, Repository
from cairn.sources.state import HipifyReport, State, write
from cairn.stack import HipifyKind, Project

Say = Callable[[str], None]


def hipify_tree(root: Repository, note: State, *, kind: HipifyKind, python: Path | None, say: Say) -> None:
    """Hipify, commit and tag as the note says; it is `ready` afterwards.

    A project that hipifies while it is built, or not at all, gets the second tag at the same commit.
    """
    heads = {path: part.commit_of("HEAD") or "" for path, part in _parts(root)}
    write(root.git_dir, dataclasses.replace(note, phase="hipifying", heads=heads))
    report: HipifyReport | None = None
    if hipify.runs_at_checkout(kind):
        say(f"hipifying {root.work_tree}")
        report = hipify.run(root, kind, python=python, say=say)
    if note.committed:
        # The root first: it must not see that its submodules have moved.
        for _, part in _parts(root):
            repository.move_refs(part, {f"refs/tags/{HIPIFY_TAG}": hipify.commit(part)})
    files = None if note.committed else treestate.tree_state(root.work_tree)
    write(root.git_dir, dataclasses.replace(note, phase="ready", heads={}, files=files, report=report))


def recovered(root: Repository, note: State | None) -> State | None:
    """The note, after undoing a hipify that was killed: every repository is as it was before."""
    if note is None or note.phase != "hipifying":
        return note
    for path, head in note.heads.items():
        part = repository.root_at(root.work_tree / path if path else root.work_tree)
        part.run("reset", "--quiet", "--hard", head)
        part.run("clean", "--quiet", "-ffd")
        if part.tag(HIPIFY_TAG):
            repository.move_refs(part, {f"refs/tags/{HIPIFY_TAG}": None})
    undone = dataclasses.replace(note, phase="placed", heads={})
    write(root.git_dir, undone)
    return undone


def remove_generated(root: Repository, note: State | None) -> None:
    """Remove what an earlier hipify made; git would keep the files it ignores, for sources that are gone."""
    if note is not None and note.report is not None:
        for name in note.report.generated:
            (root.work_tree / name).unlink(missing_ok=True)


def adopt(root: Repository, project: Project) -> State:
    """The note for a checkout that was made by hand, or by upstream's own scripts."""
    head = root.commit_of("HEAD") or ""
    hipified = root.tag(HIPIFY_TAG) is not None or hipify.is_hipified(root)
    repository.create(root)
    submodules.mark_ignored(root, [m for m in submodules.present(root) if m.parent is root])
    if not hipified:
        for _, part in _parts(root):
            if part.tag(UPSTREAM_TAG) is None:
                repository.move_refs(part, {f"refs/tags/{UPSTREAM_TAG}": part.commit_of("HEAD")})
    return State(
        project=project.name,
        origin=_origin(root),
        hashtag=head,
        commit=root.tag(UPSTREAM_TAG) or head,
        phase="ready",
        hipify=hipified,
        committed=hipified,
    )


def is_done(root: Repository, note: State) -> bool:
    """Whether the tree is hipified: by the note, the second tag below HEAD, or HEAD's own subject."""
    if note.phase == "ready" and note.hipify:
        return True
    tagged = root.tag(HIPIFY_TAG)
    return (tagged is not None and root.at_or_above(tagged)) or hipify.is_hipified(root)


def _parts(root: Repository) -> Iterator[tuple[str, Repository]]:
    yield "", root
    for module in submodules.present(root):
        yield module.path, module.repository


def _origin(root: Repository) -> str:
    if root.succeeds("config", "--get", "remote.origin.url"):
        return root.run("config", "--get", "remote.origin.url").strip()
    return str(root.work_tree)
