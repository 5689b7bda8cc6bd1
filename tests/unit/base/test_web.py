"""Reading from web servers."""

from __future__ import annotations

import contextlib
import io
import socketserver
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cairn import web
from cairn.errors import NetworkError
from helpers.answers import answering


def fetch(url: str, *, most: int | None = None) -> tuple[bool, bytes]:
    out = io.BytesIO()
    return bool(web.read(url, out=out, most=most, timeout=5, tip="try again")), out.getvalue()


def test_a_file_is_read_whole_or_so_far() -> None:
    with answering("200 OK", body=b"12345") as url:
        assert fetch(url) == (True, b"12345")
        assert fetch(url, most=3) == (True, b"123")


def test_what_is_missing_is_no_error() -> None:
    with answering("404 Not Found") as url:
        assert fetch(url) == (False, b"")


@pytest.mark.parametrize(
    ("status", "body", "length", "message"),
    [
        ("503 Busy", b"", None, "503 Busy"),
        ("200 OK", b"123", 10, "it ends after 3 bytes"),
    ],
)
def test_what_is_not_whole_is_an_error(status: str, body: bytes, length: int | None, message: str) -> None:
    with answering(status, body=body, length=length) as url, pytest.raises(NetworkError, match=message):
        fetch(url)


def test_a_server_that_is_not_there_is_named() -> None:
    with pytest.raises(NetworkError, match=r"cannot read http://127\.0\.0\.1:9/: Connection refused"):
        fetch("http://127.0.0.1:9/")


@contextlib.contextmanager
def sending(*parts: bytes, pause: float = 0, times: int = 1) -> Iterator[tuple[str, list[int]]]:
    """Yield the URL of a server that sends the last part so often, and how much of that it sent."""
    sent = [0]

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while self.rfile.readline().strip():
                pass
            self.wfile.write(b"".join(parts[:-1]))
            with contextlib.suppress(OSError):
                for _ in range(times):
                    self.wfile.write(parts[-1])
                    sent[0] += 1
                    time.sleep(pause)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", sent
        server.shutdown()


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    "parts", [(OK, b"Content-Length: 80\r\n\r\n", b"x"), (OK, b"X-A: b\r\n")], ids=["body", "headers"]
)
def test_a_server_that_drips_is_given_up(parts: tuple[bytes, ...]) -> None:
    """TUF's attack of slow retrieval: always a byte before the timeout, and never the file."""
    with sending(*parts, pause=0.1, times=80) as (url, sent), pytest.raises(NetworkError, match="bytes in"):
        web.read(url, out=io.BytesIO(), timeout=0.5, tip="try again")
    assert sent[0] < 40


def test_what_a_redirection_says_is_not_read() -> None:
    """The standard library reads it whole, however long it is."""
    with answering("200 OK", body=b"12345") as there:
        head = f"HTTP/1.1 302 Found\r\nLocation: {there}\r\n\r\n".encode()
        with sending(head, b" " * 1_000_000, times=100) as (url, sent):
            assert fetch(url) == (True, b"12345")
            assert web.read(url, out=io.BytesIO(), timeout=5, tip="try again").rstrip("/") == there
    assert sent[0] < 50


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("/", r"cannot read http://127\.0\.0\.1:\d+: it redirects in a circle, or too often$"),
        (
            "ftp://example.invalid/x?key=1",
            r": it redirects from http: to ftp://example\.invalid/x, which is not read$",
        ),
        ("file:///etc/passwd", r": it redirects to file:///etc/passwd, which is not read$"),
        ("http://[::1/x", r": it redirects to an address that cannot be read$"),
        ("http://127.0.0.1:9/x?key=1", r"it leads to http://127\.0\.0\.1:9/x: Connection refused$"),
        ("{other}/y", r"it leads to http://127\.0\.0\.1:\d+/y, which answers 503 Busy$"),
    ],
)
def test_a_redirection_that_leads_nowhere_says_where(location: str, message: str) -> None:
    with answering("503 Busy") as other:
        head = f"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: {location.format(other=other)}\r\n\r\n"
        with sending(head.encode(), b"") as (url, _), pytest.raises(NetworkError, match=message):
            fetch(url)


def test_a_file_of_this_machine_is_read_and_may_be_missing(tmp_path: Path) -> None:
    """An index may be a folder, such as that of `cairn rocm package`."""
    (tmp_path / "index.html").write_bytes(b"abc")
    url = (tmp_path / "index.html").as_uri()
    assert fetch(url) == (True, b"abc")
    assert fetch(url, most=2) == (True, b"ab")
    assert fetch((tmp_path / "rocm" / "index.html").as_uri()) == (False, b"")
