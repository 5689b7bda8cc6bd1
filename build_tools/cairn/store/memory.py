"""A store in memory, and a store that overlays another one."""

from __future__ import annotations

import contextlib
import heapq
import io
import tempfile
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO, NoReturn

from cairn.errors import StoreError
from cairn.store.protocol import (
    ListedObject,
    MissingKeyError,
    ObjectInfo,
    OnBytes,
    Store,
    StoredObject,
    Stray,
    etag_of,
    file_changed_error,
    no_progress,
    valid_key,
)


class MemoryStore:
    """A store that ends with the process.

    Attributes:
        objects: what is stored, by key.
        url: what errors call it; no other process can open it.
        modified: when it was written, by key; what was there from the beginning is as old as the store.
    """

    def __init__(self, objects: Mapping[str, bytes] | None = None, *, url: str = "memory:") -> None:
        self.objects, self.url = dict(objects or {}), url
        self.modified = dict.fromkeys(self.objects, datetime.now(UTC))
        self._lock = threading.Lock()

    def read(self, key: str) -> StoredObject:
        """See `Store.read`."""
        try:
            data = self.objects[valid_key(key)]
        except KeyError as error:
            raise MissingKeyError(f"{self.url} holds no {key}") from error
        return StoredObject(data=data)

    def clock_ahead(self) -> None:
        """See `Store.clock_ahead`."""

    def stat(self, key: str) -> ObjectInfo | None:
        """See `Store.stat`."""
        data = self.objects.get(valid_key(key))
        if data is None:
            return None
        etag = etag_of(data)
        return ObjectInfo(
            key=key,
            size=len(data),
            modified=self.modified[key],
            find_etag=lambda: etag,
            find_sha256=lambda: etag,
        )

    def open(self, key: str, *, start: int = 0, count: int | None = None) -> BinaryIO:
        """See `Store.open`."""
        data = self.read(key).data
        return io.BytesIO(data[start:] if count is None else data[start : start + count])

    def exists(self, key: str) -> bool:
        """See `Store.exists`."""
        return valid_key(key) in self.objects

    def list(self, prefix: str) -> Iterator[ListedObject]:
        """See `Store.list`."""
        with self._lock:
            sizes = [(key, len(data)) for key, data in self.objects.items() if key.startswith(prefix)]
            times = dict(self.modified)
        for key, size in sorted(sizes):
            yield ListedObject(key=key, size=size, modified=times[key])

    def folders(self, prefix: str) -> Iterator[str]:
        """See `Store.folders`."""
        at = len(prefix)
        below = [key for key in list(self.objects) if key.startswith(prefix)]
        yield from sorted({key[at:end] for key in below if (end := key.find("/", at)) >= 0})

    def write(self, key: str, data: bytes) -> None:
        """See `Store.write`."""
        with self._lock:
            self._put(valid_key(key), data)

    def write_if(self, key: str, data: bytes, *, etag: str | None) -> bool:
        """See `Store.write_if`."""
        with self._lock:
            current = self.objects.get(valid_key(key))
            if (None if current is None else etag_of(current)) != etag:
                return False
            self._put(key, data)
        return True

    def put_file(
        self, key: str, source: Path, *, sha256: str | None = None, on_bytes: OnBytes = no_progress
    ) -> bool:
        """See `Store.put_file`."""
        data = source.read_bytes()
        if sha256 is not None and etag_of(data) != sha256:
            raise file_changed_error(source)
        same = self.objects.get(valid_key(key)) == data
        if not same:
            self.write(key, data)
        on_bytes(len(data))
        return not same

    @contextlib.contextmanager
    def as_file(self, key: str, *, on_bytes: OnBytes = no_progress) -> Iterator[Path]:
        """See `Store.as_file`."""
        data = self.read(key).data
        with tempfile.TemporaryDirectory(prefix="cairn-store.") as folder:
            path = Path(folder, key.rpartition("/")[2])
            path.write_bytes(data)
            on_bytes(len(data))
            yield path

    def delete(self, key: str) -> None:
        """See `Store.delete`."""
        with self._lock:
            self.objects.pop(valid_key(key), None)

    def strays(self) -> Iterator[Stray]:
        """See `Store.strays`; there are none."""
        return iter(())

    def discard(self, stray: Stray) -> None:
        """See `Store.discard`."""

    def renew(self, key: str) -> None:
        """See `Store.renew`."""
        with self._lock:
            if valid_key(key) in self.objects:
                self.modified[key] = datetime.now(UTC)

    def _put(self, key: str, data: bytes) -> None:
        self.modified[key] = datetime.now(UTC)
        self.objects[key] = data


class OverlayStore:
    """A store that overlays `below` with other objects, to look at before anything is written.

    Attributes:
        below: the store underneath.
    """

    def __init__(self, below: Store, objects: Mapping[str, bytes]) -> None:
        self.below = below
        self._above = MemoryStore(objects)

    @property
    def url(self) -> str:
        """The URL of the store underneath."""
        return self.below.url

    def read(self, key: str) -> StoredObject:
        """See `Store.read`."""
        return self._of(key).read(key)

    def clock_ahead(self) -> timedelta | None:
        """See `Store.clock_ahead`."""
        return self.below.clock_ahead()

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

    def as_file(
        self, key: str, *, on_bytes: OnBytes = no_progress
    ) -> contextlib.AbstractContextManager[Path]:
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
