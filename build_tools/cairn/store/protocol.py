"""The protocol of a store, and what all stores share: keys, retries, and how web servers offer each file."""

from __future__ import annotations

import functools
import hashlib
import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO, Literal, Protocol, TypeAlias

import msgspec

from cairn.errors import StoreError

# Of a conditional write, each that fails means that a different writer got through: 200 need 200 others.
_ATTEMPTS = 200
_PAUSE = 0.05  # seconds, at most, before the next attempt


class MissingKeyError(StoreError):
    """There is no object under that key."""


class CredentialsError(StoreError):
    """The server knows the credentials no longer, or never did."""


class DamagedObjectError(StoreError):
    """An object differs from what was put there."""

    @classmethod
    def of(cls, url: str) -> DamagedObjectError:
        """The error for the object at a URL."""
        return cls(f"{url} is not what was put there", tip=_RESTORE)


_RESTORE = "restore it from a copy of the store"
_YOUNG = timedelta(hours=12)  # half of the least that a collector waits
# C0, DEL and C1; and halves of surrogate pairs, as Python reads file names that are not UTF-8.
_NOT_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")

OnBytes: TypeAlias = Callable[[int], None]
"""Called with how many bytes of a file have arrived more, perhaps from several threads."""


def no_progress(_count: int) -> None:
    """An `OnBytes` for callers that show no progress."""


@dataclass(frozen=True, kw_only=True)
class StoredObject:
    """An object with its data.

    Attributes:
        data: all of its bytes.
        bucket_etag: what a bucket calls exactly these bytes; None where that is `etag_of` them.
    """

    data: bytes
    bucket_etag: str | None = None

    @functools.cached_property
    def sha256(self) -> str:
        """The sha256 of its bytes, in hex."""
        return etag_of(self.data)

    @property
    def etag(self) -> str:
        """An opaque name of exactly these bytes, for `Store.write_if`."""
        return self.bucket_etag or self.sha256


@dataclass(frozen=True, kw_only=True, slots=True)  # an audit holds one for each object of a store
class ListedObject:
    """An object in a listing.

    Attributes:
        key: where it is stored.
        size: of its data, in bytes.
        modified: when it was last written, in UTC, by the clock of the store.
    """

    key: str
    size: int
    modified: datetime


@dataclass(frozen=True, kw_only=True)
class ObjectInfo(ListedObject):
    """An object without its data.

    Attributes:
        find_etag: finds `etag`; a folder has to read the file for it, so it does that only when asked.
        find_sha256: finds `sha256`.
    """

    find_etag: Callable[[], str]
    find_sha256: Callable[[], str | None]

    @functools.cached_property
    def etag(self) -> str:
        """See `StoredObject.etag`."""
        return self.find_etag()

    @functools.cached_property
    def sha256(self) -> str | None:
        """The lowercase hex sha256 of its data; None where another program wrote it without one."""
        return self.find_sha256()


class Stray(msgspec.Struct, frozen=True, kw_only=True):
    """Something in a store that no key can name.

    Attributes:
        name: what the store calls it.
        kind: `temporary` is what a writer began and has not finished, or what one that was killed left;
            `foreign` was put there by someone else: hidden files, links, folders of a bucket's console.
        size: in bytes, where the store tells.
        modified: when it was last written or, for an upload, begun.
    """

    name: str
    kind: Literal["temporary", "foreign"]
    size: int
    modified: datetime


class Reader(Protocol):
    """The part of a store that checking needs; every `Store` is one."""

    @property
    def url(self) -> str:
        """The name by which a user knows it."""

    def read(self, key: str) -> StoredObject:
        """The object under `key`.

        Raises:
            MissingKeyError: there is none.
        """


