"""The server against many clients at once, slow ones, and those that mean it ill."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import http.client
import io
import os
import re
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import pytest

from cairn.errors import StoreError
from cairn.release import serve, serve_http
from cairn.release.serve import serving
from cairn.store.folder import LocalStore
from cairn.store.memory import MemoryStore
from cairn.store.protocol import MissingKeyError, Store, StoredObject

AT_ONCE = 200
LINE, HOST = b"GET /release/state.json HTTP/1.1", b"Host: x"
GET = b"\r\n".join([LINE, HOST, b"", b""])
STATE = b'{"state": 1}'
DATA = bytes(range(256)) * 20_000  # 5 MB
FILE = f"files/ab/{hashlib.sha256(DATA).hexdigest()}/big-1.0-py3-none-any.whl"
PAGE = b"<!DOCTYPE html>\n" + b"<a>torch</a>\n" * 100
OBJECTS = {"release/state.json": STATE, "release/simple/big/index.html": PAGE, FILE: DATA}


@pytest.fixture(params=["folder", "memory"])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    store: Store = LocalStore(tmp_path / "store") if request.param == "folder" else MemoryStore()
    for key, data in OBJECTS.items():
        store.write(key, data)
    return store


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def everything(connection: socket.socket) -> bytes:
    """What comes until the server closes the connection."""
    return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def statuses(answers: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.[01] ([0-9]{3}) ", answers)]


def answered(port: int) -> bool:
    with connect(port) as connection:
        connection.sendall(GET)
        return connection.recv(1 << 16).endswith(STATE)


def install(port: int, together: threading.Barrier) -> list[tuple[int, bytes]]:
    """What pip asks for: a page, then a file on the same connection."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=120)) as connection:
        connection.connect()
        together.wait()
        got = []
        for path in ("/release/simple/big/", f"/{FILE}"):
            connection.request("GET", path, headers={"Accept-Encoding": "identity"})
            answer = connection.getresponse()
            got.append((answer.status, answer.read()))
        return got


@pytest.mark.parametrize("anywhere", ["folder"], indirect=True)  # memory is served by the same lines
def test_two_hundred_clients_at_once_are_all_served(anywhere: Store) -> None:
    together = threading.Barrier(AT_ONCE)
    with serving(anywhere) as running, ThreadPoolExecutor(AT_ONCE) as pool:
        installs = [pool.submit(install, running.port, together) for _ in range(AT_ONCE)]
        for done in installs:
            assert done.result() == [(200, PAGE), (200, DATA)]


def test_two_hundred_clients_may_come_before_the_first_is_taken() -> None:
    # A system whose queue is full forgets who comes then, and who tries again, for nobody is taken here.
    with contextlib.ExitStack() as opened:
        listener = opened.enter_context(serve._listen("127.0.0.1", 0))
        for _ in range(AT_ONCE):
            opened.enter_context(socket.create_connection(listener.getsockname(), timeout=5))


class Waiting(MemoryStore):
    """Gives nothing until it is told to."""

    def __init__(self) -> None:
        super().__init__(OBJECTS)
        self.asked = threading.Semaphore(0)
        self.go = threading.Event()

    def read(self, key: str) -> StoredObject:
        self.asked.release()
        self.go.wait()
        return super().read(key)


def test_those_that_a_slow_store_keeps_waiting_are_not_lost() -> None:
    store = Waiting()
    with serving(store) as running, contextlib.ExitStack() as opened:
        waiting = [opened.enter_context(connect(running.port)) for _ in range(AT_ONCE)]
        for connection in waiting:
            connection.sendall(GET)
        assert store.asked.acquire(timeout=60)
        store.go.set()
        assert all(connection.recv(1 << 16).endswith(STATE) for connection in waiting)


def test_clients_that_say_nothing_or_half_keep_nobody_waiting(anywhere: Store) -> None:
    with serving(anywhere) as running, contextlib.ExitStack() as opened:
        for said in (b"", b"G", GET[:-2], GET.replace(b"Host", b"X: y\r\nHost")[:-4]):
            for _ in range(50):
                opened.enter_context(connect(running.port)).sendall(said)
        assert answered(running.port)


def test_whoever_does_not_finish_a_request_is_let_go(
    anywhere: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve_http, "_IDLE", 0.1)
    with serving(anywhere) as running, connect(running.port) as connection:
        connection.sendall(GET[:-2])
        assert everything(connection) == b""


def test_whoever_asks_for_nothing_is_let_go(anywhere: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_http, "_IDLE", 0.1)
    with serving(anywhere) as running, connect(running.port) as connection:
        connection.sendall(GET)
        answer = everything(connection)
        assert (answer.count(b"HTTP/1.1 200"), answer.endswith(STATE)) == (1, True)


