"""The HTTP side of `serve`: routing, content negotiation, range requests and client connections.

A slow or idle client costs a socket alone; a few threads read the store, and none of them waits for a client.
aiohttp has the parser, the time limit of a request, keep-alive and the answers in their order. uvicorn waits
for a first request without end, has no `sendfile` (2.3 times the CPU time for a large wheel), and takes 1.6
times as much for a page with h11; with httptools it answers a malformed request before those that came first.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gzip
import io
import logging
import re
import socket
import urllib.parse
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO, TypeAlias

from aiohttp import web
from aiohttp.http import StreamWriter
from packaging.utils import canonicalize_name

from cairn.errors import CairnError, StoreError
from cairn.output import console
from cairn.release.index import keys
from cairn.release.index.render import HTML_TYPE, JSON_TYPE
from cairn.store.protocol import MissingKeyError, Store, StoredObject
from cairn.store.protocol import headers as headers_of

# The pages of a folder and their names in `Accept`; the first wins where a client takes all.
_PAGES = {
    "index.html": ("text/html", HTML_TYPE, HTML_TYPE.replace(".v1+", ".latest+")),
    "index.json": (JSON_TYPE, JSON_TYPE.replace(".v1+", ".latest+"), "application/json"),
}
_WEIGHT = re.compile(r"0(\.[0-9]{0,3})?|1(\.0{0,3})?")  # RFC 9110, section 12.4.2
_NAME = 255  # bytes; no file system has longer names
_ABSOLUTE = re.compile(r"\Ahttps?://[^/?#]*", re.IGNORECASE)  # the form for proxies: RFC 9112, section 3.2.2
_PATH = re.compile('/([!"$&-~]|%(?![01]|7[Ff])[0-9A-Fa-f]{2})*')  # no control characters
_CACHE = 256  # compressed pages that are kept
_SMALL = 512  # bytes; what is smaller goes in one packet, compressed or not
_LEVEL = 6  # of gzip, as other servers have it: beyond, a tenth smaller for twice the time
_AT_ONCE = 256 << 10  # bytes of a body that are read with its answer, which saves a turn

Answer: TypeAlias = tuple[web.StreamResponse, BinaryIO | None]
"""A response, and where its body is large, the stream to copy it from; whoever sends it closes it."""

_METHODS = ("GET", "HEAD")
_READERS = 32  # threads that read the store
_IDLE = 60.0  # seconds until a connection has to have sent its next request, the first too
_CHUNK = 512 << 10  # bytes that are read, and then sent, at a time
_END = 0.05  # seconds that clients have to take their answers when the server ends
_LINGER = 2.0  # seconds that are read of what a client still sends when it was refused
_CHUNK_TIME = 90.0  # seconds that a client may take for them: a slower one would hold its file for ever


async def serve(store: Store, listener: socket.socket, stop: asyncio.Event, *, backlog: int) -> None:
    """Answer all clients of a socket until `stop` is set."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_warn)
    clients = _Clients(Site(store))
    server = await loop.create_server(clients, sock=listener, backlog=backlog)
    await stop.wait()
    # No more are taken. A server of asyncio that is closed at once forgets a client that it is just taking,
    # and leaves that socket open. The loop of Windows takes clients in another way.
    with contextlib.suppress(NotImplementedError):
        loop.remove_reader(listener)
    await asyncio.sleep(_END / 10)
    clients.pre_shutdown()
    await clients.shutdown(_END)
    for task in (others := asyncio.all_tasks() - {asyncio.current_task()}):
        task.cancel()  # it reads what a client that hung up might still send
    await asyncio.gather(*others, return_exceptions=True)
    server.close()
    for transport in [*clients.open.values()]:
        transport.abort()  # a client that does not read its answer would keep its socket open
    # Sockets are closed in the loop's next rounds, also that of a client which was just being taken.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LINGER):
            for _ in range(2):
                await asyncio.sleep(_END / 10)
            while clients.open:
                await asyncio.sleep(_END / 10)
    clients.readers.shutdown()


