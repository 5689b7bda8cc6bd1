"""The connections of a server: all wait in one thread, so a slow or idle client costs a socket alone.

A few other threads read the store, whatever it is, and none of them waits for a client.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import html
import io
import socket
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any, BinaryIO

from cairn.errors import CairnError
from cairn.output import console
from cairn.release.serve import request as requests
from cairn.release.serve.answers import Answer, Site
from cairn.release.serve.request import RefusedError, Request

_READERS = 32  # threads that read the store
_CONNECTIONS = 400  # each may have a file open too, and many systems give a process 1,024 of both together
_IDLE = 60.0  # seconds that a connection may wait for its next request
_HEAD_TIME = 15.0  # seconds from the first byte of a request to the end of its head
_HEAD_SIZE = 32 << 10  # bytes of it
_CHUNK = 512 << 10  # bytes that are read, and then sent, at a time
_CHUNK_TIME = 90.0  # seconds that a client may take for them: a slower one would hold its file for ever
_LINGER_TIME = 2.0  # seconds, and bytes, that are read of what a client still sends when it was refused
_LINGER_SIZE = 1 << 20


class Clients:
    """All clients of a server."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="serve")
        self._stopped = asyncio.Event()
        self._waits: set[asyncio.Timeout] = set()  # for clients, under way
        self._open: set[asyncio.StreamWriter] = set()
        # Of those, the ones without a request; whoever waits longest is first.
        self._idle: dict[asyncio.StreamWriter, None] = {}

    async def serve(self, listener: socket.socket) -> None:
        """Answer all clients of a socket until `stop` is called."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(_say)
        server = await asyncio.start_server(self._converse, sock=listener, limit=_HEAD_SIZE)
        await self._stopped.wait()
        # Nobody more is taken. A server of asyncio that is closed at once forgets a client that it is just
        # taking, and leaves that socket open. The loop of Windows takes clients in another way.
        with contextlib.suppress(NotImplementedError):
            loop.remove_reader(listener)
        # Clients are waited for no longer, but threads that read are: who asked them closes what they open.
        for wait in self._waits:
            if not wait.expired():
                wait.reschedule(loop.time())
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others)
        server.close()
        self._readers.shutdown()

    def stop(self) -> None:
        """Have `serve` end; to be called in its thread."""
        self._stopped.set()

    @contextlib.asynccontextmanager
    async def _within(self, seconds: float) -> AsyncIterator[None]:
        """Wait for a client so long at most, and no longer than until `stop` is called."""
        async with asyncio.timeout(0 if self._stopped.is_set() else seconds) as wait:
            self._waits.add(wait)
            try:
                yield
            finally:
                self._waits.discard(wait)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """All requests of one client, from beginning to end."""
        self._open.add(writer)
        # Else what follows a head waits until the client has acknowledged the head, after 40 ms (RFC 896 and
        # RFC 1122, section 4.2.3.2). asyncio sets it only on sockets made with an explicit protocol.
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # `drain` waits until the system has everything: then a connection that is closed loses nothing.
        writer.transport.set_write_buffer_limits(high=0)
        try:
            if self._has_room():
                while await self._exchange(reader, writer):
                    pass
            else:
                busy = RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, {"Retry-After": "1"})
                await self._refuse(reader, writer, busy)
        except (OSError, EOFError):  # it hung up, or was too slow (TimeoutError)
            pass
        finally:
            writer.transport.abort()
            self._idle.pop(writer, None)
            self._open.discard(writer)
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _has_room(self) -> bool:
        """Whether one more client can be served, if need be instead of one that waits without a request."""
        if len(self._open) > _CONNECTIONS and self._idle:
            longest = next(iter(self._idle))
            del self._idle[longest]
            self._open.discard(longest)
            longest.transport.abort()
        return len(self._open) <= _CONNECTIONS

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; whether another may follow.

        Raises:
            OSError: the client hung up, or was too slow.
            EOFError: there was no request, or the store had less than it had announced.
        """
        self._idle[writer] = None
        async with self._within(_IDLE):
            first = await reader.readexactly(1)
        self._idle.pop(writer, None)
        try:
            request = await self._request(reader, first)
        except RefusedError as refused:
            await self._refuse(reader, writer, refused)
            return False
        answer = await self._answer(request)
        await self._send(writer, answer, close=not request.keep_alive, body=request.method != "HEAD")
        return request.keep_alive

    async def _request(self, reader: asyncio.StreamReader, first: bytes) -> Request:
        try:
            async with self._within(_HEAD_TIME):
                return requests.parse(first + await reader.readuntil(b"\r\n\r\n"))
        except TimeoutError:
            raise RefusedError(HTTPStatus.REQUEST_TIMEOUT) from None
        except asyncio.LimitOverrunError:
            raise RefusedError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE) from None

    async def _answer(self, request: Request) -> Answer:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._readers, self._site.answer, request)
        except RefusedError as refused:
            return _refusal(refused)
        except Exception as error:  # noqa: BLE001 - whatever it was, the next request may be answered
            known = isinstance(error, CairnError | OSError)
            what = str(error) if known else f"{type(error).__name__}: {error}"
            console.current().warn(f"{request.target} could not be answered: {what}")
            return _refusal(RefusedError(HTTPStatus.INTERNAL_SERVER_ERROR))

    async def _send(
        self, writer: asyncio.StreamWriter, answer: Answer, *, close: bool, body: bool = True
    ) -> None:
        """Head and body, in as few packets as they need."""
        lines = [f"HTTP/1.1 {answer.status.value} {answer.status.phrase}"]
        lines.append(f"Date: {email.utils.formatdate(usegmt=True)}")
        lines += [f"{name}: {value}" for name, value in answer.headers.items()]
        lines += ["Connection: close"] if close else []
        head = "\r\n".join([*lines, "", ""]).encode()
        if answer.stream is None:
            await self._write(writer, head + answer.body if body else head)
            return
        with answer.stream as stream:
            await self._copy(writer, head, stream, int(answer.headers["Content-Length"]))

    async def _copy(self, writer: asyncio.StreamWriter, head: bytes, stream: BinaryIO, left: int) -> None:
        """Send a head and `left` bytes of a stream: as many as were announced, also of a file that grows."""
        loop = asyncio.get_running_loop()
        from_disk = isinstance(stream, io.BufferedReader) and isinstance(stream.raw, io.FileIO)
        if from_disk:
            await self._write(writer, head)
        while left:
            count = min(left, _CHUNK)
            if from_disk:
                # From one part of the system to another, without us in between: half the CPU time. That the
                # disk is waited for here is rare, since the system reads ahead.
                async with self._within(_CHUNK_TIME):
                    sent = await loop.sendfile(writer.transport, stream, stream.tell(), count, fallback=False)
            else:
                data = await loop.run_in_executor(self._readers, stream.read, count)
                sent = len(data)
                await self._write(writer, head + data)
                head = b""
            if not sent:
                raise EOFError  # the client sees that the connection ends too early
            left -= sent

    async def _write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        for start in range(0, len(data), _CHUNK):
            writer.write(memoryview(data)[start : start + _CHUNK])
            async with self._within(_CHUNK_TIME):
                await writer.drain()

    async def _refuse(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, refused: RefusedError
    ) -> None:
        """Answer what is not read on, and end the connection so that the client gets to see the answer."""
        await self._send(writer, _refusal(refused), close=True)
        # A socket that is closed with something unread in it tells the client to forget all it was sent (RFC
        # 9112, section 9.6).
        writer.write_eof()
        read = 0
        async with self._within(_LINGER_TIME):
            while read < _LINGER_SIZE and (data := await reader.read(_CHUNK)):
                read += len(data)


def _refusal(refused: RefusedError) -> Answer:
    said = html.escape(str(refused))
    body = f"<!DOCTYPE html>\n<title>{said}</title>\n{said}\n".encode()
    sized = {"Content-Type": "text/html; charset=utf-8", "Content-Length": str(len(body))}
    return Answer(status=refused.status, headers=refused.headers | sized, body=body)


def _say(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What asyncio would log: it cannot take clients, say."""
    error = context.get("exception")
    console.current().warn(f"{context['message']}{f': {error}' if error else ''}")
