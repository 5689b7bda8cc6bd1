"""What is said to a request: which object of the store, as what, and how much of it."""

from __future__ import annotations

import gzip
import threading
from collections import OrderedDict
from dataclasses import dataclass
from http import HTTPStatus
from typing import BinaryIO

from cairn.errors import StoreError
from cairn.release.serve import address, negotiation
from cairn.release.serve.negotiation import Span, UnsatisfiableError
from cairn.release.serve.request import RefusedError, Request
from cairn.store.headers import headers as headers_of
from cairn.store.protocol import MissingKeyError, Store

_CACHE = 64 << 20  # bytes of compressed pages
_AT_ONCE = 256 << 10  # bytes of a file that are read with its answer, which saves a turn
_SMALL = 512  # bytes; what is smaller goes in one packet, compressed or not
_LEVEL = 6  # of gzip, as other servers have it: beyond, a tenth smaller for twice the time


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What is sent back, but for what belongs to the connection.

    Attributes:
        status: how it went.
        headers: those that follow from the answer, `Content-Length` among them unless nothing has changed.
        body: all of it, or nothing where there is a stream.
        stream: what to read the body from; whoever sends it closes it.
    """

    status: HTTPStatus
    headers: dict[str, str]
    body: bytes = b""
    stream: BinaryIO | None = None


class Site:
    """A store as clients see it; several threads may ask at once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._compressed = _Compressed(_CACHE)

    def answer(self, request: Request) -> Answer:
        """What is said to a request.

        Raises:
            RefusedError: nothing is there, it is elsewhere, or the client accepts none of what there is.
            CairnError, OSError: the store cannot be read.
        """
        place = address.find(request.target)
        if place.key is not None and (found := self._object(request, place.key)) is not None:
            return found
        if place.add_slash is None:
            return self._folder(request, dict(place.pages))
        if any(map(self._store.exists, place.pages.values())):
            raise RefusedError(HTTPStatus.MOVED_PERMANENTLY, {"Location": place.add_slash})
        raise RefusedError(HTTPStatus.NOT_FOUND)

    def _folder(self, request: Request, pages: dict[str, str]) -> Answer:
        """The page of a folder that the client prefers, of those that are there."""
        while choice := negotiation.choose_page(request.headers.get("accept"), pages):
            vary = {"Vary": "Accept, Accept-Encoding"}
            charset = "; charset=utf-8" if choice.content_type.startswith("text/") else ""
            more = {"Content-Type": choice.content_type + charset} | vary
            if (found := self._text(request, pages.pop(choice.filename), more)) is not None:
                return found
        if any(map(self._store.exists, pages.values())):
            raise RefusedError(HTTPStatus.NOT_ACCEPTABLE, {"Vary": "Accept"})
        raise RefusedError(HTTPStatus.NOT_FOUND)

    def _object(self, request: Request, key: str) -> Answer | None:
        said = headers_of(key)
        headers = {"Content-Type": said.content_type}
        # Text may be replaced at any time, so its bytes and its etag come by one read; it is small enough.
        # All else is published files, which are large and never change.
        if negotiation.is_text(said.content_type):
            return self._text(request, key, headers | {"Vary": "Accept-Encoding"})
        return self._stream(request, key, headers)

    def _text(self, request: Request, key: str, more: dict[str, str]) -> Answer | None:
        try:
            found = self._store.read(key)
        except MissingKeyError:
            return None
        etag, body = found.etag.strip('"'), found.data
        headers = {"Cache-Control": headers_of(key).cache_control, "X-Content-Type-Options": "nosniff"} | more
        # A part is of what was not compressed: nobody asks for the middle of what gzip made.
        wanted = "range" not in request.headers and len(body) > _SMALL
        if wanted and negotiation.accepts_gzip(request.headers.get("accept-encoding")):
            body = self._compressed.of(etag, body)
            etag += "-gzip"  # other bytes, so another name (RFC 9110, section 8.8.3.3)
            headers["Content-Encoding"] = "gzip"
        headers["ETag"] = f'"{etag}"'
        if negotiation.is_listed(headers["ETag"], request.headers.get("if-none-match")):
            return Answer(status=HTTPStatus.NOT_MODIFIED, headers=headers)
        span = _span(request, headers["ETag"], len(body))
        part = body if span is None else body[span.start : span.start + span.count]
        return Answer(status=_status(span), headers=headers | _sizes(span, len(body)), body=part)

    def _stream(self, request: Request, key: str, headers: dict[str, str]) -> Answer | None:
        info = self._store.stat(key)
        if info is None:
            return None
        # Of what never changes, time and size are name enough; hashing it would cost more than sending it.
        etag = f'"{round(info.modified.timestamp() * 1e6):x}-{info.size:x}"'
        headers |= {
            "Cache-Control": headers_of(key).cache_control,
            "ETag": etag,
            "Accept-Ranges": "bytes",
        }
        if negotiation.is_listed(etag, request.headers.get("if-none-match")):
            return Answer(status=HTTPStatus.NOT_MODIFIED, headers=headers)
        span = _span(request, etag, info.size)
        headers |= _sizes(span, info.size)
        if request.method == "HEAD":
            return Answer(status=_status(span), headers=headers)
        part = span or Span(start=0, count=info.size)
        to_the_end = part.start + part.count == info.size
        try:
            stream = self._store.open(key, start=part.start, count=None if to_the_end else part.count)
        except MissingKeyError:
            return None
        if part.count > _AT_ONCE:
            return Answer(status=_status(span), headers=headers, stream=stream)
        with stream:
            body = stream.read(part.count)
        if len(body) < part.count:
            raise StoreError(f"{key} has {len(body)} bytes from {part.start} on, not {part.count}")
        return Answer(status=_status(span), headers=headers, body=body)


class _Compressed:
    """Pages that were compressed, by the etags of what they were, the ones used last up to so many bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._pages: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, etag: str, data: bytes) -> bytes:
        """`data` compressed."""
        with self._lock:
            if etag in self._pages:
                self._pages.move_to_end(etag)
                return self._pages[etag]
        # Outside the lock, so that no page waits for another one. Without a time in it, the same page is the
        # same bytes.
        made = gzip.compress(data, _LEVEL, mtime=0)
        with self._lock:
            if etag not in self._pages:
                self._pages[etag] = made
                self._size += len(made)
            while self._size > self._limit:
                self._size -= len(self._pages.popitem(last=False)[1])
        return made


def _span(request: Request, etag: str, size: int) -> Span | None:
    """The part that is asked for; None for all of it."""
    # If-Range: a part only of the file that the client has begun; of a changed one it gets all. A date in it
    # is taken for a change, since a file may change twice in a second (RFC 9110, section 13.1.5).
    begun = request.headers.get("if-range") in (None, etag)
    if request.method != "GET" or not begun:
        return None
    try:
        return negotiation.parse_range(request.headers.get("range"), size)
    except UnsatisfiableError:
        raise RefusedError(
            HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, {"Content-Range": f"bytes */{size}"}
        ) from None


def _status(span: Span | None) -> HTTPStatus:
    return HTTPStatus.OK if span is None else HTTPStatus.PARTIAL_CONTENT


def _sizes(span: Span | None, size: int) -> dict[str, str]:
    if span is None:
        return {"Content-Length": str(size)}
    last = span.start + span.count - 1
    return {"Content-Length": str(span.count), "Content-Range": f"bytes {span.start}-{last}/{size}"}