class Store(Protocol):
    """Objects under `/`-separated keys.

    There is no rename and no lock, because buckets have neither: a writer that changes shared state does it
    with `write_if`, and begins again when a different writer was first. A write is whole or does not happen,
    and each reader sees it from then on. Two writes are never one: a writer can die between any two.

    Everything but `url` raises `StoreError`, or its parent's like `NetworkError`, where the store cannot be
    used at all, and `StoreError` for a key that no object can have.
    """

    @property
    def url(self) -> str:
        """The name by which a user knows this store."""

    def read(self, key: str) -> StoredObject:
        """The object under `key`.

        Raises:
            MissingKeyError: there is none.
            DamagedObjectError: a bucket has other bytes than were put there.
        """

    def clock_ahead(self) -> timedelta | None:
        """By how much the clock of the store is ahead of this machine's; None where it is no other clock."""

    def stat(self, key: str) -> ObjectInfo | None:
        """The object under `key` without its data; None where there is none."""

    def exists(self, key: str) -> bool:
        """Whether there is an object under `key`."""

    def open(self, key: str, *, start: int = 0, count: int | None = None) -> BinaryIO:
        """The object under `key`, or a part of it, as a stream to read once from beginning to end.

        Args:
            key: where it is stored.
            start: bytes to leave out at the beginning; with more than there are, the stream is empty.
            count: how many bytes to give at most; None for all that follow.

        Raises:
            MissingKeyError: there is none.
        """

    def list(self, prefix: str) -> Iterator[ListedObject]:
        """The objects whose keys begin with `prefix`, sorted by key."""

    def folders(self, prefix: str) -> Iterator[str]:
        """The different names between `prefix`, empty or ending in `/`, and the next `/` of a key, sorted."""

    def write(self, key: str, data: bytes) -> None:
        """Put `data` under `key`, whatever was there."""

    def write_if(self, key: str, data: bytes, *, etag: str | None) -> bool:
        """Put `data` under `key` if what is there still has `etag` (None: if nothing is there).

        A bucket has this as `If-Match` and `If-None-Match: *` (RFC 9110, section 13.1).

        Returns:
            False when something else is there. That may be what this very call wrote, in an earlier try whose
            reply was lost: the caller finds out by reading.
        """

    def put_file(
        self, key: str, source: Path, *, sha256: str | None = None, on_bytes: OnBytes = no_progress
    ) -> bool:
        """Put the bytes of a local file under `key`; later changes of the file do not reach the store.

        Args:
            key: where it goes.
            source: the file.
            sha256: what it had when it was looked at; None takes it as it is.
            on_bytes: told of the progress.

        Returns:
            False where these bytes are there already, by size and sha256; then nothing was written.

        Raises:
            StoreError: it has a different sha256 by now, and what was there is unchanged; or, while it was
                sent, a different writer put other bytes under the key.
        """

    def as_file(self, key: str, *, on_bytes: OnBytes = no_progress) -> AbstractContextManager[Path]:
        """The object under `key` as a local file to read, of its name, until the block ends.

        Args:
            key: where it is stored.
            on_bytes: told of the progress, where it has to be fetched.

        Raises:
            MissingKeyError: there is none.
            DamagedObjectError: a bucket has other bytes than were put there.
        """

    def delete(self, key: str) -> None:
        """Remove the object under `key`, if there is one."""

    def renew(self, key: str) -> None:
        """Update the modification time of the object under `key`, if there is one; its bytes stay."""

    def strays(self) -> Iterator[Stray]:
        """Everything at the store's location that `list` does not return."""

    def discard(self, stray: Stray) -> None:
        """Remove a stray, if it is still there."""


def write_once(store: Store, key: str, data: bytes) -> bool:
    """Put `data` under a key that never stands for other bytes, such as one with their digest.

    What is there already is left as it is, and replaced where it is something else. A refusal is not believed
    before what is there was read: a server may say that someone was first, and nobody was.

    Returns:
        False where it was there already.
    """
    if store.write_if(key, data, etag=None):
        return True
    try:
        if store.read(key).data == data:
            return False
    except (MissingKeyError, DamagedObjectError):
        pass  # it is written all the same
    store.write(key, data)
    return True


def keep_young(store: Store, key: str) -> bool:
    """Make an object count as just written, unless it was written lately; return whether it is there.

    An object that no generation names is collected once it is old. Whoever finds bytes that it would have
    written, and is about to name them, calls this first: else they may go between its look and its commit.
    """
    info = store.stat(key)
    if info is None or info.modified >= datetime.now(UTC) - _YOUNG:
        return info is not None
    store.renew(key)
    return store.exists(key)


def write_young(store: Store, key: str, data: bytes) -> None:
    """Put `data` as `write_once` does, and have it count as just written, also where it was there already."""
    while not write_once(store, key, data):
        if keep_young(store, key):  # else it was collected just now
            return


def read_or_none(store: Store, key: str) -> StoredObject | None:
    """The object under a key; None where there is none."""
    try:
        return store.read(key)
    except MissingKeyError:
        return None


def read_named(reader: Reader, key: str, sha256: str, *, name: str = "") -> bytes:
    """The bytes of an object that is named by their sha256.

    Args:
        reader: what has the object.
        key: its key.
        sha256: the digest.
        name: stands for it in an error; otherwise its URL does, which is not for what is published.

    Raises:
        MissingKeyError: there is no such object.
        DamagedObjectError: it has other bytes.
    """
    data = reader.read(key).data
    if hashlib.sha256(data).hexdigest() != sha256:
        raise DamagedObjectError(f"{name or f'{reader.url}/{key}'} was changed", tip=_RESTORE)
    return data


