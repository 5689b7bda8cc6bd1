"""Marks: what the store knows of a set, shown by every index that has it."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Collection, Iterable, Sequence

from msgspec import structs

from cairn import datafile
from cairn.concurrency import side_by_side
from cairn.errors import CairnError, GateError, StoreError
from cairn.output.wording import short_id
from cairn.release.index import commit, keys
from cairn.release.index.commit import attempts
from cairn.release.index.generation import (
    Action,
    DamagedIndexError,
    FileEntry,
    IndexSet,
    ProjectState,
    project_of,
)
from cairn.release.index.reading import read_current
from cairn.release.index.snapshot import Change, Index, Snapshot, ancestors, existing, read_set, traces
from cairn.release.ledger import Ledger
from cairn.release.ledger_entries import Event, rebuilds_of, standing_of
from cairn.release.trust.metadata import MetadataError
from cairn.store.protocol import MissingKeyError, Store
from cairn.wheels.wheelset import WheelSet

_AT_ONCE = 16  # requests side by side

Marking = Callable[[IndexSet], IndexSet]
"""A set as an index lists it, to the same with the marks that it should have."""


class Marked(datafile.Value):
    """The marks of a set in one index, after an update.

    Attributes:
        index: which.
        set_id: which set.
        files: the names of the wheels whose mark changed.
        shared: those of its wheels that have no mark, since a set without one has them too.
        generation: the number of the generation that says so; that of the index where nothing was to be done.
        changed: whether anything was to be done.
    """

    index: str
    set_id: str
    files: tuple[str, ...]
    shared: tuple[str, ...]
    generation: int
    changed: bool


def marking_from_ledger(store: Store, *, pending: Iterable[Event] = ()) -> Marking:
    """The marks that follow from what the store knows: bans, bad test records, and rebuilds.

    Args:
        store: the store.
        pending: events to count as if the ledger had them.
    """
    ledger = Ledger(store, pending=pending)

    def mark(entry: IndexSet) -> IndexSet:
        try:
            ban = ledger.ban_of_set(read_set(store, entry.set_id))
        except MissingKeyError:  # it was collected with an older state of its index
            ban = ledger.ban(entry.set_id, entry.manifest_sha256)
        history = ledger.history(entry.set_id)
        return structs.replace(
            entry,
            yanked=ban.why if ban else None,
            failed=standing_of(history) or None,
            rebuilds=rebuilds_of(history),
        )

    return mark


def update_marks(  # noqa: PLR0913 - what is marked, where, and for the log
    store: Store,
    subject: str,
    action: Action,
    *,
    why: str | None = None,
    indexes: Iterable[str] | None = None,
    alike: Iterable[WheelSet] = (),
    pending: Iterable[Event] = (),
    dry_run: bool = False,
) -> tuple[Marked, ...]:
    """Bring the yank and failure marks of a set, or of all sets of a manifest, up to date in every index.

    Args:
        store: where they live.
        subject: the id of the set, or the digest of the manifest.
        action: which command asks.
        why: the reason, for the log.
        indexes: update these alone; None updates every index of the store.
        alike: the same of sets that are derived from these, or share wheels with them.
        pending: events to count as if the ledger had them, for a dry run.
        dry_run: say what would change, and write nothing.

    Returns:
        What each index says that has one of them.

    Raises:
        StoreError: an index cannot be changed; all others say it then.
    """
    marking, banned = marking_from_ledger(store, pending=pending), tuple(alike)
    marks: list[Marked] = []
    problems = commit.lost_indexes(store) if indexes is None and action != "record" else []
    # What users install from first.
    every = sorted(traces(store), key=lambda name: not keys.is_gated(name))
    # What testers and rebuilders add comes there with the next promoter's key: see `records.publish_late`.
    waits = action == "record" and not dry_run and not commit.can_change_gated(store)
    for name in every if indexes is None else indexes:
        if waits and keys.is_gated(name):
            continue
        try:
            index = Index(store, name)
            if action in ("yank", "unyank") and not dry_run:
                commit.recover(index)  # a promotion that died, before the pages of others show it
            now = read_current(index)
            of_night = (wheel_set.set_id for wheel_set in now.sets() if wheel_set.manifest_sha256 == subject)
            affected = (subject,) if now.has_set(subject) else tuple(of_night)
            # First, since nothing that any other set lacks is to keep these from being marked.
            marks += [_settle(index, it, action, why, marking, dry_run=dry_run) for it in affected]
            for set_id in _alike(now, banned):
                if set_id not in affected:
                    settled = _settle(index, set_id, action, why, marking, dry_run=dry_run)
                    marks += [settled] if settled.changed else []
        except (CairnError, OSError) as error:
            problems.append(f"{name}: {error}")
    if problems:
        raise StoreError(
            f"what is known of {short_id(subject)} is not yet on all pages of {'; '.join(problems)}",
            tip="see cairn index check, and run the same command again: it does what is left",
        )
    return tuple(marks)


def refuse_stepping_back(index: str, after: Iterable[IndexSet], lifted: Collection[str]) -> None:
    """Refuse to bring a tested set back below an untested one that was let in while it was yanked.

    Args:
        index: its name.
        after: its sets, as they would be.
        lifted: the ids of those that are yanked now, or were, and would not be.

    Raises:
        GateError: an untested set would take the place of a tested one.
    """
    if not lifted or not keys.is_gated(index) or index.partition("/")[0] == keys.UNTESTED:
        return
    offered = sorted(
        (wheel_set for wheel_set in after if wheel_set.yanked is None),
        key=lambda wheel_set: (wheel_set.added, wheel_set.set_id),
    )
    for old, new in itertools.combinations(offered, 2):
        targets = new.tested_targets_replaced_in(old)
        if targets and not {old.set_id, new.set_id}.isdisjoint(lifted):
            raise GateError(
                f"{index} would offer the set {short_id(new.set_id)}, not tested on {', '.join(targets)}, "
                f"above {short_id(old.set_id)}, which was",
                tip=f"take {short_id(new.set_id)} off first: yank it, or roll {index} back to before it came "
                f"(cairn release log --index {index})",
            )


def finish_interrupted(store: Store) -> None:
    """Finish what a yank or a late record left undone when its command died: the ledger has it already.

    What cannot be finished is left as it is, for `cairn index check` to name.
    """
    marking = marking_from_ledger(store)
    for name in existing(store):
        try:
            snapshot = read_current(Index(store, name))
        except (DamagedIndexError, MetadataError):
            continue
        for set_id in snapshot.set_ids:
            with contextlib.suppress(CairnError):
                entry = snapshot.set(set_id)
                if (marked := marking(entry)) != entry:
                    action: Action = "record" if marked.yanked == entry.yanked else "yank"
                    update_marks(store, set_id, action, why=marked.yanked, indexes=[name])


def _alike(now: Snapshot, sets: Sequence[WheelSet]) -> tuple[str, ...]:
    """The sets of an index that are derived from one of these sets, or share a wheel with one."""
    store, ids = now.index.store, {wheel_set.id for wheel_set in sets}
    digests = {wheel.sha256 for wheel_set in sets for wheel in wheel_set.wheels}
    versions = {(wheel.distribution, wheel.version) for wheel_set in sets for wheel in wheel_set.wheels}

    def is_alike(set_id: str) -> bool:
        whole = read_set(store, set_id)
        shares = any(wheel.sha256 in digests for wheel in whole.wheels)
        return shares or not ids.isdisjoint(ancestors(store, whole))

    # A wheel that two sets share has one version; an entry of an earlier Cairn lacks `derived_from`.
    entries = [
        entry.set_id
        for entry in (now.sets() if ids else ())
        if entry.derived_from != "" or not versions.isdisjoint(entry.projects.items())
    ]
    alike = side_by_side(is_alike, entries, jobs=_AT_ONCE)
    return tuple(itertools.compress(entries, alike))


def _settle(
    index: Index, set_id: str, action: Action, why: str | None, mark: Marking, *, dry_run: bool
) -> Marked:
    """Give a set of an index its marks, and repeat until they match the ledger.

    Two commands may ban a set and lift that ban at the same time, and each has the ledger before the index.
    So whoever changes the index looks once more at the ledger afterwards: what came meanwhile has seen the
    index as it was before.
    """
    file_names = frozenset(wheel.file_name for wheel in read_set(index.store, set_id).wheels)
    settled: Marked | None = None
    for attempt in attempts(index, dry_run=dry_run):
        change, marked = _proposed(attempt.before, set_id, file_names, mark)
        settled = marked if settled is None or marked.changed else settled
        with contextlib.suppress(GateError):  # a ban came between the marks and the commit
            if attempt.commit(change, action, why=why) and (change.empty or dry_run):
                break
    assert settled is not None  # noqa: S101 - there is at least one attempt
    return structs.replace(settled, generation=attempt.generation)


def _proposed(
    current: Snapshot, set_id: str, file_names: frozenset[str], mark: Marking
) -> tuple[Change, Marked]:
    """The change that gives a set and its wheels their marks, and the description of the result."""
    nothing = Marked(
        index=current.index.name,
        set_id=set_id,
        files=(),
        shared=(),
        generation=current.generation.number,
        changed=False,
    )
    if not current.has_set(set_id):  # a different writer has taken it off meanwhile
        return Change(), nothing
    marked = mark(current.set(set_id))
    sets = {set_id: marked} if marked != current.set(set_id) else {}
    after = current.with_change(Change(sets=sets))
    old = {name: current.project(name) for name in sorted({project_of(name) for name in file_names})}
    new = {name: with_marks(after, project, file_names) for name, project in old.items()}
    files = [
        (before, file)
        for name, project in old.items()
        for before, file in zip(project.files, new[name].files, strict=True)
        if file.filename in file_names
    ]
    plain = (file.filename for _, file in files if file.yanked is None)
    change = Change(projects={n: p for n, p in new.items() if p != old[n]}, sets=sets)
    return change, structs.replace(
        nothing,
        changed=not change.empty,
        files=tuple(sorted(file.filename for before, file in files if file != before)),
        shared=tuple(sorted(plain)) if marked.yanked is not None else (),
    )


def with_marks(
    snapshot: Snapshot, project: ProjectState, names: Collection[str] | None = None
) -> ProjectState:
    """A project whose files, or those of these names, have the marks that all their sets there share."""

    def marked(file: FileEntry) -> FileEntry:
        here = [snapshot.set(set_id) for set_id in file.sets if snapshot.has_set(set_id)]
        if not here:  # it came by itself or from a mirror, and keeps the mark it came with
            return file
        yanks, failures = ([getattr(entry, field) for entry in here] for field in ("yanked", "failed"))
        yanked, failed = (None if None in texts else texts[0] for texts in (yanks, failures))
        if (file.yanked, file.failed) == (yanked, failed):
            return file
        return structs.replace(file, yanked=yanked, failed=failed)

    files = (marked(file) if names is None or file.filename in names else file for file in project.files)
    return structs.replace(project, files=tuple(files))
