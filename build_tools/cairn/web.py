"""Reading from web servers with the standard library alone, for the commands of the core.

Proxies and certificates are those of the environment (`HTTPS_PROXY`, `SSL_CERT_FILE`).
"""

from __future__ import annotations

import errno
import functools
import http.client
import io
import math
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from http import HTTPStatus
from typing import IO, TYPE_CHECKING
from urllib.request import Request

from cairn.errors import NetworkError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_BLOCK = 1 << 20
_SLOWEST = 1000  # bytes a second, once twice the timeout has passed
_NO_HEADERS: Mapping[str, str] = {}


class RefusalError(NetworkError):
    """A server answered a request with an error that is not 404.

    Attributes:
        status: of HTTP.
        headers: of the answer.
    """

    def __init__(self, message: str, *, tip: str, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(message, tip=tip)
        self.status, self.headers = status, headers


class _Paced(io.RawIOBase):
    """What a server sends, headers too; given up where it drips, which is an attack of TUF's list."""

    def __init__(self, raw: io.RawIOBase, patience: float) -> None:
        self._raw, self._patience, self._count, self._began = raw, patience, 0, time.monotonic()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        size = self._raw.readinto(buffer)
        self._count += size or 0
        seconds = time.monotonic() - self._began
        if size and seconds > self._patience and self._count < seconds * _SLOWEST:
            raise TimeoutError(errno.ETIMEDOUT, f"{self._count} bytes in {seconds:.0f} seconds")
        return size

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Answer(http.client.HTTPResponse):
    def __init__(
        self, sock: socket.socket, debuglevel: int = 0, method: str | None = None, url: str | None = None
    ) -> None:
        super().__init__(sock, debuglevel, method, url)
        self.fp = io.BufferedReader(_Paced(self.fp.detach(), 2 * (sock.gettimeout() or math.inf)))


class _Connection(http.client.HTTPConnection):
    response_class = _Answer


class _SecureConnection(http.client.HTTPSConnection):
    response_class = _Answer


class _Http(urllib.request.HTTPHandler):
    def http_open(self, req: Request) -> http.client.HTTPResponse:
        return self.do_open(_Connection, req)


class _Https(urllib.request.HTTPSHandler):
    def https_open(self, req: Request) -> http.client.HTTPResponse:
        return self.do_open(_SecureConnection, req, context=self._context)  # type: ignore[attr-defined]


class _Redirections(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage, newurl: str
    ) -> Request | None:
        fp.close()  # it would be read whole, however long it is
        return super().redirect_request(req, fp, code, msg, headers, newurl)


@functools.cache
def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(_Http, _Https, _Redirections)


def read(
    url: str,
    *,
    out: IO[bytes],
    most: int | None = None,
    timeout: float,
    tip: str,
    headers: Mapping[str, str] = _NO_HEADERS,
) -> str:
    """Read a file of a server or of this machine; return where it is, after redirections; "" for a 404.

    Args:
        url: an http, https or file URL.
        out: what is written to.
        most: bytes to read; the rest is left there.
        timeout: seconds without a byte; in twice as many, a kilobyte a second has to have come.
        tip: what to do where there is no answer.
        headers: of the request; where it is redirected to gets none of them.

    Raises:
        RefusalError: it answers with an error.
        NetworkError: it does not answer, hardly, or not to the end.
    """
    request = Request(url)  # noqa: S310 - callers name the scheme, which may be `file`
    for name, value in headers.items():
        request.add_unredirected_header(name, value)
    try:
        with _opener().open(request, timeout=timeout) as answer:
            count = 0
            while block := answer.read(_BLOCK if most is None else min(_BLOCK, most - count)):
                count += out.write(block)
            # What `Content-Length` names and did not come; `read(n)` does not complain. Files have none.
            if getattr(answer, "length", None) and count != most:
                raise NetworkError(f"cannot read {url}: it ends after {count} bytes", tip=tip)
            return str(answer.url)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == HTTPStatus.NOT_FOUND:
            return ""
        message = f"cannot read {url}: it answers {error.code} {error.reason}"
        raise RefusalError(message, tip=tip, status=error.code, headers=dict(error.headers)) from error
    except (urllib.error.URLError, TimeoutError, ConnectionError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        if url.startswith("file:") and isinstance(reason, FileNotFoundError):
            return ""
        cause = reason if isinstance(reason, Exception) else error
        why = getattr(cause, "strerror", None) or type(cause).__name__
        raise NetworkError(f"cannot read {url}: {why}", tip=tip) from error
