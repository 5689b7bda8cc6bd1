"""Stores in which somebody else acts in the worst moment, a reply is lost in it, or a writer dies."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import BinaryIO

import pytest

from cairn.store.memory import MemoryStore
from cairn.store.protocol import StoredObject
from helpers.release import Breaking, Broken


class Meddled(MemoryStore):
    """A copy of a store in which somebody else acts just before a request is done."""

    def __init__(
        self,
        before: MemoryStore,
        act: Callable[[MemoryStore], object],
        *,
        kind: str = "write_if",
        at: str = "^release/state.json",
        first: int = 1,
        times: int = 1,
        after: str = "",
    ) -> None:
        """Have `act` be called with this store.

        Args:
            before: what there is in the beginning.
            act: what somebody else does; it may make requests of its own.
            kind: of the request: `read`, `open`, `write_if` or `delete`.
            at: a regular expression for its key.
            first: which of these requests is the first to be met, from 1.
            times: how many are.
            after: a regular expression; before such a key is written, none counts.
        """
        super().__init__(before.objects)
        self.modified = dict(before.modified)
        self.act, self.kind, self.at = act, kind, at
        self.to_come, self.left, self.after = first - 1, times, after

    def _request(self, kind: str, key: str) -> None:
        if self.after:
            self.after = "" if kind == "write_if" and re.search(self.after, key) else self.after
            return
        if kind != self.kind or not re.search(self.at, key):
            return
        if self.to_come:
            self.to_come -= 1
        elif self.left:
            self.left -= 1
            self.act(self)

    def read(self, key: str) -> StoredObject:
        self._request("read", key)
        return super().read(key)

    def open(self, key: str, *, start: int = 0, count: int | None = None) -> BinaryIO:
        self._request("open", key)
        return super().open(key, start=start, count=count)

    def write_if(self, key: str, data: bytes, *, etag: str | None) -> bool:
        self._request("write_if", key)
        return super().write_if(key, data, etag=etag)

    def delete(self, key: str) -> None:
        self._request("delete", key)
        super().delete(key)


class Forgetful(MemoryStore):
    """A copy of a store that writes a key, and says once that it does not: as where a reply is lost."""

    def __init__(self, before: MemoryStore, *, at: str) -> None:
        super().__init__(before.objects)
        self.at = at
        self.lost = False

    def write_if(self, key: str, data: bytes, *, etag: str | None) -> bool:
        written = super().write_if(key, data, etag=etag)
        if written and key == self.at and not self.lost:
            self.lost = True
            return False
        return written


class Kept(Breaking):
    """A copy of a store that keeps what it held before each of its writes."""

    def __init__(self, before: MemoryStore) -> None:
        super().__init__(before, left=1000)
        self.moments: list[dict[str, bytes]] = []

    def _count(self, key: str) -> None:
        self.moments.append(dict(self.objects))
        super()._count(key)


def dying(
    store: MemoryStore, work: Callable[[MemoryStore], object], *, remembers: bool = False, step: int = 1
) -> Iterator[tuple[int, MemoryStore]]:
    """Do `work` on copies of a store, and die before each of its writes in turn.

    Args:
        store: what there is in the beginning.
        work: what dies.
        remembers: the machine goes on afterwards with what it remembered when it died, so that the work is
            done again up to each of these moments. Else it is done once.
        step: how many writes lie between two of these moments.

    Yields:
        How many writes there were before, and the store as the dead left it.
    """
    kept = Kept(store)
    work(kept)
    for left in range(0, len(kept.moments), step):
        if remembers:
            broken = Breaking(store, left=left)
            with pytest.raises(Broken):
                work(broken)
            yield left, MemoryStore(broken.objects)
        else:
            yield left, MemoryStore(kept.moments[left])
