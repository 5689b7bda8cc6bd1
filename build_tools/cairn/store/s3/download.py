"""Out of a bucket: as a stream that outlives a broken line, or as a file, in parts at once and resumed.

What an interrupted download has brought lies in the cache folder, with a list of the parts that are whole;
the next one of the same bytes gets the others. Nothing of it is believed: the sha256 of the file decides in
the end.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn import files
from cairn.concurrency import side_by_side
from cairn.errors import NetworkError
from cairn.store.protocol import DamagedObjectError, MissingKeyError, ObjectInfo, OnBytes
from cairn.store.s3.client import Answer, Bucket
from cairn.store.s3.errors import PastEndError
from cairn.store.s3.upload import Parts, stat

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_BLOCK = 1 << 20
_LOCK_WAIT = 4 * 3600.0  # seconds
_KEPT = 7 * 24 * 3600.0  # seconds that nobody has gone on with a download


class Stream(io.RawIOBase):
    """An object, or a part of one, read as it comes; where the line breaks, it is asked for the rest.

    Raises:
        MissingKeyError: there is none.
    """

    def __init__(self, bucket: Bucket, key: str, *, start: int, count: int | None) -> None:
        self._bucket, self._key = bucket, key
        self._place = start
        self._end = None if count is None else start + count
        self._etag: str | None = None  # of what was opened: the rest is to be of the same bytes
        self._body: Any = None
        if count == 0:
            self._ended = True
            if stat(bucket, key) is None:
                raise MissingKeyError(f"there is no {bucket.url}/{key}")
            return
        self._ended = False
        bucket.trying(self._ask)

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill the buffer with what comes next; 0 at the end."""
        view = memoryview(buffer).cast("B")

        def once() -> bytes:
            if self._body is None:
                self._ask()
            if self._ended:
                return b""
            try:
                data: bytes = self._bucket.explained(lambda: self._body.read(len(view)), self._key)
            except NetworkError:
                self._body = None
                raise
            return data

        data = b"" if self._ended or not len(view) else self._bucket.trying(once)
        view[: len(data)] = data
        self._place += len(data)
        self._ended = self._ended or not data
        return len(data)

    def close(self) -> None:
        """Give the connection back."""
        if self._body is not None:
            self._body.close()
        super().close()

    def _ask(self) -> None:
        arguments = {} if self._etag is None else {"IfMatch": self._etag}
        if self._place or self._end is not None:
            # The last byte of a range is in it (RFC 9110, section 14.1.2).
            last = "" if self._end is None else str(self._end - 1)
            arguments["Range"] = f"bytes={self._place}-{last}"
        try:
            answer = self._bucket.ask_once("get_object", self._key, **arguments)
        except PastEndError:
            self._ended = True
            return
        self._etag, self._body = answer["ETag"], answer["Body"]


@contextlib.contextmanager
def downloaded(bucket: Bucket, key: str, *, parts: Parts, on_bytes: OnBytes) -> Iterator[Path]:
    """An object as a file of its name, until the block ends.

    Args:
        bucket: where it is.
        key: the object.
        parts: how it travels, if it is big.
        on_bytes: called with how many bytes have arrived more.

    Raises:
        MissingKeyError: there is none.
        DamagedObjectError: its bytes are not those that were put there.
    """
    info = stat(bucket, key)
    if info is None:
        raise MissingKeyError(f"there is no {bucket.url}/{key}")
    root = files.cache_dir() / "downloads"
    root.mkdir(parents=True, exist_ok=True)
    _forget_old(root)
    with tempfile.TemporaryDirectory(dir=root) as folder:
        path = Path(folder, key.rpartition("/")[2])
        if info.size <= parts.size or info.sha256 is None:
            _stream(bucket, info, path, on_bytes)
        else:
            download = Download(bucket=bucket, found=info, parts=parts, folder=root / info.sha256)
            # A different run that downloads the same bytes takes its time.
            with files.locked(root / f"{info.sha256}.lock", timeout=_LOCK_WAIT):
                download.fetch(path, on_bytes)
        yield path


def _stream(bucket: Bucket, info: ObjectInfo, path: Path, on_bytes: OnBytes) -> None:
    digest = hashlib.sha256()
    with Stream(bucket, info.key, start=0, count=None) as stream, path.open("wb") as file:
        while block := stream.read(_BLOCK):
            digest.update(block)
            file.write(block)
            on_bytes(len(block))
    if info.sha256 not in (None, digest.hexdigest()):
        raise DamagedObjectError.of(f"{bucket.url}/{info.key}")


@dataclass(frozen=True, kw_only=True)
class Download:
    """A big object on its way into a file, in parts.

    Attributes:
        bucket: where it is.
        found: what it is.
        parts: how it travels.
        folder: what has arrived: `data`, and `done` with the number of each whole part in a line.
    """

    bucket: Bucket
    found: ObjectInfo
    parts: Parts
    folder: Path

    def fetch(self, path: Path, on_bytes: OnBytes) -> None:
        """Bring it to `path`, with what is in the folder already.

        Raises:
            DamagedObjectError: its bytes are not those that were put there.
        """
        data = self.folder / "data"
        for resumed in (self.folder.exists(), False):
            self._bring_parts(on_bytes)
            if files.sha256_of(data) == self.found.sha256:
                data.replace(path)
                shutil.rmtree(self.folder)
                return
            shutil.rmtree(self.folder)
            if not resumed:
                break  # else what lay there may be at fault: a machine that lost its power, a disk
        raise DamagedObjectError.of(f"{self.bucket.url}/{self.found.key}")

    def _bring_parts(self, on_bytes: OnBytes) -> None:
        self.folder.mkdir(exist_ok=True)
        size, marker = self.parts.size, self.folder / "done"
        whole = {int(line) for line in marker.read_text().split()} if marker.exists() else set()
        with (self.folder / "data").open("ab") as file:
            file.truncate(self.found.size)

        def bring(number: int) -> None:
            start = number * size
            count = min(size, self.found.size - start)
            if number not in whole:
                self.bucket.trying(lambda: self._bring(start, count))
                with marker.open("a") as file:
                    file.write(f"{number}\n")
            on_bytes(count)

        side_by_side(bring, range(-(-self.found.size // size)), jobs=self.parts.jobs)

    def _bring(self, start: int, count: int) -> None:
        answer: Answer = self.bucket.ask_once(
            "get_object",
            self.found.key,
            Range=f"bytes={start}-{start + count - 1}",
            IfMatch=self.found.etag,
        )
        body = answer["Body"]
        with (self.folder / "data").open("r+b") as file, contextlib.closing(body):
            file.seek(start)
            while block := self.bucket.explained(lambda: body.read(_BLOCK), self.found.key):
                file.write(block)


def _forget_old(root: Path) -> None:
    """Remove what a run that was killed left, and no other has gone on with."""
    with os.scandir(root) as listing:
        entries = list(listing)
    for entry in entries:
        with contextlib.suppress(FileNotFoundError):  # a different run removes it
            if time.time() - entry.stat().st_mtime < _KEPT:
                continue
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            elif not entry.name.endswith(".lock"):  # whoever holds it would hold one that others do not see
                Path(entry.path).unlink()
