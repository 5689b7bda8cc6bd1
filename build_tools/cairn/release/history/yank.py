"""Yanking a set: installers pass over its wheels unless they are asked for by version (PEP 592)."""

from __future__ import annotations

import msgspec

from cairn import datafile
from cairn.concurrency import side_by_side
from cairn.errors import GateError
from cairn.release.history.difference import checked_reason
from cairn.release.index.commit import commit
from cairn.release.index.generation import Action, FileEntry, IndexSet, ProjectState, project_of
from cairn.release.index.snapshot import Change, Index, Snapshot, existing, missing, read_set, whole_id
from cairn.store.protocol import Store

_AT_ONCE = 8  # indexes asked about a set side by side; each takes two requests


class Yank(datafile.Value):
    """What a yank did, or would do.

    Attributes:
        set_id: the set.
        reason: why; None where it was taken back.
        files: the names of the wheels whose mark changed.
        shared: those of its wheels that stay as they are, since a set that is not yanked has them too.
        generation: the number of the generation that says so; that of the index where nothing was to be done.
        changed: whether anything was to be done.
    """

    set_id: str
    reason: str | None
    files: tuple[str, ...]
    shared: tuple[str, ...]
    generation: int
    changed: bool


def yank(store: Store, index: str, set_id: str, *, reason: str | None, dry_run: bool = False) -> Yank:
    """Mark a set of an index, and its wheels there, as yanked, or take that back.

    Args:
        store: where the index lives.
        index: its name.
        set_id: the set; the beginning of its id will do.
        reason: why, as every page says; None takes the yank back.
        dry_run: say what would change, and write nothing.

    Raises:
        StoreError: the index has no such set.
        UsageError: several sets have an id that begins so, or the reason cannot be shown.
    """
    reason = checked_reason(reason) if reason is not None else None
    there = Index(store, index)
    now_there = there.load()
    if not now_there.exists:
        raise missing(store, index)
    set_id = whole_id(set_id, now_there)
    own = [(wheel.distribution, wheel.file_name) for wheel in read_set(store, set_id).wheels]
    done = Yank(set_id=set_id, reason=reason, files=(), shared=(), generation=0, changed=False)

    def plan(now: Snapshot) -> Change:
        nonlocal done
        entry = now.set(set_id)
        marked = msgspec.structs.replace(entry, yanked=reason)
        after = now.with_change(Change(sets={set_id: marked}))
        names = {project_of(name) for _, name in own}
        projects = {name: with_marks(after, now.project(name)) for name in sorted(names)}
        old = {file.filename: file.yanked for name in names for file in now.project(name).files}
        new = {file.filename: file.yanked for project in projects.values() for file in project.files}
        files = tuple(sorted(name for name, mark in new.items() if mark != old[name]))
        unmarked = tuple(sorted(name for _, name in own if name in new and new[name] is None))
        changed = marked != entry or bool(files)
        done = msgspec.structs.replace(
            done, files=files, shared=unmarked if reason is not None else (), changed=changed
        )
        return Change(
            projects={name: project for name, project in projects.items() if project != now.project(name)},
            sets={set_id: marked} if marked != entry else {},
        )

    if dry_run:
        plan(now_there)
        return msgspec.structs.replace(done, generation=now_there.generation.number + done.changed)
    action: Action = "yank" if reason is not None else "unyank"
    after = commit(there, action, plan, why=reason)
    return msgspec.structs.replace(done, generation=after.generation.number)


def with_marks(snapshot: Snapshot, project: ProjectState) -> ProjectState:
    """A project whose files of sets are yanked just where each set of the index that they are of is."""
    sets: dict[str, IndexSet] = {}

    def marked(file: FileEntry) -> FileEntry:
        here = [set_id for set_id in file.sets if set_id in there]
        for set_id in here:
            if set_id not in sets:
                sets[set_id] = snapshot.set(set_id)
        reasons = [sets[set_id].yanked for set_id in here]
        if not reasons:  # it came by itself or from a mirror, and keeps the mark it came with
            return file
        reason = None if None in reasons else reasons[0]
        return file if file.yanked == reason else msgspec.structs.replace(file, yanked=reason)

    there = frozenset(snapshot.set_ids)
    return msgspec.structs.replace(project, files=tuple(map(marked, project.files)))


def refuse_yanked(store: Store, set_id: str) -> None:
    """A set that is yanked in any index is not promoted to a different one.

    Raises:
        GateError: it is; the message says where, and why.
    """

    def said(name: str) -> str | None:
        now_there = Index(store, name).load()
        reason = now_there.set(set_id).yanked if set_id in now_there.set_ids else None
        return f"it was yanked in {name}: {reason}" if reason is not None else None

    reasons = tuple(reason for reason in side_by_side(said, existing(store), jobs=_AT_ONCE) if reason)
    if reasons:
        raise GateError(
            f"the set {set_id[:12]} was yanked, and may not go to a different index",
            reasons=reasons,
            tip=f"if the reason is gone: cairn release yank {set_id[:12]} --undo --index …",
        )
