"""What an entry of the ledger says, and how it is stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from cairn import datafile
from cairn.wheels.wheelset import WheelSet

EventKind = Literal["ban", "lift", "withdraw", "readmit", "record", "answer", "stand"]
"""What may be noted of a set: that it was yanked, and no longer is; that a rollback took it off an index, and
somebody lets it in again; that it got a test record, what was said to one, and which failures stand then."""


class Event(datafile.Value, omit_defaults=True):
    """What was done to a set, or found of it.

    Attributes:
        kind: which.
        set_id: the set.
        who: who did it.
        when: RFC 3339 in UTC.
        why: the reason, as it was given; empty where none was. Of `stand`, the failures; empty for none.
        index: of `withdraw` and `readmit`, where; None for all of the store.
        record: of `record` and `answer`, the digest of the test record.
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
        """Whether it is a test record that speaks against its set, or that nobody can read."""
        return self.kind == "record" and (self.verdict in (None, "failed") or bool(self.failures))


def with_wheels(event: Event, sets: Iterable[WheelSet]) -> tuple[Event, ...]:
    """An event of sets, with what it means for their wheels, which may come with other sets too."""
    return (
        event,
        *(
            msgspec.structs.replace(event, set_id=wheel.sha256, of=one.id, wheels=len(one.wheels))
            for one in sets
            for wheel in one.wheels
        ),
    )


class Entry(datafile.Value, tag_field="schema", tag="cairn.ledger/1"):
    """One link of the chain; it never changes, and the next one names it as its parent.

    Attributes:
        number: one more than its parent's, from 0.
        parent: sha256 of the bytes of the entry before; None for 0.
        who: who ran the command that made it.
        when: RFC 3339 in UTC.
        names: the files that an index is about to offer, sha256 by name, by scope (`chain.scope_of`).
        events: what was done to sets, or found of them.
    """

    number: int
    parent: str | None
    who: str
    when: str
    names: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)
    events: tuple[Event, ...] = ()


class Head(datafile.Value, tag_field="schema", tag="cairn.ledger-head/1"):
    """Up to which entry the ledger can be looked up by project and by set.

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
    """The names that entries have of one project in one scope; it can be made again from them.

    Attributes:
        names: file name to sha256.
    """

    names: Mapping[str, str]


class History(datafile.Value, tag_field="schema", tag="cairn.ledger-set/1"):
    """What entries have of one set; it can be made again from them.

    Attributes:
        through: the number of the last entry that it has.
        events: from all entries, in their order.
    """

    through: int
    events: tuple[Event, ...]


def encode(value: Entry | Head | Names | History) -> bytes:
    """The bytes of a file of the ledger, on one line; the digests in it are of these."""
    return msgspec.json.encode(value) + b"\n"
