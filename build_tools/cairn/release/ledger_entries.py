"""The entries of the ledger and their encoding, and the first entry for an older store.

The first entry holds what the indexes of an older store still tell. It is made in one step, by the first
command that has something to remember. What no generation tells any more, such as a name whose part was
collected, cannot be known.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Literal

import msgspec
from msgspec import structs

from cairn import datafile
from cairn.errors import CairnError
from cairn.release.index import keys
from cairn.release.index.generation import Generation, IndexSet, digest_of, now, project_of, who
from cairn.release.index.snapshot import Index, Snapshot, read_set, traces
from cairn.store.protocol import Store, read_or_none
from cairn.wheels.wheelset import WheelSet

EventKind = Literal[
    "ban", "lift", "withdraw", "readmit", "record", "answer", "stand", "rebuild", "begin", "end"
]
"""What may be noted of a set: that it was yanked, and no longer is; that a rollback took it off an index, and
somebody lets it in again; that it got a test record, what was said to one, and which failures stand then;
that somebody built it again. Of a whole (`release.wholes`): that it began, and that it is gone for good."""


class Event(datafile.Value, omit_defaults=True):
    """One event in the history of a set: what was done to it, or found out about it.

    Attributes:
        kind: which.
        set_id: the set; of `begin` and `end`, `subject_of` the whole.
        who: who did it.
        when: RFC 3339 in UTC.
        why: the reason, as it was given; empty where none was. Of `stand`, the failures; empty for none. Of
            `rebuild`, what came out differently; empty for nothing.
        index: of `withdraw` and `readmit`, where; None for all of the store. Of `begin` and `end`, the whole.
        record: of `record` and `answer`, the digest of the test record; of `rebuild`, that of the verdict.
        verdict: of a record.
        failures: of a record, how many of its tests failed; None where its bytes cannot be read.
        of, wheels: of `ban`, `lift` and `stand` of a wheel, whose sha256 is the `set_id` then: its set, and
            how many wheels that has.
    """

    kind: EventKind
    set_id: str
    who: str
    when: str
    why: str = ""
    index: str | None = None
    record: str | None = None
    verdict: str | None = None
    failures: int | None = None
    of: str | None = None
    wheels: int | None = None

    @property
    def is_bad(self) -> bool:
        """Whether it is a test record that stands against its set, or that nobody can read."""
        return self.kind == "record" and (self.verdict in (None, "failed") or bool(self.failures))


def with_wheels(event: Event, sets: Iterable[WheelSet]) -> tuple[Event, ...]:
    """Extend an event on sets to their wheels, which may come with other sets too."""
    return (
        event,
        *(
            structs.replace(event, set_id=wheel.sha256, of=wheel_set.id, wheels=len(wheel_set.wheels))
            for wheel_set in sets
            for wheel in wheel_set.wheels
        ),
    )


def subject_of(whole: str) -> str:
    """The id under which the ledger has the events of a whole: an index, the ledger itself, the metadata."""
    return hashlib.sha256(whole.encode()).hexdigest()


def rebuilds_of(history: Iterable[Event]) -> tuple[str, ...]:
    """Who built a set with this history again, and what came out, a sentence for each who did."""
    last = {event.who: event.why for event in history if event.kind == "rebuild"}
    return tuple(
        f"rebuilt by {who} with other bytes: {why}" if why else f"rebuilt identically by {who}"
        for who, why in sorted(last.items())
    )


class Entry(datafile.Value, tag_field="schema", tag="cairn.ledger/1"):
    """One link of the chain; it never changes, and the next one names it as its parent.

    Attributes:
        number: one more than its parent's, from 0.
        parent: sha256 of the bytes of the entry before; None for 0.
        who: who ran the command that made it.
        when: RFC 3339 in UTC.
        names: the files that an index is about to offer, sha256 by name, by scope (`keys.scope_of`).
        events: what was done to sets, or found of them.
    """

    number: int
    parent: str | None
    who: str
    when: str
    names: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)
    events: tuple[Event, ...] = ()


class Head(datafile.Value, tag_field="schema", tag="cairn.ledger-head/1"):
    """The entry up to which the lookups by project and by set are written.

    It may be behind, and says nothing of how many entries there are: whoever reads it asks for the next one.

    Attributes:
        number: of the entry.
        digest: of its bytes.
        lookups: of every key that can be looked up by then the first 8 digits of its sha256, sorted, with a
            space between, so that one that was deleted is missed; one text is read faster than a list.
            None where an older Cairn wrote it: then only the entries count.
    """

    number: int
    digest: str
    lookups: str | None = None


class Names(datafile.Value, tag_field="schema", tag="cairn.ledger-names/1"):
    """The names that entries have of one project in one scope; it can be rebuilt from them.

    Attributes:
        names: file name to sha256.
    """

    names: Mapping[str, str]


class History(datafile.Value, tag_field="schema", tag="cairn.ledger-set/1"):
    """The events that entries have of one set; it can be rebuilt from them.

    Attributes:
        through: the number of the last entry that it has.
        events: from all entries, in their order.
    """

    through: int
    events: tuple[Event, ...]


def has_entry(store: Store, place: tuple[int, str]) -> bool:
    """Whether the ledger of a store has an entry of this number and sha256."""
    blob = read_or_none(store, keys.ledger_entry_key(place[0]))
    return blob is not None and digest_of(blob.data) == place[1]


def first_entry(store: Store) -> Entry:
    """The first entry for the ledger of this store; nothing is written.

    Raises:
        StoreError: the store cannot be listed.
    """
    names: dict[str, dict[str, str]] = {}
    events: dict[str, Event] = {}
    begun: list[Event] = []
    # Where two indexes disagree, what users install from is what a name means.
    for name in sorted(traces(store), key=lambda name: not keys.is_gated(name)):
        index, marked = Index(store, name), set[str]()
        every = list(_generations(index))
        if every:
            event = Event(kind="begin", set_id=subject_of(name), who=who(), when=every[-1].when, index=name)
            begun.append(event)
        for generation in every:
            names_of_scope, state = names.setdefault(keys.scope_of(name), {}), index.at(generation, "")
            for filename, sha256 in _files(state):
                names_of_scope.setdefault(filename, sha256)
            for entry in _sets(state):
                # The newest generation that has a set says whether it is yanked there.
                if entry.set_id not in marked and entry.yanked is not None:
                    events.setdefault(entry.set_id, _ban(entry, generation, name))
                marked.add(entry.set_id)
    bans = [ban for event in events.values() for ban in with_wheels(event, _whole(store, event.set_id))]
    # Nobody knows any more in which order they came.
    records = sorted(_records(store), key=lambda event: datetime.fromisoformat(event.when))
    return Entry(
        number=0,
        parent=None,
        who=who(),
        when=now(),
        names={scope: files for scope, files in names.items() if files},
        events=(*begun, *bans, *records),
    )


def _generations(index: Index) -> Iterator[Generation]:
    """Every state that an index had, newest first; for a damaged index, all that may have been one."""
    try:
        chain = [generation for _, generation in index.chain(index.load())]
    except CairnError:
        items = index.store.list(keys.generations_prefix(index.name))
        numbered = sorted(filter(None, (keys.generation_of(item.key) for item in items)), reverse=True)
        for number, digest in numbered:
            with contextlib.suppress(CairnError):
                yield index.generation(number, digest)
    else:
        yield from chain


def _files(state: Snapshot) -> Iterator[tuple[str, str]]:
    with contextlib.suppress(CairnError):  # `gc` has collected the bins and parts of what was long ago
        for name in state.project_names:
            with contextlib.suppress(CairnError):
                yield from ((file.filename, file.sha256) for file in state.project(name).files)


def _sets(state: Snapshot) -> Iterator[IndexSet]:
    with contextlib.suppress(CairnError):
        for set_id in state.set_ids:
            with contextlib.suppress(CairnError):
                yield state.set(set_id)


def _ban(entry: IndexSet, generation: Generation, index: str) -> Event:
    by = next((e for e in generation.recent if e.action == "yank" and entry.set_id in e.sets), generation)
    return Event(
        kind="ban", set_id=entry.set_id, who=by.who, when=by.when, why=entry.yanked or f"yanked in {index}"
    )


def _whole(store: Store, set_id: str) -> Iterator[WheelSet]:
    with contextlib.suppress(CairnError):  # without its `set.json` nobody knows its wheels
        yield read_set(store, set_id)


def _records(store: Store) -> Iterator[Event]:
    # Few stores are older than their ledger, and every command that changes an index reads this module.
    from cairn.testing import record as test_record  # noqa: PLC0415

    for set_id in store.folders("sets/"):
        for item in store.list(keys.set_key(set_id, "records/")):
            digest = item.key.rpartition("/")[2].removesuffix(".json")
            if digest.endswith(".dsse"):
                continue
            event = Event(kind="record", set_id=set_id, who="", when=now(), record=digest)
            with contextlib.suppress(CairnError):
                test_result = test_record.loads(store.read(item.key).data, name=item.key)
                event = Event(
                    kind="record",
                    set_id=set_id,
                    who="",
                    when=test_result.started,
                    record=digest,
                    verdict=test_result.verdict,
                    failures=test_result.failures,
                )
            yield event


def by_place(names: Mapping[str, Mapping[str, str]]) -> dict[tuple[str, str], dict[str, str]]:
    """Group names by scope and project."""
    by_project: dict[tuple[str, str], dict[str, str]] = {}
    for scope, files in names.items():
        for name, sha256 in files.items():
            by_project.setdefault((scope, project_of(name)), {})[name] = sha256
    return by_project


def ban_of(history: Iterable[Event], of: str | None = None) -> Event | None:
    """The ban in force by a set's history, or by a wheel's for the set `of`; None if there is none."""
    ban = None
    for event in history:
        if event.kind in ("ban", "lift") and event.of == of:
            ban = event if event.kind == "ban" else None
    return ban


def withdrawn_from(history: Iterable[Event], index: str) -> Event | None:
    """The rollback that took a set off an index; None if there is none, or the set was readmitted."""
    moves = [e for e in history if e.kind in ("withdraw", "readmit") and e.index == index]
    return moves[-1] if moves and moves[-1].kind == "withdraw" else None


def standing_of(history: Iterable[Event], of: str | None = None) -> str:
    """The failures that stand against a set with this history; empty for none; `of` as for `ban_of`."""
    stand = (event.why for event in reversed(tuple(history)) if event.kind == "stand" and event.of == of)
    return next(stand, "")


def is_news(event: Event, history: tuple[Event, ...]) -> bool:
    """Whether an event changes what the history of its set says."""
    if event.kind in ("ban", "lift"):
        ban = ban_of(history, event.of)
        return ban is not None if event.kind == "lift" else ban is None or ban.why != event.why
    if event.kind in ("withdraw", "readmit"):
        withdrawal = withdrawn_from(history, event.index or "")
        return (withdrawal is None) == (event.kind == "withdraw")
    if event.kind == "stand":
        return event.why != standing_of(history, event.of)
    told = (event.kind, event.record, event.why)
    return told not in {(entry.kind, entry.record, entry.why) for entry in history}
