"""Rollback: a new generation with the state of an earlier one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from cairn import datafile
from cairn.concurrency import side_by_side
from cairn.errors import StoreError, UsageError
from cairn.output import Progress, silent, wording
from cairn.release.history import difference
from cairn.release.history.difference import Difference
from cairn.release.index import commit, keys, marks
from cairn.release.index.commit import attempts
from cairn.release.index.generation import IndexSet, ProjectState, now, who
from cairn.release.index.names import differing
from cairn.release.index.reach import objects_of
from cairn.release.index.reading import read_current
from cairn.release.index.snapshot import SET_FILE, Change, Index, Snapshot, missing, read_set
from cairn.release.ledger_entries import Event, EventKind
from cairn.store.protocol import MissingKeyError, Store, keep_young, sha256_of

_NUMBER = re.compile(r"[0-9]{1,7}")
_SET = re.compile(r"[0-9a-f]{4,64}", re.IGNORECASE)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_AT_ONCE = 4  # files read side by side
_REQUESTS = 16  # side by side
_HOW_TO_NAME = "give its number, a date such as 2026-11-20, or the id of a set; cairn release log lists them"


class Rollback(datafile.Value):
    """The result of a rollback, or of a dry run.

    Attributes:
        to: number of the generation whose state it is.
        to_when: when that came to be, RFC 3339 in UTC.
        generation: number of the new one; of the current one where nothing was to be done.
        changed: whether anything was to be done.
        difference: what goes and what comes back.
        still_yanked: the ids of the sets of that state that were yanked since, and still are.
    """

    to: int
    to_when: str
    generation: int
    changed: bool
    difference: Difference
    still_yanked: tuple[str, ...]


def rollback(
    store: Store,
    index: str,
    to: str,
    *,
    reason: str | None = None,
    dry_run: bool = False,
    on_step: Progress = silent,
) -> Rollback:
    """Give an index the state of an earlier generation, by a new one.

    Args:
        store: where the index lives.
        index: its name.
        to: the number of a generation; a date, for the last one of that day, or a moment (RFC 3339), in UTC;
            or the beginning of the id of a set, for the generation that brought it.
        reason: why, for the log.
        dry_run: say what would go and come, and write nothing.
        on_step: called with what is being done.

    Raises:
        GateError: an untested set would stand above a tested one that was yanked then.
        StoreError: there is no such generation, or something that it offered is no longer in the store as it
            was; every such file is named.
        UsageError: `to` names no generation.
    """
    reason = difference.checked_reason(reason) if reason is not None else None
    past = _find(read_current(Index(store, index)), to)
    number = past.generation.number
    why = f"to {number}: {reason}" if reason else f"to {number}"
    whole, marked, changed = Difference(), set[str](), False
    for attempt in attempts(past.index, dry_run=dry_run):
        change = _change(attempt.before, past)
        this = difference.between(attempt.before, change)
        _refuse_damaged(past, this, checked=whole, dry_run=dry_run, on_step=on_step)
        changed = changed or not change.empty
        marked |= {set_id for set_id, entry in change.sets.items() if entry is not None}
        # What a different writer brings while this one tries goes as well, and is to be named.
        earlier, whole = whole, whole.joined(this)
        if whole != earlier and not dry_run:
            _note(store, index, "withdraw", whole.gone_sets, why)  # first, so that no promotion comes between
        if this.gone and this.back and not dry_run:
            on_step("bringing back what comes beside what goes")
            attempt.commit(difference.without_losses(attempt.before, change), "rollback", why=why)
        elif attempt.commit(change, "rollback", why=why):
            break
    if not dry_run:
        _note(store, index, "withdraw", whole.gone_sets, why)
        _let_in(store, past, marked, why)
    return Rollback(
        to=number,
        to_when=past.generation.when,
        generation=attempt.generation,
        changed=changed,
        difference=whole,
        still_yanked=_yanked_since(attempt.before.with_change(change), past),
    )


def _note(store: Store, index: str, kind: EventKind, set_ids: Iterable[str], why: str) -> None:
    """Record in the ledger that users no longer get these sets, or get them again."""
    if not keys.is_gated(index):  # no gate asks there: whatever is staged again is there again
        return
    user, moment = who(), now()
    events = (Event(kind=kind, set_id=i, who=user, when=moment, why=why, index=index) for i in set_ids)
    commit.note_events(store, [*events])


def _let_in(store: Store, past: Snapshot, changed: Iterable[str], why: str) -> None:
    """Record that users get the sets of a state again, and update the marks of those that changed."""
    # All of them, since a run that died may have brought them, and said nothing of it.
    _note(store, past.index.name, "readmit", past.set_ids, why)
    # A yank or a record that came meanwhile has looked at the index as it was.
    for set_id in sorted(changed):
        marks.update_marks(store, set_id, "record", indexes=[past.index.name])


def _find(current: Snapshot, to: str) -> Snapshot:
    """Find the state that a user names, by a number, a moment, or a set."""
    index = current.index
    if not current.exists:
        raise missing(index.store, index.name)
    is_number = _NUMBER.fullmatch(to) is not None and int(to) <= current.generation.number
    brought = _bringing(current, to.lower()) if _may_be_id(current, to, is_number=is_number) else {}
    if is_number or (_NUMBER.fullmatch(to) and not brought):
        return _numbered(current, to, brought)
    if len(brought) > 1:
        raise UsageError(
            f"{to} is the beginning of {len(brought)} set ids",
            tip=f"give more of it: {', '.join(sorted(brought))}",
        )
    if _SET.fullmatch(to):
        if not brought:
            raise StoreError(f"{index.name} never had a set {to}", tip=_HOW_TO_NAME)
        return next(iter(brought.values()))
    before = _moment(to)
    for digest, generation in index.chain(current):
        if datetime.fromisoformat(generation.when) < before:
            return index.at(generation, digest)
    raise StoreError(f"{index.name} had nothing yet before {before.isoformat()}", tip=_HOW_TO_NAME)


def _may_be_id(current: Snapshot, to: str, *, is_number: bool) -> bool:
    """Whether a set's id may begin with `to`."""
    if not (_SET.fullmatch(to) and is_number):
        return _SET.fullmatch(to) is not None
    # A number is hardly ever the beginning of an id too: then nobody need read every generation.
    ids = (*current.set_ids, *current.index.store.folders("sets/"))
    return any(set_id.startswith(to) for set_id in ids)


