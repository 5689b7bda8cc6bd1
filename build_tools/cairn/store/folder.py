"""Where an index lives: a handful of operations that a folder and a bucket can both give."""

from __future__ import annotations

import hashlib
import os
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Protocol

from cairn import files
from cairn.errors import StoreError, UsageError


class MissingKeyError(StoreError):
    """Nothing is stored under that key."""


@dataclass(frozen=True, kw_only=True)
class Blob:
    """What is stored under a key.

    Attributes:
        data: all of its bytes.
        etag: an opaque name of exactly these bytes, for `Store.write_if`.
    """

    data: bytes
    etag: str


class Store(Protocol):
    """Objects under `/`-separated keys.

    There is no rename and no lock, because buckets have neither: whoever changes shared state does it
    with `write_if` and begins again when somebody else was first. Every write is whole or does not happen.
    """

    @property
    def url(self) -> str:
        """How a person names this store."""

    def read(self, key: str) -> Blob:
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

        Returns:
            False when somebody else changed it; then nothing was written.
        """

    def put_file(self, key: str, source: Path) -> None:
        """Put the bytes of a local file under `key`."""

    def delete(self, key: str) -> None:
        """Take away the object under `key`, if there is one."""


class LocalStore:
    """A store in a folder, which any web server can serve as it is.

    Attributes:
        path: the folder; it is made by the first write.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    @property
    def url(self) -> str:
        """The folder's path."""
        return str(self.path)

    def read(self, key: str) -> Blob:
        """See `Store.read`."""
        with self.open(key) as stream:
            data = stream.read()
        return Blob(data=data, etag=_etag(data))

    def open(self, key: str) -> BinaryIO:
        """See `Store.open`."""
        try:
            return self._path(key).open("rb")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise MissingKeyError(f"{self.path} holds no {key}") from error

    def exists(self, key: str) -> bool:
        """See `Store.exists`."""
        return self._path(key).is_file()

    def list(self, prefix: str) -> Iterator[str]:
        """See `Store.list`."""
        folder = self.path / prefix.rpartition("/")[0]
        keys = (path.relative_to(self.path).as_posix() for path in _visible_files(folder))
        yield from sorted(key for key in keys if key.startswith(prefix))

    def write(self, key: str, data: bytes) -> None:
        """See `Store.write`."""
        files.write_bytes(self._path(key), data)

    def write_if(self, key: str, data: bytes, *, etag: str | None) -> bool:
        """See `Store.write_if`."""
        path = self._path(key)
        lock = self.path / ".locks" / hashlib.sha256(key.encode()).hexdigest()[:16]
        with files.locked(lock):
            found = _etag(path.read_bytes()) if path.is_file() else None
            if found != etag:
                return False
            files.write_bytes(path, data)
        return True

    def put_file(self, key: str, source: Path) -> None:
        """See `Store.put_file`; no hard link, through which whoever edits `source` would edit the store."""
        files.copy(source, self._path(key))

    def delete(self, key: str) -> None:
        """See `Store.delete`."""
        self._path(key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        # What begins with a dot is a temporary file or a lock, never an object; this also refuses `..`.
        if not key or any(not part or part.startswith(".") or "\0" in part for part in key.split("/")):
            raise StoreError(f"{key!r} cannot name an object of a store")
        return self.path / key


def open_store(url: str) -> Store:
    """The store that a person names: a path or `file://…`.

    Raises:
        UsageError: a file, no folder, or another scheme; `s3://` needs what this version does not have yet.
    """
    scheme, separator, rest = url.partition("://")
    scheme = scheme.lower() if separator else ""
    if scheme == "file":
        host, _, path = rest.partition("/")
        if host.lower() not in ("", "localhost") or not path:
            # `file://store` has a host and no path: it would be the folder one is in.
            raise UsageError(f"{url} names no folder", tip="write file:///… with three slashes, or a path")
        return _local(Path(urllib.request.url2pathname(f"/{path}")))
    if scheme == "s3":
        raise UsageError(
            f"{url}: a store in a bucket needs the s3 extra and is not there yet",
            tip="use a folder, then copy it to the bucket as it is",
        )
    if scheme:
        raise UsageError(f"{url}: a store is a path, file://… or s3://…, not {scheme}://")
    return _local(files.expanded(url))


def _local(path: Path) -> LocalStore:
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path} is a file, not the folder of a store", tip="name a folder with --store")
    return LocalStore(path)


def retire(store: LocalStore) -> Path:
    """Move the whole store to a folder beside it that is named after the time, and return that folder."""
    taken = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    return store.path.rename(store.path.with_name(f"{store.path.name}-until-{taken}"))


def open_existing(url: str) -> LocalStore:
    """Like `open_store`, for commands that only make sense where something was published.

    Raises:
        StoreError: there is no such folder.
    """
    store = open_store(url)
    if not isinstance(store, LocalStore) or not store.path.is_dir():
        raise StoreError(
            f"there is no store at {url}", tip="publish into it first: cairn index publish --store …"
        )
    return store


def _etag(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _visible_files(folder: Path) -> Iterator[Path]:
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(where, name) for name in names if not name.startswith("."))
