"""What was changed in a channel, when, and how it ended: one file a change, kept for people and audits."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Literal

import msgspec

from cairn import datafile
from cairn.release.index import keys
from cairn.release.index.snapshot import Channel
from cairn.store.protocol import MissingKeyError

Kind = Literal["publish", "stage", "promote", "yank"]
Outcome = Literal["open", "done", "undone"]


class Entry(datafile.Value, tag_field="schema", tag="cairn.journal/1"):
    """A change of a channel.

    Attributes:
        id: sorts by time.
        kind: which command asked for it.
        started, finished: RFC 3339 in UTC.
        outcome: `undone` is a change that never reached the state, so that nothing of it can be seen.
        projects: whose pages it writes, in that order.
        sets: the sets it brings.
        note: who and why, where somebody said so.
    """

    id: str
    kind: Kind
    started: str
    projects: tuple[str, ...]
    sets: tuple[str, ...] = ()
    note: str | None = None
    outcome: Outcome = "open"
    finished: str | None = None


def now() -> str:
    """The time as RFC 3339 in UTC with microseconds, as PEP 700 has it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def new_id(kind: Kind, started: str) -> str:
    """An id that no other run chooses and that sorts by time."""
    compact = started.translate(str.maketrans("", "", "-:.Z"))
    return f"{compact}-{kind}-{secrets.token_hex(4)}"


def begin(channel: Channel, entry: Entry) -> None:
    """Record that a change is under way."""
    channel.store.write(keys.open_journal_key(channel.name, entry.id), datafile.dumps(entry).encode())


def end(channel: Channel, entry_id: str, outcome: Outcome) -> None:
    """Record how a change ended.

    A run that recovers may have taken a living writer's change for an abandoned one and recorded it as
    undone; when that writer then commits, `done` is what counts.
    """
    store = channel.store
    open_key, ended_key = (make(channel.name, entry_id) for make in (keys.open_journal_key, keys.journal_key))
    # Another run may end it under our hands; it writes the ended entry before it takes the open one away.
    entry = _read(channel, open_key) or _read(channel, ended_key)
    if entry is None:
        return
    if entry.outcome not in ("done", outcome):
        ended = msgspec.structs.replace(entry, outcome=outcome, finished=now())
        store.write(ended_key, datafile.dumps(ended).encode())
    store.delete(open_key)


def _read(channel: Channel, key: str) -> Entry | None:
    try:
        data = channel.store.read(key).data
    except MissingKeyError:
        return None
    return datafile.loads(data, Entry, name=key)


def under_way(channel: Channel) -> tuple[str, ...]:
    """The ids of changes that have begun and not ended."""
    prefix = keys.open_journal_prefix(channel.name)
    return tuple(key.removeprefix(prefix).removesuffix(".json") for key in channel.store.list(prefix))
