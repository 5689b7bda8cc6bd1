"""A store in a bucket."""

from __future__ import annotations

import contextlib
import hashlib
import io
import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from cairn import files
from cairn.errors import StoreError
from cairn.store.protocol import (
    DamagedObjectError,
    ListedObject,
    MissingKeyError,
    ObjectInfo,
    OnBytes,
    StoredObject,
    Stray,
    changed,
    checked,
    ignored,
)
from cairn.store.s3 import conditions, download, upload
from cairn.store.s3.client import Answer, Bucket
from cairn.store.s3.errors import ChangedError

_MOST_COPIED = 5 << 30  # bytes that one request copies
_BLOCK = 1 << 20  # bytes that are asked of a stream at once
_UPLOAD = "?uploadId="  # between the key of an upload under way and its id


class BucketStore:
    """A store in a bucket, or below a prefix in one.

    Every object that it writes carries its sha256 as metadata, since an ETag is a digest of the bytes only
    where they came in one piece and are encrypted by nobody.

    Attributes:
        bucket: where it is.
        parts: how big files travel.
    """

    def __init__(self, bucket: Bucket, *, parts: upload.Parts | None = None) -> None:
        self.bucket = bucket
        self.parts = parts or upload.Parts()
        self._lock = threading.Lock()
        self._tried = False  # whether conditional writes are known to work

    @property
    def url(self) -> str:
        """`s3://bucket/prefix`."""
        return self.bucket.url

    def read(self, key: str) -> StoredObject:
        """See `Store.read`."""
        checked(key)

        def once() -> tuple[Answer, bytes]:
            answer = self.bucket.ask_once("get_object", key)
            return answer, self.bucket.explained(answer["Body"].read, key)

        answer, data = self.bucket.trying(once)
        expected = answer["Metadata"].get(upload.SHA256)
        if expected is not None and hashlib.sha256(data).hexdigest() != expected:
            raise DamagedObjectError.of(f"{self.url}/{key}")
        return StoredObject(data=data, etag=upload.bare(answer["ETag"]))

    def stat(self, key: str) -> ObjectInfo | None:
        """See `Store.stat`."""
        return upload.stat(self.bucket, checked(key))

    def exists(self, key: str) -> bool:
        """See `Store.exists`."""
        return self.stat(key) is not None

    def open(self, key: str, *, start: int = 0, count: int | None = None) -> BinaryIO:
        """See `Store.open`; where the line breaks, it goes on from there."""
        stream = download.Stream(self.bucket, checked(key), start=start, count=count)
        return io.BufferedReader(stream, _BLOCK)

    def list(self, prefix: str) -> Iterator[ListedObject]:
        """See `Store.list`; a request for each thousand."""
        for entry in self._contents(prefix):
            if not _hidden(entry.key):
                yield entry

    def folders(self, prefix: str) -> Iterator[str]:
        """See `Store.folders`; a request for each thousand."""
        for answer in self._answers(prefix, Delimiter="/"):
            for item in answer.get("CommonPrefixes", ()):
                name = item["Prefix"][len(self.bucket.prefix) + len(prefix) :].rstrip("/")
                if not _hidden(name):
                    yield name

    def write(self, key: str, data: bytes) -> None:
        """See `Store.write`."""
        self.bucket.ask("put_object", checked(key), **upload.put(key, data))

    def write_if(self, key: str, data: bytes, *, etag: str | None) -> bool:
        """See `Store.write_if`."""
        checked(key)
        with self._lock:
            if not self._tried:
                conditions.require(self.bucket)
                self._tried = True
        condition = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}
        try:
            self.bucket.ask("put_object", key, **upload.put(key, data), **condition)
        except (ChangedError, MissingKeyError):  # nothing to match: 404 from Amazon, 412 from Ceph
            return False
        return True

    def put_file(
        self, key: str, source: Path, *, sha256: str | None = None, on_bytes: OnBytes = ignored
    ) -> bool:
        """See `Store.put_file`."""
        checked(key)
        before = source.stat()
        digest = files.sha256_of(source)
        if sha256 not in (None, digest):
            raise changed(source)
        sha256 = digest
        for _ in range(self.bucket.policy.attempts):
            current = self.stat(key)
            if current is not None and (current.size, current.sha256) == (before.st_size, sha256):
                on_bytes(before.st_size)
                return False
            sending = upload.Upload(
                bucket=self.bucket,
                key=key,
                source=source,
                size=before.st_size,
                sha256=sha256,
                new=current is None,
                parts=self.parts,
                on_bytes=on_bytes,
            )
            try:
                sending.send()
            except ChangedError as error:
                if self.exists(key) and not sending.arrived():
                    message = f"{self.url}/{key} was written by someone else, with other bytes"
                    raise StoreError(message) from error
                continue  # ours has arrived, or what stood in the way has gone again
            after = source.stat()
            if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
                self.delete(key)  # it is neither what the file was nor what it is
                raise changed(source)
            return True
        raise StoreError(f"{self.url}/{key}: the server says that it is there, and it is not")

    @contextlib.contextmanager
    def as_file(self, key: str, *, on_bytes: OnBytes = ignored) -> Iterator[Path]:
        """See `Store.as_file`; downloaded, with what an interrupted download brought before."""
        with download.downloaded(self.bucket, checked(key), parts=self.parts, on_bytes=on_bytes) as path:
            yield path

    def delete(self, key: str) -> None:
        """See `Store.delete`."""
        self.bucket.ask("delete_object", checked(key))

    def renew(self, key: str) -> None:
        """See `Store.renew`: a copy onto itself, for which a bucket asks that the metadata is said again.

        It does so up to 5 GiB; a larger object stays as old as it is.
        """
        current = self.stat(key)
        if current is None or current.size > _MOST_COPIED:
            return
        with contextlib.suppress(ChangedError, MissingKeyError):  # then somebody has just written it
            self.bucket.ask(
                "copy_object",
                key,
                CopySource={"Bucket": self.bucket.name, "Key": f"{self.bucket.prefix}{key}"},
                CopySourceIfMatch=current.etag,
                MetadataDirective="REPLACE",
                **upload.about(key, current.sha256),
            )

    def strays(self) -> Iterator[Stray]:
        """See `Store.strays`."""
        for entry in self._contents(""):
            if _hidden(entry.key) and entry.key != conditions.PASSED:
                yield Stray(name=entry.key, kind="foreign", size=entry.size, modified=entry.modified)
        for name, begun in upload.under_way(self.bucket, ""):
            yield Stray(name=_UPLOAD.join(name), kind="temporary", size=0, modified=begun)

    def discard(self, stray: Stray) -> None:
        """See `Store.discard`."""
        if stray.kind == "temporary":
            key, _, upload_id = stray.name.rpartition(_UPLOAD)
            upload.abort(self.bucket, key, upload_id)
        else:
            self.bucket.ask("delete_object", stray.name)

    def _contents(self, prefix: str) -> Iterator[ListedObject]:
        ours = len(self.bucket.prefix)
        for answer in self._answers(prefix):
            for item in answer.get("Contents", ()):
                modified: datetime = item["LastModified"]
                yield ListedObject(key=item["Key"][ours:], size=item["Size"], modified=modified)

    def _answers(self, prefix: str, **parameters: str) -> Iterator[dict[str, Any]]:
        """The pages of a listing, each of a thousand at most."""
        more: dict[str, str] = {}
        while True:
            whole = f"{self.bucket.prefix}{prefix}"
            answer = self.bucket.ask("list_objects_v2", None, Prefix=whole, **parameters, **more)
            yield answer
            if not answer.get("IsTruncated"):
                return
            more = {"ContinuationToken": answer["NextContinuationToken"]}


def _hidden(key: str) -> bool:
    """Whether no key of a store is like it: also the empty objects that consoles make as folders."""
    return any(not part or part.startswith(".") for part in key.split("/"))
