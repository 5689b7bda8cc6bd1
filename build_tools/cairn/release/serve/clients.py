"""The clients of a server, by aiohttp: limits of connections and time, and bodies copied to them.

A slow or idle client costs a socket alone; a few threads read the store, and none of them waits for a client.
aiohttp has the parser, the time limit of a request, keep-alive and the answers in their order. uvicorn waits
for a first request without end, has no `sendfile` (2.3 times the CPU time for a large wheel), and takes 1.6
times as much for a page with h11; with httptools it answers a malformed request before those that came first.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import socket
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO

from aiohttp import web
from aiohttp.http import StreamWriter

from cairn.errors import CairnError
from cairn.output import console
from cairn.release.serve.site import Answer, Site
from cairn.store.protocol import Store

_METHODS = ("GET", "HEAD")
_READERS = 32  # threads that read the store
_CONNECTIONS = 400  # each may have a file open too, and many systems give a process 1,024 of both together
_IDLE = 60.0  # seconds until a connection has to have sent its next request, the first too
_CHUNK = 512 << 10  # bytes that are read, and then sent, at a time
_END = 0.05  # seconds that clients have to take their answers when the server ends
_LINGER = 2.0  # seconds that are read of what a client still sends when it was refused
_CHUNK_TIME = 90.0  # seconds that a client may take for them: a slower one would hold its file for ever


async def serve(store: Store, listener: socket.socket, stop: asyncio.Event, *, backlog: int) -> None:
    """Answer all clients of a socket until the event is set."""
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
    """All clients of a server, by aiohttp; each connection has a handler."""

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
        self._idle: dict[web.RequestHandler, None] = {}  # without a request; whoever waits longest is first
        self._busy: set[web.RequestHandler] = set()

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Take a client, beyond the limit instead of the one that is idle longest."""
        super().connection_made(handler, transport)
        self.open[handler] = transport
        if self._idle and len(self._idle) + len(self._busy) >= _CONNECTIONS:
            longest = next(iter(self._idle))
            del self._idle[longest]
            longest.force_close()
        self._idle[handler] = None

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        """Forget a client."""
        super().connection_lost(handler, exc)
        self._idle.pop(handler, None)
        self.open.pop(handler, None)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        handler = request.protocol
        self._idle.pop(handler, None)
        self._busy.add(handler)
        try:
            self._refuse(request)
            response, stream = await self._answer(request)
            if stream is not None:
                with stream:
                    await self._copy(request, response, stream)
        except (web.HTTPException, ConnectionError):
            raise
        except Exception as error:  # whatever it was, the next request may be answered
            known = isinstance(error, CairnError | OSError)
            reason = str(error) if known else f"{type(error).__name__}: {error}"
            console.current().warn(f"{request.raw_path} could not be answered: {reason}")
            raise web.HTTPInternalServerError from error
        finally:
            self._busy.discard(handler)
            if handler.transport is not None:
                self._idle[handler] = None
        return response

    def _refuse(self, request: web.BaseRequest) -> None:
        refusal: web.HTTPException | None = None
        if len(self._idle) + len(self._busy) > _CONNECTIONS:
            refusal = web.HTTPServiceUnavailable(headers={"Retry-After": "1"})
        elif request.method not in _METHODS:
            refusal = web.HTTPMethodNotAllowed(request.method, _METHODS)
        elif request.body_exists:
            refusal = web.HTTPRequestEntityTooLarge(0)
        if refusal is not None:
            refusal.force_close()
            raise refusal

    async def _answer(self, request: web.BaseRequest) -> Answer:
        answer = self.readers.submit(self._site.answer, request)
        try:
            return await asyncio.wrap_future(answer)
        except asyncio.CancelledError:  # the server ends, and the thread may open a file yet
            answer.add_done_callback(_close)
            raise

    async def _copy(self, request: web.BaseRequest, response: web.StreamResponse, stream: BinaryIO) -> None:
        """Send as many bytes as were announced, also of a file that grows."""
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


def _close(answer: Future[Answer]) -> None:
    if not answer.cancelled() and answer.exception() is None and (stream := answer.result()[1]):
        stream.close()


def _warn(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What asyncio would log: it cannot take clients, say."""
    error = context.get("exception")
    console.current().warn(f"{context['message']}{f': {error}' if error else ''}")