class Closing(io.BufferedReader):
    """Tells when it is closed."""

    def __init__(self, raw: io.RawIOBase, closed: threading.Event) -> None:
        super().__init__(raw)
        self._told = closed

    def close(self) -> None:
        super().close()
        self._told.set()


def test_whoever_does_not_take_what_was_asked_for_is_let_go(
    anywhere: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve_http, "_CHUNK_TIME", 0.1)
    anywhere.write(FILE, DATA * 10)  # more than the buffers of both sides hold
    closed, really_open = threading.Event(), anywhere.open

    def opened(key: str, *, start: int = 0, count: int | None = None) -> BinaryIO:
        stream = really_open(key, start=start, count=count)
        return Closing(stream.detach() if isinstance(stream, io.BufferedReader) else stream, closed)

    monkeypatch.setattr(anywhere, "open", opened)
    with serving(anywhere) as running, connect(running.port) as slow:
        slow.sendall(f"GET /{FILE} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert closed.wait(timeout=60)
        got = 0
        with contextlib.suppress(ConnectionResetError):
            while data := slow.recv(1 << 16):
                got += len(data)
        assert 0 < got < len(DATA) * 10


@pytest.mark.parametrize(
    ("head", "status"), [("Content-Length: 44", 413), ("Transfer-Encoding: chunked", 400), ("X : 1", 400)]
)
def test_what_follows_a_refused_head_is_not_taken_for_a_request(
    anywhere: Store, head: str, status: int
) -> None:
    # Behind a proxy, the answer to a request hidden in a body would go to a different client.
    for method in ("GET", "HEAD", "POST"):
        with serving(anywhere) as running, connect(running.port) as connection:
            connection.sendall(
                f"{method} /release/state.json HTTP/1.1\r\nHost: x\r\n{head}\r\n\r\n".encode() + GET
            )
            answers = everything(connection)  # it is closed
        told = 405 if (method, status) == ("POST", 413) else status
        assert statuses(answers) == [told]


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ((b"GET /a b HTTP/1.1", HOST), 400),
        ((b"GET / HTTP/1.1 ", HOST), 400),
        ((b"GET /\xc3\xa9 HTTP/1.1", HOST), 400),
        ((b"GET /\x00 HTTP/1.1", HOST), 400),
        ((b"GET / http/1.1", HOST), 400),
        ((b"(GET) / HTTP/1.1", HOST), 400),
        ((b"GET / HTTP/1.1",), 400),  # no host
        ((LINE, HOST, b"Host: y"), 400),
        ((LINE, HOST, b" folded: 1"), 400),
        ((LINE, HOST, b"X: 1", b"\tfolded"), 400),
        ((LINE, HOST, b"no colon"), 400),
        ((LINE, HOST, b": no name"), 400),
        ((LINE, HOST, b"X: a\x00b"), 400),
        ((LINE, HOST, b"X: a\nY: b"), 400),
        ((LINE, HOST, b"X: a\rY: b"), 400),
        ((LINE, HOST, b"Content-Length: 5, 5"), 400),
        ((LINE, HOST, b"Content-Length: 0", b"Content-Length: 5"), 400),
        ((LINE, HOST, b"Content-Length: +5"), 400),
        ((LINE, HOST, b"Content-Length: -1"), 400),
        ((LINE, HOST, b"Content-Length:"), 400),
        ((LINE, HOST, b"Content-Length: " + b"9" * 5_000), 400),
        ((LINE, HOST, b"Transfer-Encoding: gzip"), 400),
        ((LINE, HOST, b"Content-Length: 0", b"Transfer-Encoding: chunked"), 400),
        ((LINE, HOST, b"Content-Length: 5"), 413),
        ((LINE, HOST, b"Transfer-Encoding: Chunked"), 413),
        ((LINE, HOST, b"Content-Length: 0"), 200),
        ((LINE, HOST, b"Upgrade: websocket", b"Connection: Upgrade"), 200),
        ((b"", LINE, HOST), 200),
        ((b"GET /" + b"a" * 8_200 + b" HTTP/1.1", HOST), 400),
        ((LINE, HOST, *[b"X: 1"] * 130), 400),
        ((b"GET http://x/release/state.json HTTP/1.1", HOST), 200),
        ((b"GET http://[/ HTTP/1.1", HOST), 400),
        ((b"GET * HTTP/1.1", HOST), 400),
        *[((b"%s / HTTP/1.1" % method, HOST), 405) for method in (b"PUT", b"DELETE", b"OPTIONS", b"CONNECT")],
        ((b"get / HTTP/1.1", HOST), 400),
    ],
)
def test_a_head_has_one_spelling(lines: tuple[bytes, ...], status: int) -> None:
    # Where two readers could understand it differently, a proxy could be one of them.
    with serving(MemoryStore(OBJECTS)) as running, connect(running.port) as connection:
        connection.sendall(b"\r\n".join([*lines, b"", b""]))
        assert statuses(connection.recv(1 << 16)) == [status]


