"""A store in a folder, and how a store is named on the command line."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import os
import stat
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from cairn import files
from cairn.errors import StoreError, UsageError
from cairn.store.protocol import (
    ListedObject,
    MissingKeyError,
    ObjectInfo,
    Store,
    StoredObject,
    checked,
    etag_of,
)

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


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

    def read(self, key: str) -> StoredObject:
        """See `Store.read`."""
        with self.open(key) as stream:
            data = stream.read()
        return StoredObject(data=data, etag=etag_of(data))

    def stat(self, key: str) -> ObjectInfo | None:
        """See `Store.stat`."""
        path = self._path(key)
        try:
            found = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISREG(found.st_mode):
            return None
        digest = functools.partial(files.sha256_of, path)
        return ObjectInfo(
            key=key,
            size=found.st_size,
            modified=datetime.fromtimestamp(found.st_mtime, UTC),
            find_etag=digest,
            find_sha256=digest,
        )

    def exists(self, key: str) -> bool:
        """See `Store.exists`."""
        return self._path(key).is_file()

    def open(self, key: str, *, start: int = 0, count: int | None = None) -> BinaryIO:
        """See `Store.open`."""
        try:
            stream = self._path(key).open("rb")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise MissingKeyError(f"{self.path} holds no {key}") from error
        stream.seek(start)
        return stream if count is None else io.BufferedReader(_Beginning(stream, count))

    def list(self, prefix: str) -> Iterator[ListedObject]:
        """See `Store.list`."""
        folder = prefix.rpartition("/")[0]
        found = _visible_files(self.path / folder, f"{folder}/" if folder else "")
        for key, entry in sorted((i for i in found if i[0].startswith(prefix)), key=lambda i: i[0]):
            with contextlib.suppress(FileNotFoundError):  # it was deleted meanwhile
                status = entry.stat()
                modified = datetime.fromtimestamp(status.st_mtime, UTC)
                yield ListedObject(key=key, size=status.st_size, modified=modified)

    def write(self, key: str, data: bytes) -> None:
        """See `Store.write`."""
        files.write_bytes(self._path(key), data)

    def write_if(self, key: str, data: bytes, *, etag: str | None) -> bool:
        """See `Store.write_if`."""
        path = self._path(key)
        # A file system has no conditional write. The lock makes look and write one step for every process
        # that writes this key by `write_if`. Readers need none: a rename replaces the file. The system takes
        # the lock from a process that dies, and what was there stays.
        lock = self.path / ".locks" / hashlib.sha256(key.encode()).hexdigest()[:16]
        with files.locked(lock):
            found = etag_of(path.read_bytes()) if path.is_file() else None
            if found != etag:
                return False
            files.write_bytes(path, data)
        return True

    def put_file(self, key: str, source: Path) -> None:
        """See `Store.put_file`; no hard link, through which an edit of `source` would edit the store."""
        files.copy(source, self._path(key))

    @contextlib.contextmanager
    def as_file(self, key: str) -> Iterator[Path]:
        """See `Store.as_file`; the store's own file, so it must not be written."""
        path = self._path(key)
        if not path.is_file():
            raise MissingKeyError(f"{self.path} holds no {key}")
        yield path

    def delete(self, key: str) -> None:
        """See `Store.delete`."""
        self._path(key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self.path / checked(key)


class _Beginning(io.RawIOBase):
    """What comes next in a stream, and no more than `count` bytes of it."""

    def __init__(self, stream: BinaryIO, count: int) -> None:
        self._stream = stream
        self._left = count

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        data = self._stream.read(min(self._left, memoryview(buffer).nbytes))
        memoryview(buffer)[: len(data)] = data
        self._left -= len(data)
        return len(data)

    def close(self) -> None:
        self._stream.close()
        super().close()


def open_store(url: str) -> Store:
    """The store that a user names: a path or `file://…`.

    Raises:
        UsageError: it is a file, names no folder, or has a different scheme; `s3://` is not there yet.
    """
    scheme, separator, rest = url.partition("://")
    scheme = scheme.lower() if separator else ""
    if scheme == "file":
        host, _, path = rest.partition("/")
        if host.lower() not in ("", "localhost") or not path:
            # `file://store` has a host and no path: it would be the current folder.
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


def _visible_files(folder: Path | str, prefix: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """The files below a folder and their keys, which begin with `prefix`."""
    try:
        entries = list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _visible_files(entry.path, f"{prefix}{entry.name}/")
        else:
            yield f"{prefix}{entry.name}", entry
