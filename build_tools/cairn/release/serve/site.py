"""The objects of a store as HTTP resources: which one an address names, and in which form it is sent."""

from __future__ import annotations

import contextlib
import functools
import gzip
import io
import re
import threading
import urllib.parse
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import BinaryIO, TypeAlias

from aiohttp import web
from packaging.utils import canonicalize_name

from cairn.errors import StoreError
from cairn.release.index import keys
from cairn.release.index.render import HTML_TYPE, JSON_TYPE
from cairn.store.headers import headers as headers_of
from cairn.store.protocol import MissingKeyError, Store, StoredObject

# The pages of a folder and their names in `Accept`; the first wins where a client takes all.
_PAGES = {
    "index.html": ("text/html", HTML_TYPE, HTML_TYPE.replace(".v1+", ".latest+")),
    "index.json": (JSON_TYPE, JSON_TYPE.replace(".v1+", ".latest+"), "application/json"),
}
_WEIGHT = re.compile(r"0(\.[0-9]{0,3})?|1(\.0{0,3})?")  # RFC 9110, section 12.4.2
_NAME = 255  # bytes; no file system has longer names
_ABSOLUTE = re.compile(r"\Ahttps?://[^/?#]*", re.IGNORECASE)  # the form for proxies: RFC 9112, section 3.2.2
_PATH = re.compile('/([!"$&-~]|%(?![01]|7[Ff])[0-9A-Fa-f]{2})*')  # no control characters
_CACHE = 64 << 20  # bytes of compressed pages
_SMALL = 512  # bytes; what is smaller goes in one packet, compressed or not
_LEVEL = 6  # of gzip, as other servers have it: beyond, a tenth smaller for twice the time
_AT_ONCE = 256 << 10  # bytes of a body that are read with its answer, which saves a turn

Answer: TypeAlias = tuple[web.StreamResponse, BinaryIO | None]
"""A response, and where its body is large, the stream to copy it from; whoever sends it closes it."""


class Site:
    """A store as clients see it; several threads may call it at once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._gzip: OrderedDict[str, bytes] = OrderedDict()  # by etag; the ones used last are at the end
        self._gzip_size = 0
        self._lock = threading.Lock()

    def answer(self, request: web.BaseRequest) -> Answer:
        """The answer to a GET or HEAD.

        Raises:
            web.HTTPException: no such object, it is elsewhere, or the client accepts none of its forms.
            CairnError, OSError: the store cannot be read.
        """
        key, pages = find(request.raw_path)
        last = request.raw_path.partition("?")[0].rpartition("/")[2]
        if last and (answer := self._object(request, key, {})) is not None:
            return answer
        if not last:
            return self._folder(request, pages)
        if any(map(self._store.exists, pages.values())):
            # Links on a page hold relative to its folder. Relative itself, so that it holds behind any proxy;
            # a name alone cannot lead to a different host.
            raise web.HTTPMovedPermanently(f"./{last}/")
        raise web.HTTPNotFound

    def _folder(self, request: web.BaseRequest, pages: dict[str, str]) -> Answer:
        """The page of a folder that the client prefers (PEP 691)."""
        while choice := choose_page(_header(request, "Accept"), pages):
            name, content_type = choice
            charset = "; charset=utf-8" if content_type.startswith("text/") else ""
            headers = {"Content-Type": content_type + charset, "Vary": "Accept, Accept-Encoding"}
            if (answer := self._object(request, pages.pop(name), headers)) is not None:
                return answer
        if any(map(self._store.exists, pages.values())):
            raise web.HTTPNotAcceptable(headers={"Vary": "Accept"})
        raise web.HTTPNotFound

    def _object(self, request: web.BaseRequest, key: str, more: dict[str, str]) -> Answer | None:
        """An object, whole or in part; None where the store has none."""
        kind = headers_of(key)
        headers = {"Content-Type": kind.content_type, "Cache-Control": kind.cache_control}
        if not keys.is_own(key):
            return None
        try:
            # Text may be replaced at any time, so its bytes and its etag come by one read; it is small.
            if kind.content_type.startswith("text/") or kind.content_type.endswith(("json", "toml")):
                headers |= {"Vary": "Accept-Encoding", "X-Content-Type-Options": "nosniff"} | more
                return self._text(request, self._store.read(key), headers)
            # All else is published files, which are large and never change. So time and size are name enough;
            # hashing it would cost more than sending it.
            if (info := self._store.stat(key)) is None:
                return None
            headers["ETag"] = f'"{round(info.modified.timestamp() * 1e6):x}-{info.size:x}"'
            headers["Accept-Ranges"] = "bytes"
            return _part(request, headers, info.size, functools.partial(self._store.open, key))
        except MissingKeyError:
            return None

    def _text(self, request: web.BaseRequest, stored: StoredObject, headers: dict[str, str]) -> Answer:
        etag, body = stored.etag.strip('"'), stored.data
        # A part is of what was not compressed: nobody wants the middle of what gzip made.
        if "Range" not in request.headers and len(body) > _SMALL and _accepts_gzip(request):
            body = self._compress(etag, body)
            etag += "-gzip"  # other bytes, so another name (RFC 9110, section 8.8.3.3)
            headers["Content-Encoding"] = "gzip"
        headers["ETag"] = f'"{etag}"'
        return _part(request, headers, len(body), lambda *, start, count: io.BytesIO(body[start:][:count]))

    def _compress(self, etag: str, data: bytes) -> bytes:
        with self._lock:
            if etag in self._gzip:
                self._gzip.move_to_end(etag)
                return self._gzip[etag]
        # Outside the lock, so that no page waits for another one. Without a time in it, the same page is the
        # same bytes.
        page = gzip.compress(data, _LEVEL, mtime=0)
        with self._lock:
            if etag not in self._gzip:
                self._gzip[etag] = page
                self._gzip_size += len(page)
            while self._gzip_size > _CACHE:
                self._gzip_size -= len(self._gzip.popitem(last=False)[1])
        return page


def _part(
    request: web.BaseRequest, headers: dict[str, str], size: int, open_part: Callable[..., BinaryIO]
) -> Answer:
    """As much of an object as the client wants; `open_part` is as `Store.open`."""
    # Ours are strong; a weak one, which a proxy that compresses made of it, is as good (RFC 9110, 13.1.2).
    if any(f'"{tag.value}"' in (headers["ETag"], '"*"') for tag in request.if_none_match or ()):
        return web.Response(status=304, headers=headers), None
    part = slice(None)
    # If-Range: a part only of the file that the client has begun; of a changed one it gets all. A date in it
    # is taken for a change, since a file may change twice in a second (RFC 9110, section 13.1.5).
    if request.method == "GET" and request.headers.get("If-Range") in (None, headers["ETag"]):
        # Of several ranges, and of what is none, the whole is an answer too (RFC 9110, section 14.2).
        with contextlib.suppress(ValueError):
            part = request.http_range
    start, end, _ = part.indices(size)
    headers["Content-Length"] = str(end - start)
    status = 200
    if part.start is not None:
        if start >= end:
            raise web.HTTPRequestRangeNotSatisfiable(headers={"Content-Range": f"bytes */{size}"})
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        status = 206
    if request.method == "HEAD":
        return web.Response(status=status, headers=headers), None
    stream = open_part(start=start, count=None if end == size else end - start)
    if end - start > _AT_ONCE:
        return web.StreamResponse(status=status, headers=headers), stream
    with stream:
        body = stream.read(end - start)
    if len(body) < end - start:
        raise StoreError(f"it has {len(body)} bytes from {start} on, not {end - start}")
    return web.Response(status=status, headers=headers, body=body), None


def choose_page(accept: str, available: Collection[str]) -> tuple[str, str] | None:
    """The page that a client's `Accept` prefers and its content type; None when it accepts none of them."""
    weights = _weights(accept or "*/*")
    best, most = None, 0.0
    for filename, names in _PAGES.items():
        for name in names if filename in available else ():
            # The most specific range counts (RFC 9110, section 12.5.1): `*/*, text/html;q=0` is all but HTML.
            ranges = (name, f"{name.partition('/')[0]}/*", "*/*")
            weight = next((weights[range_] for range_ in ranges if range_ in weights), 0.0)
            if weight > most:
                best, most = (filename, name.replace(".latest+", ".v1+")), weight
    return best


