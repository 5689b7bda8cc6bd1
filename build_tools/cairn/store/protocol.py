"""What a store can do, whatever it is made of."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from cairn.errors import StoreError


class MissingKeyError(StoreError):
    """Nothing is stored under that key."""


@dataclass(frozen=True, kw_only=True)
class StoredObject:
    """What is stored under a key.

    Attributes:
        data: all of its bytes.
        etag: an opaque name of exactly these bytes, for `Store.write_if`.
    """

    data: bytes
    etag: str


class Store(Protocol):
    """Objects under `/`-separated keys.

    There is no rename and no lock, because buckets have neither: a writer that changes shared state does it
    with `write_if`, and begins again when a different writer was first. A write is whole or does not happen,
    and each reader sees it from then on. Two writes are never one: a writer can die between any two.
    """

    @property
    def url(self) -> str:
        """How a user names this store."""

    def read(self, key: str) -> StoredObject:
        """The object under `key`.

        Raises:
            MissingKeyError: there is none.
        """

    def open(self, key: str) -> BinaryIO:
        """The object under `key` as a stream, for what may not fit in memory; raises like `read`."""

    def exists(self, key: str) -> bool:
        """Whether there is an object under `key`."""

    def list(self, prefix: str) -> Iterator[str]:
        """The keys that begin with `prefix`, sorted."""

    def write(self, key: str, data: bytes) -> None:
        """Put `data` under `key`, whatever was there."""

    def write_if(self, key: str, data: bytes, *, etag: str | None) -> bool:
        """Put `data` under `key` if what is there still has `etag` (None: if nothing is there).

        A bucket has this as `If-Match` and `If-None-Match: *` (RFC 9110, section 13.1).

        Returns:
            False when a different writer changed it; then nothing was written.
        """

    def put_file(self, key: str, source: Path) -> None:
        """Put the bytes of a local file under `key`; later changes of the file do not reach the store."""

    def delete(self, key: str) -> None:
        """Remove the object under `key`, if there is one."""


def checked(key: str) -> str:
    """`key`, if an object can have it.

    Raises:
        StoreError: it is empty, leads out of the store, or has a part that begins with a dot: temporary files
            and locks are called so.
    """
    if not key or any(not part or part.startswith(".") or "\0" in part for part in key.split("/")):
        raise StoreError(f"{key!r} cannot name an object of a store")
    return key


def sha256_of(stream: BinaryIO) -> str:
    """Of what is left in a stream of `Store.open`, which may be larger than memory."""
    digest = hashlib.sha256()
    while block := stream.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()


def etag_of(data: bytes) -> str:
    """The etag of a store of ours; those of a bucket are its own."""
    return hashlib.sha256(data).hexdigest()
