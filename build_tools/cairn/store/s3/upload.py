"""A local file into a bucket: small ones in one request, big ones in parts, several at once and resumed.

A part that has arrived stays with its upload until someone completes or aborts that. So a run that was killed
has lost nothing but the parts under way: the next one lists what is there, compares the MD5 of each part with
that of the file, and sends the rest. Two runs that send the same file at once share one upload in this way.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from s3transfer.utils import ReadFileChunk

from cairn.concurrency import side_by_side
from cairn.errors import NetworkError, StoreError
from cairn.store.headers import headers
from cairn.store.protocol import MissingKeyError, ObjectInfo, OnBytes
from cairn.store.s3.client import JOBS, Answer, Bucket
from cairn.store.s3.errors import UploadGoneError

SHA256 = "sha256"
"""The name of our metadata: S3 sends it as `x-amz-meta-sha256`."""

# "Amazon S3 multipart upload limits" in Amazon's user guide; what others allow is the same or more.
_MOST_PARTS = 10_000
_MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Parts:
    """How big files travel.

    Attributes:
        size: bytes of a part at least; S3 wants 5 MiB or more, of all but the last.
        jobs: how many at once.
    """

    size: int = 16 * _MIB
    jobs: int = JOBS

    def size_for(self, total: int) -> int:
        """Bytes of each part but the last, so that `total` bytes have no more parts than are allowed."""
        return max(self.size, -(-total // (_MOST_PARTS * _MIB)) * _MIB)


@dataclass(frozen=True, kw_only=True)
class Upload:
    """A file on its way to a key.

    Attributes:
        bucket, key: where it goes.
        source: the file.
        size: of it, in bytes.
        sha256: of it.
        new: nothing was there before, and so nothing is to be there when it arrives.
        parts: how it travels, if it is big.
        on_bytes: called with how many bytes have arrived more.
    """

    bucket: Bucket
    key: str
    source: Path
    size: int
    sha256: str
    new: bool
    parts: Parts
    on_bytes: OnBytes

    def send(self) -> None:
        """Send it.

        Raises:
            ChangedError: something was put under the key meanwhile.
        """
        if self.size <= self.parts.size:
            data = self.source.read_bytes()
            self.bucket.ask("put_object", self.key, **put(self.key, data), **self._condition())
            self.on_bytes(len(data))
            return
        # S3 does not tell whether an upload under way is of the same bytes; a key with their digest does.
        if self.sha256 in self.key:
            for (_, upload_id), _ in under_way(self.bucket, self.key, exactly=True):
                if self._sent(upload_id, resumed=True):
                    return
        if not self._sent(self._begun(), resumed=False):
            raise StoreError(f"{self.bucket.url}/{self.key} was not completed", tip="send it again")

    def arrived(self) -> bool:
        """Whether the file, by size and sha256, is what the key holds."""
        info = stat(self.bucket, self.key)
        return info is not None and (info.size, info.sha256) == (self.size, self.sha256)

    def _condition(self) -> Mapping[str, str]:
        return {"IfNoneMatch": "*"} if self.new else {}

    def _begun(self) -> str:
        answer = self.bucket.ask("create_multipart_upload", self.key, **about(self.key, self.sha256))
        upload_id: str = answer["UploadId"]
        return upload_id

    def _sent(self, upload_id: str, *, resumed: bool) -> bool:
        """Whether the file is there, by this upload or by someone else's who was faster."""
        try:
            uploaded = self._parts_there(upload_id) if resumed else {}
            size = self.parts.size_for(self.size)
            numbers = range(1, -(-self.size // size) + 1)
            etags = side_by_side(
                lambda number: self._send_part(upload_id, number, size, uploaded.get(number)),
                numbers,
                jobs=self.parts.jobs,
            )
            parts = [{"PartNumber": n, "ETag": etag} for n, etag in zip(numbers, etags, strict=True)]
            self.bucket.trying(lambda: self._complete(upload_id, parts))
        except (UploadGoneError, NetworkError) as error:
            if self.arrived():
                return True
            if isinstance(error, NetworkError):
                raise
            return False
        return True

    def _complete(self, upload_id: str, parts: list[dict[str, object]]) -> None:
        try:
            self.bucket.ask_once(
                "complete_multipart_upload",
                self.key,
                UploadId=upload_id,
                MultipartUpload={"Parts": parts},
                **self._condition(),
            )
        except NetworkError:
            # It may be complete all the same: then to ask again would be answered by "no such upload".
            if not self.arrived():
                raise

    def _parts_there(self, upload_id: str) -> dict[int, tuple[int, str]]:
        """Size and ETag of each part that has arrived, by number."""
        parts: dict[int, tuple[int, str]] = {}
        more: dict[str, object] = {}
        while True:
            answer = self.bucket.ask("list_parts", self.key, UploadId=upload_id, **more)
            for part in answer.get("Parts", ()):
                parts[part["PartNumber"]] = (part["Size"], bare(part["ETag"]))
            if not answer.get("IsTruncated"):
                return parts
            more = {"PartNumberMarker": answer["NextPartNumberMarker"]}

    def _send_part(self, upload_id: str, number: int, size: int, uploaded: tuple[int, str] | None) -> str:
        start = (number - 1) * size
        count = min(size, self.size - start)
        md5 = self._md5(start, count)
        if uploaded != (count, md5.hex()):
            etag = self.bucket.trying(lambda: self._send_once(upload_id, number, start, count, md5))
            uploaded = (count, etag)
        self.on_bytes(count)
        return f'"{uploaded[1]}"'

    def _send_once(self, upload_id: str, number: int, start: int, count: int, md5: bytes) -> str:
        # A stream of each try's own, not the bytes: of many files at once, they would fill the memory.
        with ReadFileChunk.from_filename(str(self.source), start, count) as body:
            answer = self.bucket.ask_once(
                "upload_part",
                self.key,
                UploadId=upload_id,
                PartNumber=number,
                Body=body,
                ContentLength=count,
                ContentMD5=base64.b64encode(md5).decode(),
            )
        return bare(answer["ETag"])

    def _md5(self, start: int, count: int) -> bytes:
        digest = hashlib.md5(usedforsecurity=False)
        with self.source.open("rb") as file:
            file.seek(start)
            while count and (block := file.read(min(count, _MIB))):
                digest.update(block)
                count -= len(block)
        return digest.digest()


def put(key: str, data: bytes) -> Answer:
    """What a request that puts `data` under `key` says."""
    md5 = hashlib.md5(data, usedforsecurity=False).digest()
    sha256 = hashlib.sha256(data).hexdigest()
    return {"Body": data, "ContentMD5": base64.b64encode(md5).decode(), **about(key, sha256)}


def about(key: str, sha256: str | None) -> Answer:
    """What goes with an object, whether it comes in one piece or in parts; no digest where none is known."""
    fields = headers(key)
    return {
        "ContentType": fields.content_type,
        "CacheControl": fields.cache_control,
        "Metadata": {SHA256: sha256} if sha256 else {},
    }


def bare(etag: str) -> str:
    """An ETag without its quotes.

    Amazon takes it with and without, its own examples are without (`put-object --if-match`), and Ceph 16
    compares the text, which it has without.
    """
    return etag.strip('"')


def stat(bucket: Bucket, key: str) -> ObjectInfo | None:
    """See `Store.stat`."""
    try:
        answer = bucket.ask("head_object", key)
    except MissingKeyError:
        return None
    sha256: str | None = answer["Metadata"].get(SHA256)
    return ObjectInfo(
        key=key,
        size=answer["ContentLength"],
        modified=answer["LastModified"],
        find_etag=lambda: bare(answer["ETag"]),
        find_sha256=lambda: sha256,
    )


def under_way(
    bucket: Bucket, prefix: str, *, exactly: bool = False
) -> Iterator[tuple[tuple[str, str], datetime]]:
    """Key and id of each upload that nobody has completed or aborted, and when it began.

    Args:
        bucket: where.
        prefix: what the key begins with.
        exactly: the prefix is the whole key.
    """
    more: dict[str, str] = {}
    while True:
        answer = bucket.ask("list_multipart_uploads", None, Prefix=f"{bucket.prefix}{prefix}", **more)
        for entry in answer.get("Uploads", ()):
            key = entry["Key"].removeprefix(bucket.prefix)
            if not exactly or key == prefix:
                yield (key, entry["UploadId"]), entry["Initiated"]
        if not answer.get("IsTruncated"):
            return
        more = {"KeyMarker": answer["NextKeyMarker"], "UploadIdMarker": answer["NextUploadIdMarker"]}


def abort(bucket: Bucket, key: str, upload_id: str) -> None:
    """End an upload, and drop the parts that have arrived."""
    with contextlib.suppress(UploadGoneError):
        bucket.ask("abort_multipart_upload", key, UploadId=upload_id)
