"""A store in a bucket.

Small files travel in one request, with a condition. Big ones travel in parts, several at once, which no
protocol lets have a condition through obstore; so what is there is looked at again before the last step. An
upload that fails is taken back. One that was killed leaves its parts to a rule of the bucket that aborts
incomplete uploads, and is sent anew: at 1 Gbit/s, that is five seconds for a torch wheel of 540 MB.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import secrets
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from obstore.exceptions import BaseError

from cairn import files
from cairn.errors import NetworkError, StoreError
from cairn.retry import retrying
from cairn.store.buckets import download
from cairn.store.buckets.client import Bucket
from cairn.store.buckets.download import SHA256, Parts
from cairn.store.buckets.errors import ChangedError
from cairn.store.protocol import (
    DamagedObjectError,
    ListedObject,
    MissingKeyError,
    ObjectInfo,
    OnBytes,
    StoredObject,
    Stray,
    file_changed_error,
    headers,
    is_key,
    no_progress,
    valid_key,
)

if TYPE_CHECKING:
    from obstore import GetResult, ListStream, ObjectMeta, PutMode

_PASSED = ".conditional-writes"
"""The object that notes that a server does what conditional writes ask."""
_RENEWED = ".renewed."
"""The prefix of the temporary copies that `renew` makes."""

_MOST_COPIED = 5 << 30  # bytes that one request copies
_BLOCK = 1 << 20  # bytes that are asked of a stream at once
_PAGE = 1000  # objects that a request lists
_NEVER = "0" * 32  # the ETag of no object


class BucketStore:
    """A store in a bucket, or below a prefix in one.

    Every object that it writes carries its sha256 as metadata, since an ETag is a digest of the bytes only
    where they came in one piece and are encrypted by nobody.

    Attributes:
        bucket: where it is.
        parts: how big files travel.
    """

    def __init__(self, bucket: Bucket, *, parts: Parts | None = None) -> None:
        self.bucket = bucket
        self.parts = parts or Parts()
        self._lock = threading.Lock()
        self._tried = False  # whether conditional writes are known to work

    @property
    def url(self) -> str:
        """`s3://bucket/prefix`."""
        return self.bucket.url

    def read(self, key: str) -> StoredObject:
        """See `Store.read`."""
        valid_key(key)

        def once() -> tuple[GetResult, bytes]:
            answer = self.bucket.objects.get(key)
            return answer, bytes(answer.bytes())

        answer, data = self.bucket.request(once, key)
        expected = answer.attributes.get(SHA256)
        if expected is not None and hashlib.sha256(data).hexdigest() != expected:
            raise DamagedObjectError.of(f"{self.url}/{key}")
        return StoredObject(data=data, bucket_etag=download.etag_of(self.bucket, answer.meta))

    def clock_ahead(self) -> timedelta | None:
        """See `Store.clock_ahead`: asked once, by when the server says that an object was written."""
        return self._clock_ahead

    @functools.cached_property
    def _clock_ahead(self) -> timedelta | None:
        trial = f"{_PASSED}.{secrets.token_hex(8)}"
        try:
            self._put(trial, b"", "overwrite")
            before, info = datetime.now(UTC), download.stat(self.bucket, trial)
        finally:
            self._delete(trial)
        return info.modified - before if info else None

    def stat(self, key: str) -> ObjectInfo | None:
        """See `Store.stat`."""
        return download.stat(self.bucket, valid_key(key))

    def exists(self, key: str) -> bool:
        """See `Store.exists`."""
        return self.stat(key) is not None

    def open(self, key: str, *, start: int = 0, count: int | None = None) -> BinaryIO:
        """See `Store.open`; where the line breaks, it goes on from there."""
        stream = download.Stream(self.bucket, valid_key(key), start=start, count=count)
        return io.BufferedReader(stream, _BLOCK)

    def list(self, prefix: str) -> Iterator[ListedObject]:
        """See `Store.list`; a request for each thousand, of all that lies in the prefix's folder."""
        for item in self._contents(prefix.rpartition("/")[0]):
            key = item["path"]
            if key.startswith(prefix) and is_key(key) and not self._is_folder(item):
                yield ListedObject(key=key, size=item["size"], modified=item["last_modified"])

    def folders(self, prefix: str) -> Iterator[str]:
        """See `Store.folders`; a request for each thousand."""
        place = prefix.removesuffix("/")
        if place and not is_key(place):
            return
        answer = self.bucket.request(lambda: self.bucket.objects.list_with_delimiter(place or None), None)
        names = (path.removeprefix(prefix) for path in answer["common_prefixes"])
        yield from sorted(filter(is_key, names))

    def write(self, key: str, data: bytes) -> None:
        """See `Store.write`."""
        self._put(valid_key(key), data, "overwrite")

    def write_if(self, key: str, data: bytes, *, etag: str | None) -> bool:
        """See `Store.write_if`."""
        valid_key(key)
        with self._lock:
            if not self._tried:
                if self.bucket.scheme == "s3" and download.stat(self.bucket, _PASSED) is None:
                    self.require_conditions()
                    self._put(_PASSED, b"", "overwrite")
                self._tried = True
        return self._put_if(key, data, etag)

    def put_file(
        self, key: str, source: Path, *, sha256: str | None = None, on_bytes: OnBytes = no_progress
    ) -> bool:
        """See `Store.put_file`."""
        valid_key(key)
        size, digest = source.stat().st_size, files.sha256_of(source)
        if sha256 not in (None, digest):
            raise file_changed_error(source)
        for _ in range(self.bucket.policy.attempts):
            current = self.stat(key)
            if current is not None and (current.size, current.sha256) == (size, digest):
                on_bytes(size)
                return False
            try:
                self._send(key, source, digest, on_bytes, mode="create" if current is None else "overwrite")
            except ChangedError as error:
                if self.exists(key) and not self._holds(key, digest):
                    message = f"{self.url}/{key} was written by someone else, with other bytes"
                    raise StoreError(message) from error
                continue  # what stood in the way has gone again
            return True
        raise StoreError(f"{self.url}/{key}: the server says that it is there, and it is not")

    @contextlib.contextmanager
    def as_file(self, key: str, *, on_bytes: OnBytes = no_progress) -> Iterator[Path]:
        """See `Store.as_file`; downloaded, with what an interrupted download brought before."""
        with download.downloaded(self.bucket, valid_key(key), parts=self.parts, on_bytes=on_bytes) as path:
            yield path

    def delete(self, key: str) -> None:
        """See `Store.delete`."""
        self._delete(valid_key(key))

    def renew(self, key: str) -> None:
        """See `Store.renew`: written again if it is small, else copied, which a bucket does not onto itself.

        A big object is copied aside and back, so only one whose key has its digest may be written meanwhile.
        A bucket copies up to 5 GiB; a larger object stays as old as it is.
        """
        current = self.stat(key)
        if current is None or current.size > _MOST_COPIED:
            return
        with contextlib.suppress(MissingKeyError, DamagedObjectError):  # it has gone, or is to go
            if current.size <= self.parts.size:
                data = self.read(key).data
                self._put_if(key, data, current.etag)  # if not, somebody has just written it
                return
            aside = f"{_RENEWED}{secrets.token_hex(8)}"
            try:
                for source, target in ((key, aside), (aside, key)):
                    self.bucket.request(functools.partial(self.bucket.objects.copy, source, target), key)
            finally:
                self._delete(aside)

    def strays(self) -> Iterator[Stray]:
        """See `Store.strays`; uploads under way are not seen through obstore."""
        for item in self._contents(""):
            key = item["path"]
            if key != _PASSED and (not is_key(key) or self._is_folder(item)):
                ours = key.startswith((_RENEWED, f"{_PASSED}."))
                yield Stray(
                    name=key,
                    kind="temporary" if ours else "foreign",
                    size=item["size"],
                    modified=item["last_modified"],
                )

    def discard(self, stray: Stray) -> None:
        """See `Store.discard`."""
        self._delete(stray.name)

    def _send(self, key: str, source: Path, sha256: str, on_bytes: OnBytes, *, mode: PutMode) -> None:
        if source.stat().st_size > self.parts.size:
            self._send_parts(key, source, sha256, on_bytes)
            return
        data = source.read_bytes()
        if hashlib.sha256(data).hexdigest() != sha256:
            raise file_changed_error(source)
        try:
            self._put(key, data, mode)
        except ChangedError:
            if not self._holds(key, sha256):  # else it has arrived, and the reply was lost
                raise
        on_bytes(len(data))

    def _send_parts(self, key: str, source: Path, sha256: str, on_bytes: OnBytes) -> None:
        total = source.stat().st_size
        about = _about(key, sha256)
        size = self.parts.size_for(total)
        reported = set[int]()  # a second try sends the same pieces again

        def once() -> None:
            left = threading.Event()
            pieces = _pieces(source, size, sha256, on_bytes, reported, left)
            try:
                self.bucket.explained(
                    lambda: self.bucket.patient.put(
                        key, pieces, attributes=about, chunk_size=size, max_concurrency=self.parts.jobs
                    ),
                    key,
                )
            except (NetworkError, ChangedError):
                # It may be complete all the same: then to ask again is answered by "no such upload".
                if not self._holds(key, sha256):
                    raise
            finally:
                left.set()  # interrupted: obstore asks for no further piece, and takes back what it sent

        retrying(once, retry=self.bucket.policy, say=self.bucket.say)
        if not self._holds(key, sha256):
            raise ChangedError(f"{self.url}/{key} was changed meanwhile")

    def _holds(self, key: str, sha256: str) -> bool:
        info = self.stat(key)
        return info is not None and info.sha256 == sha256

    def _put(self, key: str, data: bytes, mode: PutMode) -> None:
        about = _about(key, hashlib.sha256(data).hexdigest())
        self.bucket.request(
            lambda: self.bucket.objects.put(key, data, attributes=about, mode=mode, use_multipart=False), key
        )

    def _put_if(self, key: str, data: bytes, etag: str | None) -> bool:
        try:
            self._put(key, data, "create" if etag is None else download.version_of(self.bucket, etag))
        except (ChangedError, MissingKeyError):  # nothing to match: 404 from Amazon, 412 from Ceph
            return False
        return True

    def _delete(self, key: str) -> None:
        with contextlib.suppress(MissingKeyError):  # Azure says so, where others say nothing
            self.bucket.request(lambda: self.bucket.objects.delete(key), key)

    def require_conditions(self) -> None:
        """Check that the server honours conditional writes: otherwise two writers at once would lose changes.

        Older servers, and some gateways in front of other storage, take `If-Match` and `If-None-Match: *` on
        a write and pay no attention. So they are tried once for each store, on a key that is then removed.

        Raises:
            StoreError: they do not work.
        """
        trial = f"{_PASSED}.{secrets.token_hex(8)}"
        self._put(trial, b"1", "overwrite")
        try:
            for header, etag in (("If-None-Match", None), ("If-Match", _NEVER)):
                if self._put_if(trial, b"2", etag):
                    raise StoreError(
                        f"{self.bucket.endpoint} ignores {header}: two writers at once would lose changes",
                        tip="use a server with conditional writes, or a newer version of this one",
                    )
        finally:
            self._delete(trial)

    def _contents(self, folder: str) -> Iterator[ObjectMeta]:
        """List a folder and everything below; after a lost connection, resume where it stopped."""
        if folder and not is_key(folder):
            return
        pages: ListStream[Sequence[ObjectMeta]] | None = None
        last: str | None = None

        def page() -> Sequence[ObjectMeta]:
            nonlocal pages
            pages = pages or self.bucket.objects.list(folder or None, offset=last, chunk_size=_PAGE)
            try:
                return next(pages, ())
            except BaseError:
                pages = None
                raise

        while items := self.bucket.request(page, None):
            yield from items
            last = items[-1]["path"]

    def _is_folder(self, item: ObjectMeta) -> bool:
        """Whether a console created it as a folder: an empty object, shown by obstore without its slash."""
        return item["size"] == 0 and not (item["path"] and self.exists(item["path"]))


def _pieces(
    source: Path, size: int, sha256: str, on_bytes: OnBytes, reported: set[int], left: threading.Event
) -> Iterator[bytes]:
    """Yield a file's bytes to upload; if they do not match the sha256, obstore aborts the upload.

    It does the same once nobody waits for the upload any more: `left` is set then.
    """
    digest = hashlib.sha256()
    with source.open("rb") as file:
        while piece := file.read(size):
            digest.update(piece)
            if left.is_set():
                raise InterruptedError(f"nobody waits for {source.name} any more")
            yield piece
            if file.tell() not in reported:
                reported.add(file.tell())
                on_bytes(len(piece))
    if digest.hexdigest() != sha256:
        raise file_changed_error(source)


def _about(key: str, sha256: str) -> dict[str, str]:
    """The attributes to store with an object, whether it is sent in one piece or in parts."""
    fields = headers(key)
    return {"Content-Type": fields.content_type, "Cache-Control": fields.cache_control, SHA256: sha256}
