"""The ledger of a store: a chain of entries, and the lookups made from it by project and by set.

    ledger/entries/<number>.json                 an entry; it names the sha256 of the one before
    ledger/names/[<family>/]<project>.json       every name that entries have of a project
    ledger/sets/<set id>.json                    every event that entries have of a set
    ledger/head.json                             up to which entry these two are written

Only the entries decide. Two writers cannot take one number, since an entry is created and never replaced;
whoever was second looks at what the first wrote, and takes the next number if nothing speaks against it. What
is looked up is made from the entries: a reader adds to it the entries after the head, and the next writer
finishes what one that died has left. The head names all that can be looked up, in short: for anything else a
reader need not ask, and what is missing it makes from the entries again. So a change costs a handful of
requests however long the chain is, and no entry can be lost, moved or altered without one after it saying so.

What it promises, for the whole store and for ever; `gc` collects nothing of it:

- A name has the bytes that it was first published with, in all indexes of its scope, also when no index has
  it any more. It counts as published from the moment at which a command is about to offer it.
- A set that was yanked stays so, in every index, until a `lift` says by whom and why.
  So do its wheels: they come into no index by themselves, nor in a set that is the same by them.
- A set that a rollback took off an index comes back into it by a rollback, or by name and reason.
- A test record that was given stands, also where its file is lost.
"""

from __future__ import annotations

import collections
import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NoReturn, TypeVar

import msgspec
from msgspec import structs

from cairn import datafile
from cairn.concurrency import side_by_side
from cairn.errors import GateError, OtherVersionError, StoreError, UsageError
from cairn.output.wording import short_id
from cairn.release.index import keys
from cairn.release.index.generation import FileRef, IndexSet, digest_of, encode, now, who
from cairn.release.index.snapshot import ancestors
from cairn.release.ledger_entries import (
    Entry,
    Event,
    Head,
    History,
    Names,
    ban_of,
    by_place,
    first_entry,
    is_news,
    standing_of,
)
from cairn.release.trust.current import Decisions, believed
from cairn.store.protocol import MissingKeyError, Store, StoredObject, attempts_at, read_or_none, replace
from cairn.wheels.wheelset import WheelSet

_AT_ONCE = 16  # requests side by side
_SHORT = 8  # digits that stand for a lookup: of 100,000, one in 43,000 is taken for another, and asked for

_L = TypeVar("_L", Names, History)
_M = TypeVar("_M", Names, History, Head)
_NOTHING = History(through=-1, events=())


class NameTakenError(StoreError):
    """The name belongs to other bytes."""


class _Tail(msgspec.Struct, frozen=True, kw_only=True):
    """The entries that a reader must add to the lookups.

    Attributes:
        entries: those after the head, in order.
        number, digest: of the last entry of all; None before the ledger has begun.
        lookups: as the head has them.
    """

    entries: tuple[Entry, ...]
    number: int | None
    digest: str | None
    lookups: str = ""


