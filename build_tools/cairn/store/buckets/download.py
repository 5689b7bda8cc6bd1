"""Downloads from a bucket: as a stream that reconnects, or as a file, in parallel parts that can resume.

What an interrupted download has brought lies in the cache folder, with a list of the parts that are whole;
the next one of the same bytes gets the others. None of it is trusted: the sha256 of the whole file is
checked in the end.
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
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from obstore.exceptions import BaseError

from cairn import files
from cairn.concurrency import side_by_side
from cairn.errors import StoreError
from cairn.store.buckets.client import Bucket
from cairn.store.buckets.errors import PastEndError
from cairn.store.protocol import DamagedObjectError, MissingKeyError, ObjectInfo, OnBytes

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from obstore import GetOptions, ObjectMeta, UpdateVersion

SHA256 = "sha256"
"""The name of our metadata: S3 sends it as `x-amz-meta-sha256`."""

_MIB = 1 << 20
# "Amazon S3 multipart upload limits" in Amazon's user guide; what others allow is the same or more.
_MOST_PARTS = 10_000
_LOCK_WAIT = 4 * 3600.0  # seconds
_KEPT = 7 * 24 * 3600.0  # seconds that nobody has gone on with a download


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts in which big files are transferred.

    Attributes:
        size: bytes of a part at least; S3 wants 5 MiB or more, of all but the last.
        jobs: how many at once.
    """

    size: int = 16 * _MIB
    jobs: int = 8  # enough to fill a line, few enough for a small server

    def size_for(self, total: int) -> int:
        """The size of each part but the last, so that `total` bytes need no more parts than are allowed."""
        return max(self.size, -(-total // (_MOST_PARTS * _MIB)) * _MIB)


class Stream(io.RawIOBase):
    """A stream of an object, or of a part of one; after a lost connection, it requests the rest.

    Raises:
        MissingKeyError: there is none.
    """

    def __init__(self, bucket: Bucket, key: str, *, start: int, count: int | None) -> None:
        self._bucket, self._key = bucket, key
        self._place = start
        self._end = None if count is None else start + count
        self._etag: str | None = None  # of what was opened: the rest is to be of the same bytes
        self._body: Iterator[bytes] | None = None
        self._block = memoryview(b"")  # has arrived, and nobody has read it yet
        self._ended = count == 0
        if not self._ended:
            bucket.request(self._ask, key)
        elif stat(bucket, key) is None:
            raise MissingKeyError(f"there is no {bucket.url}/{key}")

    def readable(self) -> bool:
        """Always true."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill the buffer with the next bytes; return 0 at the end."""
        view = memoryview(buffer).cast("B")
        if not self._block and not self._ended and len(view):
            self._block = self._bucket.request(self._next, self._key)
            self._ended = not self._block
        count = min(len(view), len(self._block))
        view[:count], self._block = self._block[:count], self._block[count:]
        self._place += count
        return count

    def _next(self) -> memoryview:
        """The next block, empty at the end."""
        if self._body is None:
            self._ask()
        try:
            return memoryview(next(self._body or iter(()), b""))
        except BaseError:
            self._body = None
            raise

    def _ask(self) -> None:
        options: GetOptions = {} if self._etag is None else {"if_match": self._etag}
        if self._end is not None:
            options["range"] = (self._place, self._end)
        elif self._place:
            options["range"] = {"offset": self._place}
        try:
            answer = self._bucket.explained(
                lambda: self._bucket.objects.get(self._key, options=options), self._key
            )
        except PastEndError:
            self._body = iter(())
            return
        self._etag, self._body = answer.meta["e_tag"], iter(answer.stream(min_chunk_size=_MIB))


@contextlib.contextmanager
def downloaded(bucket: Bucket, key: str, *, parts: Parts, on_bytes: OnBytes) -> Iterator[Path]:
    """Download an object to a file of its name, which lasts until the block ends.

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
            download = Download(bucket=bucket, info=info, parts=parts, folder=root / info.sha256)
            # A different run that downloads the same bytes takes its time.
            with files.locked(root / f"{info.sha256}.lock", timeout=_LOCK_WAIT):
                download.fetch(path, on_bytes)
        yield path


def _stream(bucket: Bucket, info: ObjectInfo, path: Path, on_bytes: OnBytes) -> None:
    digest = hashlib.sha256()
    with Stream(bucket, info.key, start=0, count=None) as stream, path.open("wb") as file:
        while block := stream.read(_MIB):
            digest.update(block)
            file.write(block)
            on_bytes(len(block))
    if info.sha256 not in (None, digest.hexdigest()):
        raise DamagedObjectError.of(f"{bucket.url}/{info.key}")


class Download(msgspec.Struct, frozen=True, kw_only=True):
    """A download of a big object to a file, in parts.

    Attributes:
        bucket: where it is.
        info: what it is.
        parts: how it travels.
        folder: what has arrived: `data`, and `done` with the number of each whole part in a line.
    """

    bucket: Bucket
    info: ObjectInfo
    parts: Parts
    folder: Path

    def fetch(self, path: Path, on_bytes: OnBytes) -> None:
        """Download the object to `path`, reusing the parts in the folder.

        Raises:
            DamagedObjectError: its bytes are not those that were put there.
        """
        data = self.folder / "data"
        for resumed in (self.folder.exists(), False):
            self._bring_parts(on_bytes)
            if files.sha256_of(data) == self.info.sha256:
                data.replace(path)
                shutil.rmtree(self.folder)
                return
            shutil.rmtree(self.folder)
            if not resumed:
                break  # else what lay there may be at fault: a machine that lost its power, a disk
        raise DamagedObjectError.of(f"{self.bucket.url}/{self.info.key}")

    def _bring_parts(self, on_bytes: OnBytes) -> None:
        self.folder.mkdir(exist_ok=True)
        size, marker = self.parts.size, self.folder / "done"
        # A machine that lost its power may have left anything: a line that is no number says nothing.
        lines = marker.read_bytes().split() if marker.exists() else []
        whole = {int(line) for line in lines if line.isdigit()}
        with (self.folder / "data").open("ab") as file:
            file.truncate(self.info.size)

        def bring(number: int) -> None:
            start = number * size
            count = min(size, self.info.size - start)
            if number not in whole:
                self.bucket.request(lambda: self._bring(start, count), self.info.key)
                with marker.open("a") as file:
                    file.write(f"{number}\n")
            on_bytes(count)

        side_by_side(bring, range(-(-self.info.size // size)), jobs=self.parts.jobs)

    def _bring(self, start: int, count: int) -> None:
        options: GetOptions = {"range": (start, start + count)}
        options["version" if self.bucket.scheme == "gs" else "if_match"] = self.info.etag
        with (self.folder / "data").open("r+b") as file:
            file.seek(start)
            for block in self.bucket.objects.get(self.info.key, options=options).stream(min_chunk_size=_MIB):
                file.write(block)


def _forget_old(root: Path) -> None:
    """Remove what killed runs left behind and no other run has resumed."""
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


def stat(bucket: Bucket, key: str) -> ObjectInfo | None:
    """See `Store.stat`."""
    try:
        answer = bucket.request(lambda: bucket.objects.get(key, options={"head": True}), key)
    except MissingKeyError:
        return None
    except StoreError:
        # An answer to HEAD has no body: that to GET says why, such as that the credentials have expired.
        bucket.request(lambda: bucket.objects.get_range(key, start=0, length=1), key)
        raise
    meta, sha256 = answer.meta, answer.attributes.get(SHA256)
    return ObjectInfo(
        key=key,
        size=meta["size"],
        modified=meta["last_modified"],
        find_etag=lambda: etag_of(bucket, meta),
        find_sha256=lambda: sha256,
    )


def etag_of(bucket: Bucket, meta: ObjectMeta) -> str:
    """The version of an object for a condition.

    Google's conditions are of its generation. Of an ETag, Amazon takes the text with and without its quotes,
    and Ceph 16 compares the text, which it has without.
    """
    if bucket.scheme == "gs":
        return meta["version"] or ""
    etag = meta["e_tag"] or ""
    # A weak one, as a proxy makes it, would never match: the bytes have the strong one of the same text.
    return etag.removeprefix("W/").strip('"') if bucket.scheme == "s3" else etag


def version_of(bucket: Bucket, etag: str) -> UpdateVersion:
    """The condition that an object still has the version that `etag_of` returned."""
    return {"version": etag} if bucket.scheme == "gs" else {"e_tag": etag}
