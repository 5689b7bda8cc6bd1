"""Reading a channel, and changing the one object that decides what it holds."""

from __future__ import annotations

import hashlib
import random
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from cairn import datafile
from cairn.errors import StoreError, UsageError
from cairn.output import wording
from cairn.release.index import keys
from cairn.release.index.generation import (
    ChannelState,
    ProjectState,
    StagedSet,
    decode_state,
    encode_object,
    encode_state,
)
from cairn.store.protocol import MissingKeyError, Store

Part = TypeVar("Part", ProjectState, StagedSet)

_ID = re.compile(r"[0-9a-f]{4,64}")
# Each attempt that fails means that a different writer got through, so 200 of them need 200 other changes.
_ATTEMPTS = 200
_PAUSE = 0.05  # seconds, at most, before trying again after a different writer was first


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A channel at one moment.

    Attributes:
        channel: the channel it is of.
        state: what it held.
        etag: the name of that state in the store; None while the channel does not exist.
    """

    channel: Channel
    state: ChannelState
    etag: str | None

    def project(self, name: str) -> ProjectState:
        """What the channel offers of a project; an empty state where it has none."""
        digest = self.state.projects.get(name)
        if digest is None:
            return ProjectState(name=name, files=())
        return self.channel.part(digest, ProjectState)

    def projects(self) -> Iterator[ProjectState]:
        """Every project, by name."""
        return (self.project(name) for name in sorted(self.state.projects))

    def set(self, set_id: str) -> StagedSet:
        """A set of the channel.

        Raises:
            StoreError: it has no such set.
        """
        digest = self.state.sets.get(set_id)
        if digest is None:
            raise StoreError(f"{self.channel.name} has no set {set_id}", tip=_sets_there(self.state.sets))
        return self.channel.part(digest, StagedSet)


def whole_id(given: str, source: Snapshot, *others: Snapshot) -> str:
    """The id of the one set that `given` is the beginning of, or all of.

    Args:
        given: at least four digits of a set id.
        source: where the set should be.
        others: where it may be as well.

    Raises:
        StoreError: there is no such set.
        UsageError: it cannot be the beginning of an id, or is that of several sets.
    """
    prefix = given.lower()
    if not _ID.fullmatch(prefix):
        raise UsageError(
            f"{given!r} is neither a set.json nor the id of a set",
            tip=f"give a set.json, or the first digits of an id; {_sets_there(source.state.sets)}",
        )
    found = sorted({name for s in (source, *others) for name in s.state.sets if name.startswith(prefix)})
    if not found and source.etag is None:
        raise missing(source.channel.store, source.channel.name)
    if not found:
        raise StoreError(f"{source.channel.name} has no set {given}", tip=_sets_there(source.state.sets))
    if len(found) > 1:
        raise UsageError(
            f"{given} is the beginning of {len(found)} set ids", tip=f"give more of it: {', '.join(found)}"
        )
    return found[0]


def existing(store: Store) -> tuple[str, ...]:
    """The indexes of a store: what was published into at least once."""
    return tuple(name for name in keys.possible_indexes() if store.exists(keys.state_key(name)))


def missing(store: Store, name: str) -> StoreError:
    """What to raise where an index is asked about that the store does not have."""
    have = ", ".join(existing(store)) or "none"
    return StoreError(f"there is no index {name} at {store.url}", tip=f"the indexes there: {have}")


def _sets_there(sets: Iterable[str]) -> str:
    return f"the sets there: {wording.some(sorted(sets)) or 'none'}"


class Channel:
    """One channel of a store.

    Attributes:
        store: where it lives.
        name: such as `staging` or `release/gfx110X-all`.
    """

    def __init__(self, store: Store, name: str) -> None:
        self.store = store
        self.name = keys.checked_channel(name)
        self._parts: dict[str, ProjectState | StagedSet] = {}
        self._last: Snapshot | None = None

    def load(self) -> Snapshot:
        """The channel as it is now; empty if nothing was ever published."""
        key = keys.state_key(self.name)
        try:
            blob = self.store.read(key)
        except MissingKeyError:
            # The first change of a channel writes its state on condition that there is none (`etag=None`).
            return Snapshot(channel=self, state=ChannelState(), etag=None)
        # Decoding the state of 100,000 files takes longer than reading it, and mostly it has not changed.
        if self._last is None or self._last.etag != blob.etag:
            state = decode_state(blob.data, name=f"{self.store.url}/{key}")
            self._last = Snapshot(channel=self, state=state, etag=blob.etag)
        return self._last

    def part(self, digest: str, cls: type[Part]) -> Part:
        """A part of the state.

        Raises:
            StoreError: its bytes are not those of its digest, or it is not of that class.
        """
        if digest not in self._parts:
            key = keys.object_key(self.name, digest)
            data = self.store.read(key).data
            # Whatever state.json names is checked before it is believed: a part that was edited in the store
            # would otherwise be published by the next change of its project.
            if hashlib.sha256(data).hexdigest() != digest:
                raise StoreError(
                    f"{self.store.url}/{key} was changed", tip="restore it from a copy of the store"
                )
            self._parts[digest] = datafile.loads(data, cls, name=f"{self.store.url}/{key}")
        found = self._parts[digest]
        if not isinstance(found, cls):
            raise StoreError(f"{digest} is not a {cls.__name__} in {self.name}")
        return found

    def put_part(self, value: ProjectState | StagedSet) -> str:
        """Store a part of the state and return its digest; nothing refers to it yet."""
        digest, data = encode_object(value)
        key = keys.object_key(self.name, digest)
        if not self.store.exists(key):  # the key has the digest of the bytes: what is there is the same
            self.store.write(key, data)
        self._parts[digest] = value
        return digest

    def update(self, change: Callable[[Snapshot], ChannelState | None]) -> Snapshot:
        """Change the state, and begin again from what is there whenever a different writer was first.

        Args:
            change: gives the new state of a snapshot, or None where there is nothing to change.

        Raises:
            StoreError: others were first too many times in a row.
        """
        for _ in range(_ATTEMPTS):
            snapshot = self.load()
            changed = change(snapshot)
            if changed is None:
                return snapshot
            # Only if nothing came between: else the change was made from a state that is no longer there, and
            # writing it would undo what the other writer did.
            next_state = msgspec.structs.replace(changed, generation=snapshot.state.generation + 1)
            if self.store.write_if(keys.state_key(self.name), encode_state(next_state), etag=snapshot.etag):
                return self.load()
            time.sleep(random.uniform(0, _PAUSE))  # noqa: S311 - spreads two writers, keeps no secret
        raise StoreError(
            f"others changed {self.name} {_ATTEMPTS} times while this run tried to", tip="run it again"
        )
