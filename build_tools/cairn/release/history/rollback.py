"""Rollback: a new generation with the state of an earlier one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

from cairn import datafile
from cairn.concurrency import side_by_side
from cairn.errors import StoreError, UsageError
from cairn.output import Progress, silent, wording
from cairn.release.history import difference
from cairn.release.history.difference import Difference
from cairn.release.index import keys, marks
from cairn.release.index.commit import commit
from cairn.release.index.generation import Generation, IndexSet, ProjectState, now, who
from cairn.release.index.snapshot import SET_FILE, Change, Index, Snapshot, missing, objects_of, read_set
from cairn.release.ledger.chain import Ledger
from cairn.release.ledger.entry import Event, EventKind
from cairn.store.protocol import MissingKeyError, Store, keep_young, sha256_of

_NUMBER = re.compile(r"[0-9]{1,7}")
_SET = re.compile(r"[0-9a-f]{4,64}", re.IGNORECASE)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_AT_ONCE = 4  # files read side by side


class Rollback(datafile.Value):
    """What a rollback did, or would do.

    Attributes:
        to: number of the generation whose state it is.
        to_when: when that came to be, RFC 3339 in UTC.
        generation: number of the new one; of the one that counts where nothing was to be done.
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


class _Past:
    """A generation that an index is to go back to, and all that came after it."""

    def __init__(self, index: Index, digest: str, generation: Generation) -> None:
        self.state = index.at(generation, digest)
        self.number = generation.number


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
    present = Index(store, index).load()
    past = _find(present, to)
    why = f"to {past.number}: {reason}" if reason else f"to {past.number}"
    whole = Difference()

    def plan(now: Snapshot) -> Change:
        nonlocal whole
        change = _change(now, past)
        this = difference.between(now, change)
        _refuse_damaged(past, this, known=whole, on_step=on_step)
        # What a different writer brings while this one tries goes as well, and is to be named.
        whole = whole.joined(this)
        return change

    change = plan(present)
    number = present.generation.number + (not change.empty)
    if not dry_run:
        _keep_young(past, whole)
        _note(store, index, "withdraw", whole.gone_sets, why)  # first, so that no promotion comes between
        if whole.gone and whole.back:
            on_step("bringing back what comes beside what goes")
            commit(present.index, "rollback", lambda now: difference.without_losses(now, plan(now)), why=why)
        number = commit(present.index, "rollback", plan, why=why).generation.number
        _note(store, index, "withdraw", whole.gone_sets, why)
        _let_in(store, index, past, whole.back_sets, why)
    return Rollback(
        to=past.number,
        to_when=past.state.generation.when,
        generation=number,
        changed=not change.empty,
        difference=whole,
        still_yanked=_marked(past),
    )


def _note(store: Store, index: str, kind: EventKind, set_ids: Iterable[str], why: str) -> None:
    """Note which sets users are to get no more, or again, until somebody says otherwise."""
    if not keys.is_gated(index):  # no gate asks there: whatever is staged again is there again
        return
    Ledger(store).add(
        events=[
            Event(kind=kind, set_id=set_id, who=who(), when=now(), why=why, index=index) for set_id in set_ids
        ]
    )


def _let_in(store: Store, index: str, past: _Past, back: Iterable[str], why: str) -> None:
    """Note that users get the sets of a state again, and mark those that came by what is known by now."""
    # All of them, since a run that died may have brought them, and said nothing of it.
    _note(store, index, "readmit", past.state.set_ids, why)
    # A yank or a record that came meanwhile looks where they are already.
    for set_id in back:
        marks.settle(store, set_id, "record", indexes=[index])


def _keep_young(past: _Past, difference: Difference) -> None:
    """Have what comes back not be collected before the commit, as old as it may be."""
    store, state = past.state.index.store, past.state
    coming = [key for ref in difference.back for key in objects_of(state.entry(ref))]
    coming += [keys.set_key(set_id, SET_FILE) for set_id in difference.back_sets]
    side_by_side(lambda key: keep_young(store, key), coming, jobs=_AT_ONCE)


def _find(now: Snapshot, to: str) -> _Past:
    """The generation that a user names."""
    if not now.exists:
        raise missing(now.index.store, now.index.name)
    chain = now.index.chain(now)
    current = now.generation.number
    if _NUMBER.fullmatch(to):
        if int(to) > current:
            raise StoreError(
                f"{now.index.name} has no generation {int(to)}: {current} is its newest",
                tip=f"see them: cairn release log --index {now.index.name}",
            )
        return next(
            (_Past(now.index, digest, one) for digest, one in chain if one.number == int(to)),
            _Past(now.index, "", now.index.generation(0, "")),
        )
    if _SET.fullmatch(to):
        return _bringing(now, chain, to.lower())
    before = _moment(to)
    for digest, one in chain:
        if datetime.fromisoformat(one.when) < before:
            return _Past(now.index, digest, one)
    raise StoreError(f"{now.index.name} had nothing yet before {before.isoformat()}", tip=_named())