def _accepts_gzip(request: web.BaseRequest) -> bool:
    weights = _weights(_header(request, "Accept-Encoding"))
    return weights.get("gzip", weights.get("x-gzip", weights.get("*", 0.0))) > 0


def _header(request: web.BaseRequest, name: str) -> str:
    """All headers of a name as one (RFC 9110, section 5.3)."""
    return ", ".join(request.headers.getall(name, ()))


def _weights(header: str) -> dict[str, float]:
    """How much a client wants each of what it lists, from 0 (not at all) to 1."""
    weights: dict[str, float] = {}
    for part in header.split(","):
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        weight = next((value[2:].strip() for value in parameters if value.startswith("q=")), "1")
        weights[name] = float(weight) if _WEIGHT.fullmatch(weight) else 0.0
    return weights


def find(target: str) -> tuple[str, dict[str, str]]:
    """The key that the target of a request spells, and those of the pages that stand for it as a folder.

    A folder with a store may have other files too, and the folder of a store may be named by mistake: what
    `keys.is_own` does not know is not there.

    Raises:
        web.HTTPException: it is malformed (400), is nothing of a store (404), or has the name of a project
            not in its normal form (301, PEP 503).
    """
    path = _ABSOLUTE.sub("", target).partition("?")[0]
    if not _PATH.fullmatch(path):
        raise web.HTTPBadRequest
    try:
        # Each by itself, so that `%2f` does not become a slash. A `+` is a plus, encoded or not.
        parts = [urllib.parse.unquote(part, errors="strict") for part in path.split("/")]
    except UnicodeDecodeError:
        raise web.HTTPBadRequest from None
    # The first is empty, the last too for a folder.
    hidden = any(part.startswith(".") or "/" in part or "\\" in part for part in parts)
    if hidden or "" in parts[1:-1] or any(len(part.encode()) > _NAME for part in parts):
        raise web.HTTPNotFound
    if canonical := _canonical(parts):
        raise web.HTTPMovedPermanently(canonical)
    key = "/".join(part for part in parts if part)
    pages = {name: page for name in _PAGES if keys.is_own(page := f"{key}/{name}" if key else name)}
    if not pages and not keys.is_own(key):
        raise web.HTTPNotFound
    return key, pages


def _canonical(parts: list[str]) -> str | None:
    """The page of a project whose name is not in its normal form (PEP 503), as a relative address."""
    if "simple" not in parts[1:-1]:
        return None
    place = parts.index("simple", 1)
    name, *rest = parts[place + 1 :]
    if name in _PAGES or rest not in ([], [""], *([page] for page in _PAGES)):
        return None
    canonical = str(canonicalize_name(name))
    if canonical == name or not keys.is_own("/".join([*parts[1 : place + 1], canonical])):
        return None
    return f"../{canonical}/{rest[0]}" if rest else f"./{canonical}/"