def _numbered(current: Snapshot, to: str, brought: Iterable[str]) -> Snapshot:
    """The generation of this number, where that begins none of the sets that were `brought`."""
    index, newest, number = current.index, current.generation.number, int(to)
    if ids := ", ".join(sorted(brought)):
        raise UsageError(
            f"{to} is the number of a generation, and the beginning of a set's id",
            tip=f"write {number:07} for the generation, or more of the id: {ids}",
        )
    if number > newest:
        raise StoreError(
            f"{index.name} has no generation {number}: {newest} is its newest",
            tip=f"see them: cairn release log --index {index.name}",
        )
    states = (
        index.at(generation, digest)
        for digest, generation in index.chain(current)
        if generation.number == number
    )
    return next(states, index.at(index.generation(0, ""), ""))


def _bringing(current: Snapshot, beginning: str) -> dict[str, Snapshot]:
    """The newest state that brought each set whose id starts with `beginning`."""
    index = current.index
    brought: dict[str, Snapshot] = {}
    for digest, past, entry in difference.logged(current):
        for set_id in entry.brought:
            if set_id.startswith(beginning):
                brought.setdefault(set_id, index.at(past, digest))
    return brought


def _moment(to: str) -> datetime:
    """The moment before which a state must have come, so that a day or a moment includes its end."""
    try:
        if _DATE.fullmatch(to):
            return datetime.fromisoformat(to).replace(tzinfo=UTC) + timedelta(days=1)
        moment = datetime.fromisoformat(to) + timedelta(microseconds=1)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{to[:60]!r} names no generation", tip=_HOW_TO_NAME) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _change(now: Snapshot, past: Snapshot) -> Change:
    """The change that turns `now` back into `past`, except for what has become known of its sets since."""
    mark = marks.marking_from_ledger(now.index.store)
    changed = sorted(differing(now.set_entries, past.set_entries))
    back = [set_id for set_id in changed if past.has_set(set_id)]
    sets = dict(side_by_side(lambda set_id: (set_id, mark(past.set(set_id))), back, jobs=_REQUESTS))
    lifted = {
        i for i, wheel_set in sets.items() if wheel_set.yanked is None and past.set(i).yanked is not None
    }
    if lifted:
        after = (sets.get(set_id) or past.set(set_id) for set_id in past.set_ids)
        marks.refuse_stepping_back(now.index.name, after, lifted)
    new_sets: dict[str, IndexSet | None] = {
        set_id: sets.get(set_id)
        for set_id in changed
        if sets.get(set_id) != (now.set(set_id) if now.has_set(set_id) else None)
    }
    marked = now.with_change(Change(sets=new_sets))
    names = {name for entry in new_sets.values() if entry is not None for name in entry.projects}
    projects: dict[str, ProjectState | None] = {}
    for name in sorted(names | differing(now.project_parts, past.project_parts)):
        if name not in past.project_parts:
            projects[name] = None
            continue
        old = marks.with_marks(
            marked, past.project(name), _to_mark(now.project(name), past.project(name), new_sets)
        )
        if name not in now.project_parts or not difference.same_but_serial(old, now.project(name)):
            projects[name] = old
    return Change(projects=projects, sets=new_sets)


