from __future__ import annotations

from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.release.serve.request import RefusedError, parse

LINE = b"GET /release/simple/ HTTP/1.1"
HOST = b"Host: x"


def head(*lines: bytes) -> bytes:
    return b"\r\n".join([*lines, b"", b""])


def test_what_is_asked() -> None:
    request = parse(head(LINE, HOST, b"ACCEPT: a/b", b"accept:  c/d \t", b"X: caf\xe9", b"Empty:"))
    assert (request.method, request.target, request.keep_alive) == ("GET", "/release/simple/", True)
    assert request.headers == {"host": "x", "accept": "a/b, c/d", "x": "caf\xe9", "empty": ""}


@pytest.mark.parametrize(
    ("lines", "keep_alive"),
    [
        ((b"GET / HTTP/1.1", HOST, b"Connection: keep-alive"), True),
        ((b"GET / HTTP/1.1", HOST, b"Connection: TE, Close"), False),
        ((b"GET / HTTP/1.0",), False),
        ((b"GET / HTTP/1.9", HOST), True),
        ((b"", b"GET / HTTP/1.1", HOST), True),
        ((b"HEAD / HTTP/1.1", HOST, b"Content-Length: 0"), True),
    ],
)
def test_whether_another_request_may_follow(lines: tuple[bytes, ...], keep_alive: bool) -> None:  # noqa: FBT001
    assert parse(head(*lines)).keep_alive is keep_alive


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ((b"",), 400),
        ((b"GET /",), 400),
        ((b"GET  / HTTP/1.1", HOST), 400),
        ((b"GET / HTTP/1.1 ", HOST), 400),
        ((b"GET /a b HTTP/1.1", HOST), 400),
        ((b"GET /\xc3\xa9 HTTP/1.1", HOST), 400),
        ((b"GET /\x00 HTTP/1.1", HOST), 400),
        ((b"GET / http/1.1", HOST), 400),
        ((b"(GET) / HTTP/1.1", HOST), 400),
        ((b"GET / HTTP/1.1",), 400),  # no host
        ((LINE, HOST, b"Host: y"), 400),
        ((LINE, HOST, b"X : 1"), 400),
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
        ((LINE, HOST, b"Transfer-Encoding: gzip"), 400),
        ((LINE, HOST, b"Transfer-Encoding:"), 400),
        ((LINE, HOST, b"Content-Length: 0", b"Transfer-Encoding: chunked"), 400),
        ((LINE, HOST, b"Content-Length: 5"), 413),
        ((LINE, HOST, b"Content-Length: " + b"9" * 5_000), 413),
        ((LINE, HOST, b"Transfer-Encoding: Chunked"), 413),
        ((b"GET /" + b"a" * 8_000 + b" HTTP/1.1", HOST), 414),
        ((LINE, HOST, *[b"X: 1"] * 100), 431),
        ((b"GET / HTTP/2.0", HOST), 505),
        ((b"GET / HTTP/0.9",), 505),
    ],
)
def test_what_is_not_answered(lines: tuple[bytes, ...], status: int) -> None:
    with pytest.raises(RefusedError) as caught:
        parse(head(*lines))
    assert caught.value.status == status


@pytest.mark.parametrize("method", [b"POST", b"PUT", b"DELETE", b"OPTIONS", b"CONNECT", b"get", b"X"])
def test_another_method_is_told_which_there_are(method: bytes) -> None:
    with pytest.raises(RefusedError) as caught:
        parse(head(method + b" / HTTP/1.1", HOST, b"Content-Length: 3"))
    assert caught.value.status == HTTPStatus.METHOD_NOT_ALLOWED
    assert caught.value.headers == {"Allow": "GET, HEAD"}


@given(st.lists(st.one_of(st.binary(), st.sampled_from([LINE, HOST, b"Content-Length: 1", b"A:b"]))))
def test_any_bytes_are_a_request_or_refused(lines: list[bytes]) -> None:
    try:
        request = parse(head(*lines))
    except RefusedError:
        return
    assert request.method in ("GET", "HEAD")
    assert request.headers.get("content-length", "0") == "0"
    assert not any(set(value) & set("\r\n\0") for value in request.headers.values())