def _bringing(now: Snapshot, chain: Iterator[tuple[str, Generation]], beginning: str) -> _Past:
    brought: dict[str, _Past] = {}
    newer: tuple[str, Generation] | None = None
    for digest, one in (*chain, ("", now.index.generation(0, ""))):
        if newer is not None:
            for set_id in newer[1].sets.keys() - one.sets.keys():
                if set_id.startswith(beginning):
                    brought.setdefault(set_id, _Past(now.index, *newer))
        newer = digest, one
    if not brought:
        raise StoreError(f"{now.index.name} never had a set {beginning}", tip=_named())
    if len(brought) > 1:
        raise UsageError(
            f"{beginning} is the beginning of {len(brought)} set ids",
            tip=f"give more of it: {', '.join(sorted(brought))}",
        )
    return next(iter(brought.values()))


def _moment(to: str) -> datetime:
    """Where states that still count end: a day counts to its end, a moment is part of what it names."""
    try:
        if _DATE.fullmatch(to):
            return datetime.fromisoformat(to).replace(tzinfo=UTC) + timedelta(days=1)
        moment = datetime.fromisoformat(to)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{to[:60]!r} names no generation", tip=_named()) from error
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return moment + timedelta(microseconds=1)


def _named() -> str:
    return "give its number, a date such as 2026-11-20, or the id of a set; cairn release log lists them"


def _change(now: Snapshot, past: _Past) -> Change:
    """What makes `now` what it was, but for what is known of its sets since then."""
    state, mark = past.state, marks.known(now.index.store)
    sets = {set_id: mark(state.set(set_id)) for set_id in state.set_ids}
    lifted = {i for i, one in sets.items() if one.yanked is None and state.set(i).yanked is not None}
    marks.refuse_stepping_back(now.index.name, sets.values(), lifted)
    new_sets: dict[str, IndexSet | None] = {
        set_id: sets.get(set_id)
        for set_id in sets.keys() | set(now.set_ids)
        if set_id not in now.generation.sets or sets.get(set_id) != now.set(set_id)
    }
    marked = now.with_change(Change(sets=new_sets))
    projects: dict[str, ProjectState | None] = {}
    for name in sorted({*state.project_names, *now.project_names}):
        if name not in state.generation.projects:
            projects[name] = None
            continue
        old = marks.with_marks(marked, state.project(name))
        if name not in now.generation.projects or not difference.same_but_serial(old, now.project(name)):
            projects[name] = old
    return Change(projects=projects, sets=new_sets)


def _marked(past: _Past) -> tuple[str, ...]:
    """The sets of a past state that were not yanked in it, and are by now."""
    mark = marks.known(past.state.index.store)
    old = (past.state.set(set_id) for set_id in past.state.set_ids)
    return tuple(one.set_id for one in old if one.yanked is None and mark(one).yanked is not None)


def _refuse_damaged(past: _Past, coming: Difference, *, known: Difference, on_step: Progress) -> None:
    """What comes back must be in the store as it was; files of `known` were looked at before.

    Raises:
        StoreError: something is not; all of it is named.
    """
    store, state = past.state.index.store, past.state

    def problem(key: str, sha256: str) -> str | None:
        try:
            with store.open(key) as stream:
                return None if sha256_of(stream) == sha256 else f"{key} was changed"
        except MissingKeyError:
            return f"{key} is not in the store"

    refs = [ref for ref in coming.back if ref not in known.back]
    if refs:
        on_step(f"reading {wording.count(refs, 'file')} that would come back")
    objects = [pair for ref in refs for pair in objects_of(state.entry(ref)).items()]
    texts = side_by_side(lambda pair: problem(*pair), objects, jobs=_AT_ONCE)
    problems = [text for text in texts if text]
    for set_id in coming.back_sets:
        try:
            read_set(store, set_id)
        except MissingKeyError:
            problems.append(f"{keys.set_key(set_id, 'set.json')} is not in the store")
    if problems:
        raise StoreError(
            f"generation {past.number} cannot come back: {'; '.join(problems)}",
            tip="restore these from a copy of the store, or go back to a different generation",
        )
