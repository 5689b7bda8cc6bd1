"""Reading from web servers with the standard library alone, for the commands of the core.

Proxies and certificates are those of the environment (`HTTPS_PROXY`, `SSL_CERT_FILE`). Names and passwords
are those of an address, or of the user's netrc file.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import functools
import http.client
import io
import math
import netrc
import os
import re
import shutil
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple, Protocol
from urllib.parse import quote, unquote, urlsplit
from urllib.request import Request

from cairn.errors import NetworkError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_BLOCK = 1 << 20
_SLOWEST = 1000  # bytes a second, once twice the timeout has passed
_NO_HEADERS: Mapping[str, str] = {}
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})")
# What servers answer that do not know ranges, or not that of the last bytes of a file.
_NO_PARTS = frozenset(
    (
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.METHOD_NOT_ALLOWED,
        HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
        HTTPStatus.NOT_IMPLEMENTED,
    )
)
_LARGEST = 16 << 30  # bytes of a download; the largest wheel of ROCm's libraries has about 2 GiB
_KEPT_FREE = 1 << 30
_SAFE = "%/:=&?~#+!$,;'@()*[]"  # what stays in an address as it is; all else that is not ASCII is quoted


class Sink(Protocol):
    """What bytes are written to."""

    def write(self, data: bytes, /) -> int:
        """Write bytes, and return how many."""


class RefusalError(NetworkError):
    """A server answered a request with an error that is not 404.

    Attributes:
        status: of HTTP.
        headers: of the answer.
    """

    def __init__(self, message: str, *, tip: str, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(message, tip=tip)
        self.status, self.headers = status, headers


class MissingFileError(NetworkError):
    """There is nothing at an address."""


class WholeFileError(NetworkError):
    """A server offers a file as a whole, where a part of it was requested.

    Attributes:
        size: of the file in bytes, where the server says so.
        only_end: it may offer parts that are not counted from the end of the file.
    """

    def __init__(self, message: str, *, size: int | None, only_end: bool, tip: str) -> None:
        super().__init__(message, tip=tip)
        self.size, self.only_end = size, only_end


class Part(NamedTuple):
    """A part of a file on a server.

    Attributes:
        url: where it is, after redirections.
        start: the offset of its first byte.
        data: its bytes.
        total: the size of the file in bytes.
        tag: what changes with the file: its ETag, or when it was last modified; empty where the server
            names neither.
    """

    url: str
    start: int
    data: bytes
    total: int
    tag: str


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
    def http_error_302(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage
    ) -> http.client.HTTPResponse | None:
        try:
            urlsplit(headers.get("Location") or headers.get("URI") or "")
        except ValueError:  # such as a host of half an IPv6 address
            fp.close()
            raise urllib.error.URLError("it redirects to an address that cannot be read") from None
        return super().http_error_302(req, fp, code, msg, headers)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage, newurl: str
    ) -> Request | None:
        fp.close()  # it would be read whole, however long it is
        old, new = urlsplit(req.full_url), urlsplit(newurl)
        if new.scheme not in ({"https"} if old.scheme == "https" else {"http", "https"}):
            raise urllib.error.URLError(
                f"it redirects from {old.scheme}: to {shown(newurl)}, which is not read"
            )
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None:
            request.places = _places_of(req)  # type: ignore[attr-defined]
            request.places.append(newurl)  # type: ignore[attr-defined]
        if request is not None and old[:2] == new[:2] and req.has_header("Authorization"):
            request.add_unredirected_header("Authorization", str(req.get_header("Authorization")))
        return request


def _places_of(request: Request) -> list[str]:
    """The addresses that a request was redirected to, in a list that it shares with what they lead to."""
    return vars(request).setdefault("places", [])  # type: ignore[no-any-return]


@functools.cache
def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(_Http, _Https, _Redirections)


def read(
    url: str,
    *,
    out: Sink,
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
    try:
        with _answer(_request(url, headers), url, timeout=timeout, tip=tip) as answer:
            count = 0
            while block := answer.read(_BLOCK if most is None else min(_BLOCK, most - count)):
                count += out.write(block)
            # What `Content-Length` names and did not come; `read(n)` does not complain. Files have none.
            if getattr(answer, "length", None) and count != most:
                raise NetworkError(f"cannot read {shown(url)}: it ends after {count} bytes", tip=tip)
            return with_credentials(str(answer.url), url)
    except MissingFileError:
        return ""


def whole(url: str, *, most: int, timeout: float, tip: str) -> bytes | None:
    """Return a file of a server or of this machine; None where there is none (404). See `read`.

    Raises:
        NetworkError: there is no whole answer, or one of more than `most` bytes.
    """
    out = io.BytesIO()
    place = read(url, out=out, most=most + 1, timeout=timeout, tip=tip)
    if out.tell() > most:
        raise NetworkError(f"{shown(url)} is larger than {most >> 20} MiB, and was not read", tip=tip)
    return out.getvalue() if place else None


def most_of(folder: Path) -> int:
    """Return how many bytes a download into a folder may have: a server that never ends fills no disk."""
    return max(0, min(_LARGEST, shutil.disk_usage(folder).free - _KEPT_FREE))


def too_large(url: str, most: int) -> str:
    """Say that a download has more bytes than `most_of` allows."""
    return (
        f"{shown(url)} is larger than {most >> 20} MiB: no file of a build or of ROCm has more than "
        f"{_LARGEST >> 30} GiB, and {_KEPT_FREE >> 30} GiB of disk stays free"
    )


def read_part(url: str, start: int | None, size: int, *, tag: str = "", timeout: float, tip: str) -> Part:
    """Read a part of a file on a server (RFC 9110, section 14: range requests).

    Args:
        url: an http or https URL.
        start: the offset of the first byte; None for the end of the file.
        size: bytes; the end of a file may be shorter.
        tag: what an earlier part of the same file came with.
        timeout: see `read`.
        tip: see `read`.

    Raises:
        MissingFileError: there is no such file.
        WholeFileError: the server has no parts of it; or, where there is a `tag`, the file was changed.
        NetworkError: the server does not answer, with an error, or with something else than was requested.
    """
    span = f"-{size}" if start is None else f"{start}-{start + size - 1}"
    headers = {"Range": f"bytes={span}", "Accept-Encoding": "identity"}
    if tag.startswith('"'):  # a weak tag may not stand there (RFC 9110, section 13.1.5)
        headers["If-Range"] = tag
    wrong = f"cannot read {shown(url)} in parts: it answers to {headers['Range']} with"
    request = _request(url, _NO_HEADERS)
    for name, value in headers.items():
        request.add_header(name, value)
    with _answer(request, url, timeout=timeout, tip=tip) as answer:
        if answer.status != HTTPStatus.PARTIAL_CONTENT:
            raise WholeFileError(
                f"{shown(url)} is not offered in parts",
                size=answer.length,
                only_end=start is None and answer.headers.get("Accept-Ranges") == "bytes",
                tip=tip,
            )
        text = answer.headers.get("Content-Range", "no Content-Range")
        match = _CONTENT_RANGE.fullmatch(text.strip())
        if match is None or answer.headers.get("Content-Encoding", "identity") != "identity":
            raise NetworkError(f"{wrong} {text[:80]}", tip=tip)
        first, last, total = map(int, match.groups())
        begin = max(total - size, 0) if start is None else start
        if start is None and first == 0 < begin:  # "-5" was taken for "0-5"
            raise WholeFileError("", size=total, only_end=True, tip=tip)
        if (first, last) != (begin, min(begin + size, total) - 1) or last < first:
            raise NetworkError(f"{wrong} {text[:80]}", tip=tip)
        count = last - first + 1
        data = answer.read(count)
        if len(data) != count or answer.length:
            came = f"more than {count}" if answer.length else f"{len(data)} of {count}"
            raise NetworkError(f"{wrong} {came} bytes", tip=tip)
        changes = answer.headers.get("ETag") or answer.headers.get("Last-Modified") or ""
        return Part(with_credentials(str(answer.url), url), first, data, total, changes)


@contextlib.contextmanager
def _answer(request: Request, url: str, *, timeout: float, tip: str) -> Iterator[http.client.HTTPResponse]:
    """Open what is at an address; whatever goes wrong until the block ends is a NetworkError."""
    name = shown(url)
    try:
        with _opener().open(request, timeout=timeout) as answer:
            yield answer
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == HTTPStatus.NOT_FOUND:
            raise MissingFileError(f"there is no {name}", tip=tip) from error
        if request.has_header("Range") and error.code in _NO_PARTS:
            message = f"{name} is not offered in parts"
            raise WholeFileError(message, size=None, only_end=True, tip=tip) from error
        message = f"cannot read {name}: {_led(request)} answers {error.code} {error.reason}"
        if error.code in range(300, 400):  # the standard library gives up, with sentences of its own
            end = error.filename or ""  # its place, or one of a scheme that it never follows
            is_far = urlsplit(end).scheme not in ("http", "https")
            why = f"to {shown(end)}, which is not read" if is_far else "in a circle, or too often"
            message = f"cannot read {name}: it redirects {why}"
        raise RefusalError(message, tip=tip, status=error.code, headers=dict(error.headers)) from error
    except (
        urllib.error.URLError,
        TimeoutError,
        ConnectionError,
        http.client.HTTPException,
        UnicodeError,  # of the name of a host, or of a header
    ) as error:
        reason = getattr(error, "reason", error)
        if url.startswith("file:") and isinstance(reason, FileNotFoundError):
            raise MissingFileError(f"there is no {name}", tip=tip) from error
        cause = reason if isinstance(reason, Exception) else error
        fallback = reason if isinstance(reason, str) else type(cause).__name__
        why = getattr(cause, "strerror", None) or fallback
        places = _places_of(request)
        led = f"it leads to {shown(places[-1])}: " if places else ""
        raise NetworkError(f"cannot read {name}: {led}{why}", tip=tip) from error


def _led(request: Request) -> str:
    """What answers, for a sentence: the address itself, or where it leads."""
    places = _places_of(request)
    return f"it leads to {shown(places[-1])}, which" if places else "it"


def _request(url: str, headers: Mapping[str, str]) -> Request:
    """A request with headers, and a name and a password, that no other server gets.

    These are the address's own, or those that the user's netrc file has for the host.
    """
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    quoted = {"path": quote(parts.path, safe=_SAFE), "query": quote(parts.query, safe=_SAFE)}
    # Callers name the scheme, which may be `file`.
    request = Request(parts._replace(netloc=host, **quoted).geturl())  # noqa: S310
    if parts.scheme in ("http", "https"):
        name, _, password = user.partition(":")
        login = (unquote(name), unquote(password)) if at else logins().get(parts.hostname or "")
        if login:
            pair = base64.b64encode(":".join(login).encode()).decode("ascii")
            request.add_unredirected_header("Authorization", f"Basic {pair}")
    for name, value in headers.items():
        request.add_unredirected_header(name, value)
    return request


def logins() -> dict[str, tuple[str, str]]:
    """Return the names and passwords in the user's netrc file, by host; none where it cannot be read."""
    paths = [Path(os.environ["NETRC"])] if os.environ.get("NETRC") else []
    with contextlib.suppress(RuntimeError):  # a container without users has no home
        paths += [Path.home() / name for name in (".netrc", "_netrc")]  # as requests looks for it
    for path in paths:
        with contextlib.suppress(OSError, netrc.NetrcParseError):
            return {host: (login, password) for host, (login, _, password) in netrc.netrc(path).hosts.items()}
    return {}


def with_credentials(place: str, url: str) -> str:
    """Return an address with the name and the password of another one, where both are of one server."""
    target, (scheme, netloc, *_) = urlsplit(place), urlsplit(url)
    user, at, host = netloc.rpartition("@")
    is_same = at and (scheme, host) == (target.scheme, target.netloc)
    return target._replace(netloc=f"{user}@{host}").geturl() if is_same else place


def shown(url: str) -> str:
    """Return an address without what may be secret in it: a password, and the query of a signed one."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
