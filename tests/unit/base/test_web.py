"""Reading from web servers."""

from __future__ import annotations

import io

import pytest

from cairn import web
from cairn.errors import NetworkError
from helpers.answers import answering


def fetch(url: str, *, most: int | None = None) -> tuple[bool, bytes]:
    out = io.BytesIO()
    return web.read(url, out=out, most=most, timeout=5, tip="try again"), out.getvalue()


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
