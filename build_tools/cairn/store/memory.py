"""A store in memory, for tests: the contract of the others, and free to make, copy and compare."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from cairn.store.protocol import MissingKeyError, StoredObject, checked, etag_of


class MemoryStore:
    """A store that ends with the process.

    Attributes:
        objects: what is stored, by key.
    """

    def __init__(self, objects: Mapping[str, bytes] | None = None) -> None:
        self.objects = dict(objects or {})
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """No other process can open it."""
        return "memory:"

    def read(self, key: str) -> StoredObject:
        """See `Store.read`."""
        try:
            data = self.objects[checked(key)]
        except KeyError as error:
            raise MissingKeyError(f"{self.url} holds no {key}") from error
        return StoredObject(data=data, etag=etag_of(data))

    def open(self, key: str) -> BinaryIO:
        """See `Store.open`."""
        return io.BytesIO(self.read(key).data)

    def exists(self, key: str) -> bool:
        """See `Store.exists`."""
        return checked(key) in self.objects

    def list(self, prefix: str) -> Iterator[str]:
        """See `Store.list`."""
        yield from sorted(key for key in self.objects.copy() if key.startswith(prefix))

    def write(self, key: str, data: bytes) -> None:
        """See `Store.write`."""
        with self._lock:
            self.objects[checked(key)] = data

    def write_if(self, key: str, data: bytes, *, etag: str | None) -> bool:
        """See `Store.write_if`."""
        with self._lock:
            there = self.objects.get(checked(key))
            if (None if there is None else etag_of(there)) != etag:
                return False
            self.objects[key] = data
        return True

    def put_file(self, key: str, source: Path) -> None:
        """See `Store.put_file`."""
        self.write(key, source.read_bytes())

    def delete(self, key: str) -> None:
        """See `Store.delete`."""
        with self._lock:
            self.objects.pop(checked(key), None)