class Ledger:
    """The ledger of a store.

    Attributes:
        store: which.
        pending: events to count as if they were recorded, to see their effect.
    """

    def __init__(self, store: Store, *, pending: Iterable[Event] = ()) -> None:
        self.store = store
        self.pending = tuple(pending)
        self._decisions = Decisions(store)
        self._head: tuple[bytes, Head | None] = b"", None
        self._read: tuple[_Tail | None, tuple[Event, ...] | None] = None, None

    @property
    def is_signed(self) -> bool:
        """Whether decisions count only where a promoter has signed them."""
        return self._decisions.read() is not None

    def history(self, set_id: str) -> tuple[Event, ...]:
        """Every event that was ever recorded of a set, oldest first; raises as `entries` does."""
        return self._history(set_id, self._tail())

    def last_events(self, subjects: Iterable[str]) -> list[Event | None]:
        """Return the last event of each subject, all from one moment."""
        tail = self._tail()
        return [max(self._history(it, tail), key=lambda event: event.when, default=None) for it in subjects]

    def ban(self, *subjects: str) -> Event | None:
        """The ban of a set, or of its manifest; None if there is none, or it was lifted."""
        tail = self._tail()
        bans = (ban_of(self._history(subject, tail)) for subject in subjects)
        return next((ban for ban in bans if ban is not None), None)

    def ban_of_set(self, wheel_set: WheelSet) -> Event | None:
        """The ban of a set, of its night, of its ancestors, or of a set that is the same by its wheels.

        The same in the sense of `refuse_banned_files`.
        """
        if ban := self.ban(wheel_set.id, wheel_set.manifest_sha256, *ancestors(self.store, wheel_set)):
            return ban
        tail = self._tail()
        by_wheel = [_bans_of_wheel(self._history(wheel.sha256, tail)) for wheel in wheel_set.wheels]
        return next(_from_equal_sets(wheel_set.id, by_wheel), None)

    def refuse_banned(self, sets: Iterable[IndexSet | WheelSet]) -> None:
        """Refuse sets that were yanked.

        Raises:
            GateError: one was, or its night was, and that was not lifted; the message says by whom and why.
        """
        for wheel_set in sets:
            set_id = wheel_set.set_id or ""
            # What it comes from has the same wheels under other versions.
            comes_from = ancestors(self.store, wheel_set) if isinstance(wheel_set, WheelSet) else ()
            if ban := self.ban(*filter(None, (set_id, wheel_set.manifest_sha256, *comes_from))):
                of_night = ban.set_id == wheel_set.manifest_sha256
                which = f"--night {short_id(ban.set_id)}" if of_night else short_id(ban.set_id)
                _refuse_ban(f"the set {short_id(set_id or ban.set_id)} was yanked", which, ban)

    def refuse_banned_files(
        self,
        own_files: Mapping[str, Collection[str]],
        others: Iterable[str],
        *,
        files_by_index: Mapping[str, Iterable[FileRef]] | None = None,
    ) -> None:
        """Refuse wheels of a yanked set, on their own or in a set that is the same by its wheels.

        A set is that if it has all wheels of a yanked one, or nothing but wheels of yanked ones: sealed again
        with other requirements, or with one project more. One that shares some of its wheels is another.

        Args:
            own_files: the sha256 of each wheel of the sets that come, by the id of the set.
            others: the sha256 of each other file that comes.
            files_by_index: files by index, whose names must not have other bytes, as `add` has it.

        Raises:
            GateError: there are such wheels; the message says by whom and why.
            NameTakenError: a name has other bytes.
        """
        tail, others = self._tail(), frozenset(others)
        subjects = sorted(others.union(*own_files.values()))
        histories = side_by_side(lambda sha256: self._history(sha256, tail), subjects, jobs=_AT_ONCE)
        bans = {sha256: _bans_of_wheel(history) for sha256, history in zip(subjects, histories, strict=True)}
        for sha256 in sorted(others):
            for event in bans[sha256]:
                _refuse_wheels(f"the file with sha256 {short_id(sha256)} is", event)
        for set_id, wheels in own_files.items():
            for event in _from_equal_sets(set_id, [bans[sha256] for sha256 in wheels]):
                _refuse_wheels(f"the wheels of the set {short_id(set_id)} are", event)
        for index, refs in (files_by_index or {}).items():
            _refuse(self._clashes({keys.scope_of(index): {r.filename: r.sha256 for r in refs}}, tail)[1])

    def published(self, project: str, scopes: Collection[str]) -> frozenset[str]:
        """Return the file names of a project that were ever published in scopes (`keys.scope_of`)."""
        tail, places = self._tail(), [(scope, project) for scope in scopes]
        stored = side_by_side(
            lambda place: self._lookup(keys.ledger_names_key(*place), Names, tail), places, jobs=_AT_ONCE
        )
        later = [by_place(entry.names).get(place, {}) for entry in tail.entries for place in places]
        return frozenset().union(*(names.names for names in stored if names), *later)

    def failing_alike(self, wheel_set: WheelSet) -> tuple[str, ...]:
        """The failures of sets with the same wheels (`refuse_banned_files`), also under other versions."""
        tail, marks = self._tail(), []
        for wheel in wheel_set.wheels:
            history = self._history(wheel.sha256, tail)
            latest = {event.of: event for event in history if event.kind == "stand"}
            marks.append(tuple(event for event in latest.values() if event.why))
        alike = {str(event.of): event.why for event in _from_equal_sets(wheel_set.id, marks)}
        if (old := wheel_set.derived_from) and (why := standing_of(self._history(old, tail))):
            alike[old] = why
        return tuple(
            f"the set {short_id(set_id)} has the same wheels, and there is against it: {why}"
            for set_id, why in sorted(alike.items())
        )

    def add(
        self, *, names: Mapping[str, Mapping[str, str]] | None = None, events: Iterable[Event] = ()
    ) -> tuple[Event, ...]:
        """Record names and events in the ledger, except those it has already; return the events that are new.

        Where the store has a root, decisions count once they are signed, which comes first: see
        `index.commit.note_events`. What is signed of the same sets, and not noted, is noted with them.

        Args:
            names: sha256 by file name, by scope: what is about to be offered.
            events: what was done to sets. A record is noted once, a ban only where there is none.

        Raises:
            NameTakenError: a name has other bytes; nothing is noted then.
            StoreError: an entry is lost or was changed, or others were first too many times.
        """
        offered, noted = names or {}, tuple(events)
        if not (offered or noted):
            return ()
        for _ in attempts_at("the ledger"):
            tail = self._tail()
            fresh, clashes = self._clashes(offered, tail)
            _refuse(clashes)
            news = (*self._signed_alone({event.set_id for event in noted}, tail), *self._news(noted, tail))
            if not (fresh or news):
                return ()
            begun = tail if tail.number is not None else self._begun(tail)
            if begun is None or begun.number is None:
                continue
            number = begun.number + 1
            entry = Entry(number=number, parent=begun.digest, who=who(), when=now(), names=fresh, events=news)
            if self._create(entry):
                self._write_lookups(structs.replace(begun, entries=(*begun.entries, entry)))
                return news
        raise AssertionError  # `attempts_at` raises

    def entries(self) -> Iterator[tuple[str, Entry]]:
        """Every entry with the digest of its bytes, oldest first.

        Raises:
            StoreError: one is damaged, or is not the child of the one before.
        """
        return self._entries_after(None)

    def events(self) -> Iterator[Event]:
        """Every event, oldest first; before the ledger has begun, those that its first entry will have."""
        entries = (entry for _, entry in self.entries()) if self.last() else (first_entry(self.store),)
        return (event for entry in entries for event in entry.events)

    def last(self) -> tuple[int, str] | None:
        """The number and the digest of the last entry; None before the ledger has begun."""
        tail = self._tail()
        return (tail.number, tail.digest) if tail.number is not None and tail.digest is not None else None

    def _tail(self) -> _Tail:
        blob = read_or_none(self.store, keys.LEDGER_HEAD)
        if blob is None or blob.data != self._head[0]:  # it grows with the store, and each set asks for it
            self._head = blob.data if blob else b"", _parsed(blob, Head)
        head = self._head[1] if self._head[1] and self._head[1].lookups is not None else None
        number, digest = (head.number, head.digest) if head else (None, None)
        entries = []
        for entry_digest, entry in self._entries_after(head):
            number, digest = entry.number, entry_digest
            entries.append(entry)
        if digest is None:
            # What its first entry will say holds already: a store without a ledger has yanks too.
            entries.append(first_entry(self.store))
        if self.pending:
            last = entries[-1].number if entries else number or 0
            entries.append(Entry(number=last + 1, parent=None, who="", when="", events=self.pending))
        lookups = (head and head.lookups) or ""
        return _Tail(entries=tuple(entries), number=number, digest=digest, lookups=lookups)

    def _entries_after(self, head: Head | None) -> Iterator[tuple[str, Entry]]:
        number, parent = (head.number + 1, head.digest) if head else (0, None)
        while True:
            key = keys.ledger_entry_key(number)
            try:
                data = self.store.read(key).data
            except MissingKeyError:
                return
            try:
                entry = datafile.loads(data, Entry, name=f"{self.store.url}/{key}")
            except OtherVersionError:
                raise
            except UsageError as error:
                raise StoreError(str(error), tip="restore the ledger from a copy of the store") from error
            if (entry.number, entry.parent) != (number, parent):
                raise StoreError(
                    f"{self.store.url}/{key} is not the entry that follows the one before it",
                    tip="restore the ledger from a copy of the store: nothing in it ever changes",
                )
            number, parent = number + 1, digest_of(data)
            yield parent, entry

    def _begun(self, tail: _Tail) -> _Tail | None:
        """Write the first entry; return the tail after it, or None if another writer was first."""
        first = tail.entries[0]
        if not self._create(first):
            return None
        head = self._write_lookups(tail)
        return _Tail(entries=(), number=head.number, digest=head.digest, lookups=head.lookups or "")

    def _create(self, entry: Entry) -> bool:
        """Create an entry; return whether it is now the one of its number, even if the reply was lost."""
        key, data = keys.ledger_entry_key(entry.number), encode(entry)
        return self.store.write_if(key, data, etag=None) or self.store.read(key).data == data

    def _clashes(
        self, offered: Mapping[str, Mapping[str, str]], tail: _Tail
    ) -> tuple[dict[str, dict[str, str]], tuple[str, ...]]:
        """The new names, by scope, and a sentence for each name that has other bytes."""
        grouped = by_place(offered)
        stored = side_by_side(
            lambda place: self._lookup(keys.ledger_names_key(*place), Names, tail), grouped, jobs=_AT_ONCE
        )
        held = {place: part.names if part else {} for place, part in zip(grouped, stored, strict=True)}
        for entry in tail.entries:
            for place, names in by_place(entry.names).items():
                if place in held:
                    held[place] = {**names, **held[place]}
        fresh: dict[str, dict[str, str]] = {}
        clashes = []
        for place, names in grouped.items():
            for name, sha256 in names.items():
                published = held[place].get(name)
                if published is None:
                    fresh.setdefault(place[0], {})[name] = sha256
                elif published != sha256:
                    clashes.append(f"{name} was published with other bytes before: sha256 {published}")
        return fresh, tuple(clashes)

    def _history(self, set_id: str, tail: _Tail) -> tuple[Event, ...]:
        decisions = self._read  # by a name of this thread's: others ask of other moments
        if decisions[0] is not tail:  # once for all that is asked of one moment
            self._read = decisions = tail, self._decisions.read()
        events, signed = self._noted(set_id, tail), decisions[1]
        return events if signed is None else believed(signed, events, set_id, self.pending)

    def _noted(self, set_id: str, tail: _Tail) -> tuple[Event, ...]:
        stored = self._lookup(keys.ledger_set_key(set_id), History, tail) or _NOTHING
        later = (e for entry in tail.entries if entry.number > stored.through for e in entry.events)
        return (*stored.events, *(event for event in later if event.set_id == set_id))

    def _signed_alone(self, set_ids: Collection[str], tail: _Tail) -> Iterator[Event]:
        """What promoters have signed of sets, and no entry has: the writer died in between."""
        signed = [event for event in self._decisions.read() or () if event.set_id in set_ids]
        ids = dict.fromkeys(event.set_id for event in signed)
        noted = {set_id: self._noted(set_id, tail) for set_id in ids}
        return (event for event in signed if event not in noted[event.set_id])

    def news(self, events: Iterable[Event]) -> tuple[Event, ...]:
        """The events that would change what the ledger knows of their sets."""
        return self._news(events, self._tail())

    def note_signed(self) -> None:
        """Note what promoters have signed and no entry has; nobody's key is needed for that."""
        self.add(events=self._decisions.read() or ())

    def _lookup(self, key: str, kind: type[_L], tail: _Tail) -> _L | None:
        """The lookup under a key; None if the entries before the tail have nothing for it."""
        if short(key) not in tail.lookups:
            return None
        return _parsed(read_or_none(self.store, key), kind) or self._lost(key, kind)

    def _lost(self, key: str, kind: type[_L]) -> _L | None:
        """Rebuild a lookup that is missing or damaged from the whole chain."""
        rebuilt = replayed(entry for _, entry in self.entries()).get(key)
        return rebuilt if isinstance(rebuilt, kind) else None

    def _news(self, events: Iterable[Event], tail: _Tail) -> tuple[Event, ...]:
        """The events that change what the ledger knows of their sets."""
        news: list[Event] = []
        histories: dict[str, tuple[Event, ...]] = {}
        for event in events:
            if event.set_id not in histories:
                histories[event.set_id] = self._history(event.set_id, tail)
            if is_news(event, histories[event.set_id]):
                histories[event.set_id] += (event,)
                news.append(event)
        return tuple(news)

    def _write_lookups(self, tail: _Tail) -> Head:
        """Bring the lookups up to date with a tail's entries, and then the head."""
        by_project, by_set = _grouped(tail.entries)
        side_by_side(lambda item: self._add_names(*item, tail), by_project.items(), jobs=_AT_ONCE)
        side_by_side(lambda item: self._add_events(*item, tail), by_set.items(), jobs=_AT_ONCE)
        last, new = tail.entries[-1], [keys.ledger_names_key(*place) for place in by_project]
        new += [keys.ledger_set_key(set_id) for set_id in by_set]
        lookups = " ".join(sorted({*tail.lookups.split(), *map(short, new)}))
        # A writer that stalled may set it back: what follows is then read once more, and nothing is lost.
        head = Head(number=last.number, digest=digest_of(encode(last)), lookups=lookups)
        self.store.write(keys.LEDGER_HEAD, encode(head))
        return head

    def _add_names(self, place: tuple[str, str], new: Mapping[str, str], tail: _Tail) -> None:
        key = keys.ledger_names_key(*place)
        for blob, old in self._versions(key, Names, tail):
            before = old.names if old is not None else {}
            names = Names(names={**before, **{name: sha for name, sha in new.items() if name not in before}})
            if replace(self.store, key, blob, encode(names)):
                return

    def _add_events(self, set_id: str, new: Iterable[tuple[int, Event]], tail: _Tail) -> None:
        key = keys.ledger_set_key(set_id)
        for blob, old in self._versions(key, History, tail):
            so_far = old or _NOTHING
            later = [(number, event) for number, event in new if number > so_far.through]
            through = max((number for number, _ in later), default=so_far.through)
            history = History(through=through, events=(*so_far.events, *(event for _, event in later)))
            if replace(self.store, key, blob, encode(history)):
                return

    def _versions(
        self, key: str, cls: type[_L], tail: _Tail
    ) -> Iterator[tuple[StoredObject | None, _L | None]]:
        """Yield a lookup at each attempt to write it: the stored object, and its content."""
        for _ in attempts_at(key):
            blob = read_or_none(self.store, key)
            old = _parsed(blob, cls)
            yield blob, self._lost(key, cls) if old is None and short(key) in tail.lookups else old