def test_who_sends_a_long_body_still_sees_the_answer(anywhere: Store) -> None:
    with serving(anywhere) as running, connect(running.port) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 500000\r\n\r\n" + bytes(500_000))
        answer = everything(connection)
    assert answer.startswith(b"HTTP/1.1 405 ")
    assert b"\r\nAllow: GET,HEAD\r\n" in answer


def test_a_head_without_end_is_not_read_to_the_end(anywhere: Store) -> None:
    with serving(anywhere) as running, connect(running.port) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n" + b"X: " + bytes(b"a" * 100_000))
        assert statuses(everything(connection)) == [400]


def test_requests_that_come_together_are_answered_in_their_order(anywhere: Store) -> None:
    asked = [
        GET,
        GET.replace(b"GET", b"HEAD"),
        GET.replace(b"state", b"none"),
        GET.replace(b"1.1", b"1.0"),
    ]
    with serving(anywhere) as running, connect(running.port) as connection:
        connection.sendall(b"".join(asked))
        answers = re.split(rb"HTTP/1\.[01] (?=[0-9])", everything(connection))[1:]
    assert [answer[:3] for answer in answers] == [b"200", b"200", b"404", b"200"]
    assert [answer.endswith(STATE) for answer in answers] == [True, False, False, True]


class Failing(MemoryStore):
    """Gives an error for one object, a part of another."""

    def __init__(self, error: Exception) -> None:
        super().__init__(OBJECTS)
        self._error = error

    def read(self, key: str) -> StoredObject:
        if key.endswith(".html"):
            raise self._error
        return super().read(key)

    def open(self, key: str, *, start: int = 0, count: int | None = None) -> BinaryIO:
        return io.BytesIO(super().open(key, start=start, count=count).read()[:1000])


@pytest.mark.parametrize("error", [StoreError("no answer"), OSError(5, "broken disk"), ValueError("defect")])
def test_a_store_that_fails_fails_one_request(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Failing(error)) as running, connect(running.port) as connection:
        connection.sendall(b"GET /release/simple/big/ HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 500 ")
        connection.sendall(GET)
        assert connection.recv(1 << 16).endswith(STATE)
    assert "warning: /release/simple/big/ could not be answered" in capsys.readouterr().err


def test_a_file_that_ends_too_early_is_not_taken_for_whole(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Failing(MissingKeyError("none"))) as running:
        with connect(running.port) as connection:
            connection.sendall(f"GET /{FILE} HTTP/1.1\r\nHost: x\r\nRange: bytes=0-2000\r\n\r\n".encode())
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 500 ")
        assert "has 1000 bytes from 0 on, not 2001" in capsys.readouterr().err
        with contextlib.closing(
            http.client.HTTPConnection("127.0.0.1", running.port, timeout=30)
        ) as connection:
            connection.request("GET", f"/{FILE}")
            with pytest.raises(http.client.IncompleteRead):
                connection.getresponse().read()
        assert answered(running.port)


def test_the_server_ends_whatever_its_clients_do(anywhere: Store) -> None:
    anywhere.write(FILE, DATA * 10)
    with contextlib.ExitStack() as opened:
        with serving(anywhere) as running:
            for said in (b"", GET[:9], GET, f"GET /{FILE} HTTP/1.1\r\nHost: x\r\n\r\n".encode()):
                opened.enter_context(connect(running.port)).sendall(said)
            assert answered(running.port)
        with pytest.raises(ConnectionRefusedError):
            connect(running.port)


class Opening(Waiting):
    """Opens a file only when the server ends."""

    def __init__(self, closed: threading.Event) -> None:
        super().__init__()
        self._closed = closed

    def open(self, key: str, *, start: int = 0, count: int | None = None) -> BinaryIO:
        self.asked.release()
        self.go.wait()
        stream = io.FileIO(os.devnull)
        assert super().open(key, start=start, count=count)
        return Closing(stream, self._closed)


def test_a_file_that_is_opened_while_the_server_ends_is_closed() -> None:
    closed = threading.Event()
    store = Opening(closed)
    with serving(store) as running, connect(running.port) as connection:
        connection.sendall(f"GET /{FILE} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert store.asked.acquire(timeout=60)
        threading.Timer(0.3, store.go.set).start()
    assert closed.is_set()


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_a_server_that_ends_forgets_no_client_that_it_was_taking() -> None:
    for _ in range(20):
        with contextlib.ExitStack() as opened:
            with serving(MemoryStore(OBJECTS)) as running:
                for _ in range(5):
                    opened.enter_context(connect(running.port))
            gc.collect()  # what was left open is found now


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = threading.active_count()
    yield
    assert threading.active_count() <= before
