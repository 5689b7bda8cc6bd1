"""A store with some objects in place of what is in a different one, to look at before anything is written."""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, NoReturn

from cairn.errors import StoreError
from cairn.store.memory import MemoryStore
from cairn.store.protocol import ListedObject, ObjectInfo, OnBytes, Store, StoredObject, Stray, ignored


class OverlayStore:
    """What is in `below`, but for the objects that lie over it; it cannot be written to.

    Attributes:
        below: the store underneath.
    """

    def __init__(self, below: Store, objects: Mapping[str, bytes]) -> None:
        self.below = below
        self._above = MemoryStore(objects)

    @property
    def url(self) -> str:
        """That of the store underneath."""
        return self.below.url

    def read(self, key: str) -> StoredObject:
        """See `Store.read`."""
        return self._of(key).read(key)

    def stat(self, key: str) -> ObjectInfo | None:
        """See `Store.stat`."""
        return self._of(key).stat(key)

    def exists(self, key: str) -> bool:
        """See `Store.exists`."""
        return self._of(key).exists(key)

    def open(self, key: str, *, start: int = 0, count: int | None = None) -> BinaryIO:
        """See `Store.open`."""
        return self._of(key).open(key, start=start, count=count)

    def list(self, prefix: str) -> Iterator[ListedObject]:
        """See `Store.list`."""
        below = (info for info in self.below.list(prefix) if not self._above.exists(info.key))
        return heapq.merge(self._above.list(prefix), below, key=lambda info: info.key)

    def folders(self, prefix: str) -> Iterator[str]:
        """See `Store.folders`."""
        return iter(sorted({*self._above.folders(prefix), *self.below.folders(prefix)}))

    def as_file(self, key: str, *, on_bytes: OnBytes = ignored) -> contextlib.AbstractContextManager[Path]:
        """See `Store.as_file`."""
        return self._of(key).as_file(key, on_bytes=on_bytes)

    def strays(self) -> Iterator[Stray]:
        """See `Store.strays`."""
        return self.below.strays()

    def _refused(self, key: str, *_: object, **__: object) -> NoReturn:
        raise StoreError(f"{key} cannot be changed: this is {self.url} as it will be")

    write = write_if = put_file = delete = renew = _refused

    def discard(self, stray: Stray) -> NoReturn:
        """Refused."""
        self._refused(stray.name)

    def _of(self, key: str) -> Store:
        return self._above if self._above.exists(key) else self.below