def _parsed(blob: StoredObject | None, kind: type[_M]) -> _M | None:
    """A head or a lookup; None where there is none, or it is damaged: what it says, the entries say."""
    try:
        return datafile.loads_quickly(blob.data, kind, name="ledger/") if blob is not None else None
    except OtherVersionError:
        raise
    except UsageError:
        return None


def replayed(entries: Iterable[Entry]) -> dict[str, Names | History]:
    """Rebuild all lookups, by key, from the entries of a whole chain."""
    by_project, by_set = _grouped(entries)
    lookups: dict[str, Names | History] = {
        keys.ledger_names_key(*place): Names(names=names) for place, names in by_project.items()
    }
    for set_id, events in by_set.items():
        through, every = events[-1][0], tuple(event for _, event in events)
        lookups[keys.ledger_set_key(set_id)] = History(through=through, events=every)
    return lookups


def _grouped(
    entries: Iterable[Entry],
) -> tuple[dict[tuple[str, str], dict[str, str]], dict[str, list[tuple[int, Event]]]]:
    """Group names by scope and project, and events, each with its entry's number, by set."""
    by_project: dict[tuple[str, str], dict[str, str]] = {}
    by_set: dict[str, list[tuple[int, Event]]] = {}
    for entry in entries:
        for place, names in by_place(entry.names).items():
            by_project[place] = {**(names_before := by_project.get(place, {})), **names, **names_before}
        for event in entry.events:
            by_set.setdefault(event.set_id, []).append((entry.number, event))
    return by_project, by_set