def _to_mark(now: ProjectState, past: ProjectState, sets: Mapping[str, object]) -> frozenset[str]:
    """The files of a past state that are not as they are now, or are of one of these sets."""
    files = {file.filename: file for file in now.files}
    same = (
        file.filename
        for file in past.files
        if files.get(file.filename) == file and sets.keys().isdisjoint(file.sets)
    )
    return frozenset(file.filename for file in past.files).difference(same)


def _yanked_since(now: Snapshot, past: Snapshot) -> tuple[str, ...]:
    """The ids of the sets of a past state that have been yanked since, and are so in `now`."""
    changed = (i for i in differing(now.set_entries, past.set_entries) if past.has_set(i) and now.has_set(i))
    return tuple(sorted(i for i in changed if past.set(i).yanked is None and now.set(i).yanked is not None))


def _refuse_damaged(
    past: Snapshot, coming: Difference, *, checked: Difference, dry_run: bool, on_step: Progress
) -> None:
    """Refuse if a file that comes back is damaged or lost; files of `checked` were checked before.

    Raises:
        StoreError: something is not; all of it is named.
    """
    store = past.index.store
    if not dry_run:
        # Before it is read: what is there then is not collected any more, as old as it may be.
        young = [key for ref in coming.back for key in objects_of(past.entry(ref))]
        young += [keys.set_key(set_id, SET_FILE) for set_id in coming.back_sets]
        side_by_side(lambda key: keep_young(store, key), young, jobs=_AT_ONCE)
    refs = [ref for ref in coming.back if ref not in checked.back]
    if refs:
        on_step(f"reading {wording.count(refs, 'file')} that would come back")
    objects = [(store, *pair) for ref in refs for pair in objects_of(past.entry(ref)).items()]
    problems = [text for text in side_by_side(_damage, objects, jobs=_AT_ONCE) if text]
    for set_id in coming.back_sets:
        try:
            read_set(store, set_id)
        except MissingKeyError:
            problems.append(f"{keys.set_key(set_id, 'set.json')} is not in the store")
    if problems:
        raise StoreError(
            f"generation {past.generation.number} cannot come back: {'; '.join(problems)}",
            tip="restore these from a copy of the store, or go back to a different generation",
        )


def _damage(place: tuple[Store, str, str]) -> str | None:
    """Why the object under a key does not match its sha256; None if it does."""
    store, key, sha256 = place
    try:
        with store.open(key) as stream:
            return None if sha256_of(stream) == sha256 else f"{key} was changed"
    except MissingKeyError:
        return f"{key} is not in the store"
