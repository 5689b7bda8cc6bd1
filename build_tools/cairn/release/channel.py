"""Reading a channel, and changing the one object that decides what it holds."""

from __future__ import annotations

import dataclasses
import hashlib
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from cairn import jsonfile
from cairn.errors import StoreError
from cairn.release import layout
from cairn.release.state import (
    ChannelState,
    ProjectState,
    StagedSet,
    decode_state,
    encode_object,
    encode_state,
)
from cairn.release.store import MissingKeyError, Store

Part = TypeVar("Part", ProjectState, StagedSet)

_ATTEMPTS = 200
_PAUSE = 0.05  # seconds, at most, before trying again after another writer was first


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
            known = ", ".join(sorted(self.state.sets)[:5]) or "none"
            raise StoreError(
                f"{self.channel.name} has no set {set_id}", tip=f"stage it first; sets there: {known}"
            )
        return self.channel.part(digest, StagedSet)


class Channel:
    """One channel of a store.

    Attributes:
        store: where it lives.
        name: such as `staging`.
    """

    def __init__(self, store: Store, name: str) -> None:
        self.store = store
        self.name = layout.checked_channel(name)
        self._parts: dict[str, ProjectState | StagedSet] = {}
        self._last: Snapshot | None = None

    def load(self) -> Snapshot:
        """The channel as it is now; empty if nothing was ever published."""
        key = layout.state_key(self.name)
        try:
            blob = self.store.read(key)
        except MissingKeyError:
            return Snapshot(channel=self, state=ChannelState(), etag=None)
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
            key = layout.object_key(self.name, digest)
            data = self.store.read(key).data
            if hashlib.sha256(data).hexdigest() != digest:
                raise StoreError(
                    f"{self.store.url}/{key} was changed", tip="restore it from a copy of the store"
                )
            self._parts[digest] = jsonfile.loads(data, cls, name=f"{self.store.url}/{key}")
        found = self._parts[digest]
        if not isinstance(found, cls):
            raise StoreError(f"{digest} is no {cls.__name__} in {self.name}")
        return found

    def put_part(self, value: ProjectState | StagedSet) -> str:
        """Store a part of the state and return its digest; nothing refers to it yet."""
        digest, data = encode_object(value)
        key = layout.object_key(self.name, digest)
        if not self.store.exists(key):
            self.store.write(key, data)
        self._parts[digest] = value
        return digest

    def update(self, change: Callable[[Snapshot], ChannelState | None]) -> Snapshot:
        """Change the state, and begin again from what is there whenever another writer was first.

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
            next_state = dataclasses.replace(changed, generation=snapshot.state.generation + 1)
            if self.store.write_if(layout.state_key(self.name), encode_state(next_state), etag=snapshot.etag):
                return self.load()
            time.sleep(random.uniform(0, _PAUSE))  # noqa: S311 - spreads two writers, keeps no secret
        raise StoreError(
            f"others changed {self.name} {_ATTEMPTS} times while this run tried to", tip="run it again"
        )