def short(key: str) -> str:
    """The short form of a lookup's key, as the head has it."""
    return hashlib.sha256(key.encode()).hexdigest()[:_SHORT]


def _bans_of_wheel(history: tuple[Event, ...]) -> tuple[Event, ...]:
    """The bans in force on a wheel with this history, of all its sets."""
    every = (ban_of(history, of) for of in dict.fromkeys(event.of for event in history))
    return tuple(ban for ban in every if ban is not None)


def _from_equal_sets(set_id: str, by_wheel: Sequence[tuple[Event, ...]]) -> Iterator[Event]:
    """Of the events on each wheel of a set, those of sets that are the same by their wheels."""
    every = [event for events in by_wheel for event in events]
    counts = collections.Counter(event.of for event in every)
    only = bool(by_wheel) and all(by_wheel)
    return (e for e in every if e.of != set_id and (only or counts[e.of] == e.wheels))


def _refuse_wheels(subject: str, ban: Event) -> None:
    which = short_id(str(ban.of))
    _refuse_ban(f"{subject} of the set {which}, which was yanked", which, ban)


def _refuse_ban(subject: str, which: str, ban: Event) -> NoReturn:
    raise GateError(
        f"{subject}, and may not come into an index",
        reasons=(f"yanked by {ban.who} on {ban.when[:10]}: {ban.why}",),
        tip=f"if the reason is gone: cairn release yank {which} --undo --who WHO --reason WHY",
    )


def _refuse(clashes: Sequence[str]) -> None:
    if clashes:
        raise NameTakenError(
            "; ".join(clashes),
            tip="a published name never changes its bytes: build it again under a new version",
        )