def replace(store: Store, key: str, old: StoredObject | None, data: bytes) -> bool:
    """Write an object over the version of it that was read, None for no object.

    Returns:
        False where a different writer was first, and has not written these very bytes.
    """
    if old is not None and old.data == data:
        return True
    if store.write_if(key, data, etag=old.etag if old is not None else None):
        return True
    now = read_or_none(store, key)
    return now is not None and now.data == data


def attempts_at(subject: str) -> Iterator[None]:
    """Yield once for each attempt at a conditional write; the caller leaves the loop after a success.

    Between them lies a short pause of random length, so that two writers do not go on in step.

    Args:
        subject: what is to be written, for the message.

    Raises:
        StoreError: others were first each time.
    """
    for _ in range(_ATTEMPTS):
        yield
        time.sleep(random.uniform(0, _PAUSE))  # noqa: S311 - spreads two writers, keeps no secret
    raise StoreError(
        f"others changed {subject} {_ATTEMPTS} times while this run tried to", tip="run it again"
    )


def file_changed_error(source: Path) -> StoreError:
    """The error for a file that differs from its sha256."""
    return StoreError(
        f"{source} was changed while it was sent",
        tip="send it again when nothing writes to it any more",
    )


def is_key(name: str) -> bool:
    """Whether an object can have this key.

    Not if it is empty, leads out of the store, has a part that begins with a dot (temporary files and locks
    are called so), or a control character, which no bucket takes.
    """
    return not _NOT_TEXT.search(name) and all(part and part[0] != "." for part in name.split("/"))


def valid_key(key: str) -> str:
    """Return `key` if it is a valid key: see `is_key`.

    Raises:
        StoreError: it cannot.
    """
    if not is_key(key):
        reason = ": it has a control character" if _NOT_TEXT.search(key) else ""
        raise StoreError(f"{key!r} cannot name an object of a store{reason}")
    return key


def sha256_of(stream: BinaryIO) -> str:
    """The sha256 of the rest of a stream from `Store.open`, which may be larger than memory."""
    digest = hashlib.sha256()
    while block := stream.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()


def etag_of(data: bytes) -> str:
    """The etag of these bytes in memory and folder stores; buckets have their own."""
    return hashlib.sha256(data).hexdigest()


# A digest in the key says that it never stands for other bytes. So whoever has a copy need not ask again:
# a year is what "for ever" is by custom, and `immutable` (RFC 8246) keeps a browser's reload from asking too.
_FOR_EVER = "public, max-age=31536000, immutable"
# What decides, and what a reader acts on: a cache may keep it, but asks before each use (RFC 9111, 5.2.2.4).
_ASK_FIRST = "no-cache"
# What follows from it and installers read. pip asks again in any case (`Cache-Control: max-age=0`, its
# index/collector.py); for others, and for what stands between, a minute is what a change may be late.
_A_MINUTE = "public, max-age=60"

_HAS_DIGEST = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
    ".toml": "application/toml",
    ".txt": "text/plain; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".metadata": "text/plain; charset=utf-8",
    ".provenance": "application/json",  # of PEP 740, or signed by a key: both are JSON
    ".whl": "application/zip",
    ".zip": "application/zip",
    # Not `Content-Encoding: gzip`: a client would unpack it, and its hash would be of something else.
    ".gz": "application/gzip",
}
_SIMPLE_JSON = "application/vnd.pypi.simple.v1+json"  # PEP 691
_OTHER = "application/octet-stream"


class Headers(msgspec.Struct, frozen=True, kw_only=True):
    """The headers of an object.

    Attributes:
        content_type: `Content-Type`.
        cache_control: `Cache-Control`.
    """

    content_type: str
    cache_control: str


def headers(key: str) -> Headers:
    """The headers of the object under `key`."""
    name = key.rpartition("/")[2]
    kind = _TYPES.get(name[name.rfind(".") :] if "." in name else "", _OTHER)
    if name == "index.json" and "simple" in key.split("/"):
        kind = _SIMPLE_JSON
    if _HAS_DIGEST.search(key):
        return Headers(content_type=kind, cache_control=_FOR_EVER)
    return Headers(content_type=kind, cache_control=_ASK_FIRST if name == "state.json" else _A_MINUTE)