class _Clients(web.Server):
    """All clients of a server, as aiohttp sees them; each connection has a handler."""

    def __init__(self, site: Site) -> None:
        silent = logging.getLogger("cairn.serve")  # clients get an answer to what aiohttp would log
        silent.disabled = True
        super().__init__(
            self._handle,
            logger=silent,
            access_log=None,
            keepalive_timeout=_IDLE,
            lingering_time=_LINGER,
        )
        self.readers = ThreadPoolExecutor(_READERS, thread_name_prefix="serve")
        self.open: dict[web.RequestHandler, asyncio.Transport] = {}
        self._site = site

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Add a client."""
        super().connection_made(handler, transport)
        self.open[handler] = transport

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        """Forget a client."""
        super().connection_lost(handler, exc)
        self.open.pop(handler, None)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            _refuse(request)
            response, stream = await self._answer(request)
            if stream is not None:
                with stream:
                    await self._copy(request, response, stream)
        except (web.HTTPException, ConnectionError):
            raise
        except Exception as error:  # whatever it was, the next request may be answered
            is_expected = isinstance(error, CairnError | OSError)
            reason = str(error) if is_expected else f"{type(error).__name__}: {error}"
            console.current().warn(f"{request.raw_path} could not be answered: {reason}")
            raise web.HTTPInternalServerError from error
        return response

    async def _answer(self, request: web.BaseRequest) -> Answer:
        answer = self.readers.submit(self._site.answer, request)
        try:
            return await asyncio.wrap_future(answer)
        except asyncio.CancelledError:  # the server ends, and the thread may open a file yet
            answer.add_done_callback(_close)
            raise

    async def _copy(self, request: web.BaseRequest, response: web.StreamResponse, stream: BinaryIO) -> None:
        """Send exactly the announced number of bytes, even if the file grows."""
        loop, transport = asyncio.get_running_loop(), request.transport
        writer = await response.prepare(request)
        from_disk = isinstance(stream, io.BufferedReader) and isinstance(stream.raw, io.FileIO)
        if from_disk and isinstance(writer, StreamWriter):
            writer.send_headers()
        left = int(response.headers["Content-Length"])
        while left:
            if transport is None or transport.is_closing():
                raise ConnectionResetError
            count = min(left, _CHUNK)
            data = b"" if from_disk else await loop.run_in_executor(self.readers, stream.read, count)
            try:
                async with asyncio.timeout(_CHUNK_TIME):
                    if from_disk:
                        # From one part of the system to another, without us in between: half the CPU time.
                        # That the disk is waited for here is rare, since the system reads ahead.
                        sent = await loop.sendfile(transport, stream, stream.tell(), count, fallback=False)
                    else:
                        await response.write(data)
                        sent = len(data)
            except TimeoutError:
                sent = 0
            if not sent:  # it is too slow, or the file ends: the client sees that the body ends too early
                transport.abort()
                raise ConnectionResetError
            left -= sent


def _refuse(request: web.BaseRequest) -> None:
    refusal: web.HTTPException | None = None
    if request.method not in _METHODS:
        refusal = web.HTTPMethodNotAllowed(request.method, _METHODS)
    elif request.body_exists:
        refusal = web.HTTPRequestEntityTooLarge(0)
    if refusal is not None:
        refusal.force_close()
        raise refusal


def _close(answer: Future[Answer]) -> None:
    if not answer.cancelled() and answer.exception() is None and (stream := answer.result()[1]):
        stream.close()


def _warn(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report an error that asyncio would log, such as a failed accept."""
    error = context.get("exception")
    console.current().warn(f"{context['message']}{f': {error}' if error else ''}")


class Site:
    """A store as clients see it; several threads may call it at once."""

    def __init__(self, store: Store) -> None:
        self._store = store

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
        """Serve an object, whole or in part; None if the store does not have it."""
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
            body = _compressed(body)
            etag += "-gzip"  # other bytes, so another name (RFC 9110, section 8.8.3.3)
            headers["Content-Encoding"] = "gzip"
        headers["ETag"] = f'"{etag}"'
        return _part(request, headers, len(body), lambda *, start, count: io.BytesIO(body[start:][:count]))


@functools.lru_cache(_CACHE)
def _compressed(page: bytes) -> bytes:
    return gzip.compress(page, _LEVEL, mtime=0)  # without a time in it, the same page is the same bytes


def _part(
    request: web.BaseRequest, headers: dict[str, str], size: int, open_part: Callable[..., BinaryIO]
) -> Answer:
    """The part of an object that the client asked for; `open_part` is like `Store.open`."""
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
    """All headers of one name, joined (RFC 9110, section 5.3)."""
    return ", ".join(request.headers.getall(name, ()))


def _weights(header: str) -> dict[str, float]:
    """The quality values in a header, from 0 (not acceptable) to 1."""
    weights: dict[str, float] = {}
    for part in header.split(","):
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        weight = next((value[2:].strip() for value in parameters if value.startswith("q=")), "1")
        weights[name] = float(weight) if _WEIGHT.fullmatch(weight) else 0.0
    return weights


def find(target: str) -> tuple[str, dict[str, str]]:
    """The key for a request target, and the keys of the pages to serve if it is a folder.

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
    """The redirect target for a project name that is not normalised (PEP 503), as a relative address."""
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
