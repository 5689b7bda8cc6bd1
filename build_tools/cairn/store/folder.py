"""A store in a folder."""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import io
import operator
import os
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from cairn import files, platforms
from cairn.errors import StoreError
from cairn.store.protocol import (
    ListedObject,
    MissingKeyError,
    ObjectInfo,
    OnBytes,
    StoredObject,
    Stray,
    etag_of,
    file_changed_error,
    is_key,
    no_progress,
    valid_key,
)

_LOCKS = ".locks"

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class LocalStore:
    """A store in a folder, which any web server can serve as it is.

    What is reached through a symbolic link is not in the store, since a link may lead anywhere.

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
        return StoredObject(data=data)

    def clock_ahead(self) -> None:
        """See `Store.clock_ahead`."""

    def stat(self, key: str) -> ObjectInfo | None:
        """See `Store.stat`."""
        path = self._path(key)
        status = self._status(key)
        if status is None:
            return None
        digest = functools.partial(files.sha256_of, path)
        return ObjectInfo(
            key=key,
            size=status.st_size,
            modified=datetime.fromtimestamp(status.st_mtime, UTC),
            find_etag=digest,
            find_sha256=digest,
        )

    def exists(self, key: str) -> bool:
        """See `Store.exists`."""
        return self._status(key) is not None

    def open(self, key: str, *, start: int = 0, count: int | None = None) -> BinaryIO:
        """See `Store.open`."""
        missing = MissingKeyError(f"{self.path} holds no {key}")
        if self._status(key) is None:
            raise missing
        try:
            stream = self._path(key).open("rb")
        except FileNotFoundError:  # it was deleted meanwhile
            raise missing from None
        stream.seek(start)
        return stream if count is None else io.BufferedReader(_Beginning(stream, count))

    def list(self, prefix: str) -> Iterator[ListedObject]:
        """See `Store.list`."""
        folder = prefix.rpartition("/")[0]
        if not self._is_folder(folder):
            return
        visible = _visible_files(self.path / folder, f"{folder}/" if folder else "")
        for key, entry in visible:
            if not key.startswith(prefix):
                continue
            with contextlib.suppress(FileNotFoundError):  # it was deleted meanwhile
                status = entry.stat()
                modified = datetime.fromtimestamp(status.st_mtime, UTC)
                yield ListedObject(key=key, size=status.st_size, modified=modified)

    def folders(self, prefix: str) -> Iterator[str]:
        """See `Store.folders`; a folder that holds nothing is one here."""
        if self._is_folder(prefix.removesuffix("/") or prefix):
            with os.scandir(self.path / prefix) as entries:
                names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
            yield from sorted(name for name in names if is_key(name))

    def write(self, key: str, data: bytes) -> None:
        """See `Store.write`."""
        files.write_bytes(self._place_for(key), data)

    def write_if(self, key: str, data: bytes, *, etag: str | None) -> bool:
        """See `Store.write_if`."""
        path = self._place_for(key)
        # A file system has no conditional write. The lock makes look and write one step for every process
        # that writes this key by `write_if`. Readers need none: a rename replaces the file. The system takes
        # the lock from a process that dies, and what was there stays.
        # Keys share 256 locks: as many files as keys would be left there otherwise.
        lock = self.path / _LOCKS / hashlib.sha256(key.encode()).hexdigest()[:2]
        with files.locked(lock):
            current_etag = etag_of(path.read_bytes()) if self._status(key) is not None else None
            if current_etag != etag:
                return False
            files.write_bytes(path, data)
        return True

    def put_file(
        self, key: str, source: Path, *, sha256: str | None = None, on_bytes: OnBytes = no_progress
    ) -> bool:
        """See `Store.put_file`; no hard link, through which an edit of `source` would edit the store."""
        path, current = self._place_for(key), self.stat(key)
        size = source.stat().st_size
        same = (
            current is not None
            and current.size == size
            and current.sha256 == (sha256 or files.sha256_of(source))
        )
        if not same:
            with files.writing_beside(path) as part:
                files.copy_into(source, part)
                # The copy is asked, not the file: that may change at any moment.
                if sha256 is not None and files.sha256_of(part) != sha256:
                    raise file_changed_error(source)
        on_bytes(size)
        return not same

    @contextlib.contextmanager
    def as_file(self, key: str, *, on_bytes: OnBytes = no_progress) -> Iterator[Path]:  # noqa: ARG002
        """See `Store.as_file`; the store's own file, so it must not be written."""
        if self._status(key) is None:
            raise MissingKeyError(f"{self.path} holds no {key}")
        yield self._path(key)

    def delete(self, key: str) -> None:
        """See `Store.delete`."""
        path = self._own_path(key)
        with contextlib.suppress(NotADirectoryError):
            if path.is_symlink() or not path.is_dir():
                path.unlink(missing_ok=True)

    def renew(self, key: str) -> None:
        """See `Store.renew`."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.utime(self._own_path(key), follow_symlinks=False)

    def strays(self) -> Iterator[Stray]:
        """See `Store.strays`: links, and names that no key has; not our locks, which stay."""
        for path, status in files.statuses(self.path):
            name = path.relative_to(self.path).as_posix()
            if name.startswith(f"{_LOCKS}/") or (is_key(name) and not path.is_symlink()):
                continue
            yield Stray(
                name=name,
                kind="temporary" if files.is_part(path) else "foreign",
                size=status.st_size,
                modified=datetime.fromtimestamp(status.st_mtime, UTC),
            )

    def discard(self, stray: Stray) -> None:
        """See `Store.discard`."""
        (self.path / stray.name).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self.path / valid_key(key)

    def _own_path(self, key: str) -> Path:
        """The path of `key`, for a change.

        Raises:
            StoreError: a link on the way leads out of the store, or to a different key; or no file can have
                such a name.
        """
        place = self.path
        *above, name = valid_key(key).split("/")
        if reason := next(filter(None, map(platforms.here.forbidden, (*above, name))), ""):
            raise StoreError(f"{key[:100]!r} cannot name a file of {self.path}: {reason}")
        for part in above:
            place /= part
            if place.is_symlink():
                raise StoreError(
                    f"{place} is a symbolic link, and what lies behind it is not in the store",
                    tip="move what it leads to into its place",
                )
        return self._path(key)

    def _place_for(self, key: str) -> Path:
        """The path of `key`, for a write.

        Raises:
            StoreError: there is a folder, or a file on the way; see `_own_path` too.
        """
        path = self._own_path(key)
        if path.is_dir() and not path.is_symlink():
            raise StoreError(
                f"{path} is a folder, in the way of an object", tip="see what it holds, and move it"
            )
        for parent in path.parents:
            try:
                # Asked once: a different writer may make the folder between one question and the next.
                status = parent.stat()
            except (FileNotFoundError, NotADirectoryError):
                continue
            if not stat.S_ISDIR(status.st_mode):
                raise StoreError(
                    f"{parent} is a file, in the way of a folder", tip="see what it is, and move it"
                )
            break
        return path

    def _status(self, key: str) -> os.stat_result | None:
        """The status of the plain file under `key`; None where there is none, or a link on the way."""
        status = self._lstat(valid_key(key))
        return status if status is not None and stat.S_ISREG(status.st_mode) else None

    def _is_folder(self, name: str) -> bool:
        """Whether this is a folder of the store, with no link on the way; empty for the store itself."""
        if not name:
            return self.path.is_dir()
        status = self._lstat(name) if is_key(name) else None
        return status is not None and stat.S_ISDIR(status.st_mode)

    def _lstat(self, key: str) -> os.stat_result | None:
        """The status of what is under `key`; None where nothing is, or can be, or a link is on the way."""
        place = str(self.path)
        status = None
        for part in key.split("/"):
            if platforms.here.forbidden(part):
                return None
            place = os.path.join(place, part)  # noqa: PTH118 - five times as fast as a Path, for each file served
            try:
                status = os.lstat(place)
            except (FileNotFoundError, NotADirectoryError):
                return None
            except OSError as error:
                if error.errno == errno.ENAMETOOLONG:
                    return None
                raise
            if stat.S_ISLNK(status.st_mode):
                return None
        return status


class _Beginning(io.RawIOBase):
    """A stream that ends after the next `count` bytes of another one."""

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


def retire(store: LocalStore) -> Path:
    """Move the whole store to a folder beside it, named after the time; return that folder."""
    taken = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    return store.path.rename(store.path.with_name(f"{store.path.name}-until-{taken}"))


def _visible_files(folder: Path | str, prefix: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """The files below a folder and their keys, which begin with `prefix`, in the order of keys."""
    try:
        with os.scandir(folder) as listing:
            entries = [
                (f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name, entry)
                for entry in listing
                if is_key(entry.name)
            ]
    except (FileNotFoundError, NotADirectoryError):
        return
    # All keys below a folder have a slash after its name: `a-b` comes before `a/b`, and `a.b` too.
    for name, entry in sorted(entries, key=operator.itemgetter(0)):
        if name.endswith("/"):
            yield from _visible_files(entry.path, f"{prefix}{name}")
        elif entry.is_file(follow_symlinks=False):
            yield f"{prefix}{name}", entry
