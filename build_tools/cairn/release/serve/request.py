"""The head of a request, read strictly (RFC 9112): what two readers could understand differently is refused.

Behind a proxy that reads a request in a different way, the answer to one could go to another client (request
smuggling). So there is one spelling of everything, and no request has a body.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

METHODS = ("GET", "HEAD")

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # RFC 9110, section 5.6.2
# Visible ASCII alone: everything else has to be percent-encoded. RFC 9112, section 3.
_REQUEST_LINE = re.compile(rb"(%s) ([!-~]+) HTTP/([0-9])\.([0-9])" % _TOKEN)
# No white space before the colon, no line that continues the one before (RFC 9112, sections 5.1 and 5.2), no
# control characters. Values may have bytes beyond ASCII, which mean nothing here.
_FIELD = re.compile(rb"(%s):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)" % _TOKEN)
_FIELDS = 100
_TARGET = 8000  # bytes; RFC 9112, section 3, recommends at least this


class RefusedError(Exception):
    """A request that is not answered as it was meant.

    Attributes:
        status: what is said to it.
        headers: and with what.
    """

    def __init__(self, status: HTTPStatus, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(f"{status.value} {status.phrase}")
        self.status = status
        self.headers = dict(headers or {})


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a client asks for.

    Attributes:
        method: `GET` or `HEAD`.
        target: as it was sent.
        headers: by lower-case name; several of one name joined by commas (RFC 9110, section 5.3).
        keep_alive: whether another request may follow on the connection.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    keep_alive: bool


def parse(head: bytes) -> Request:
    """Read the head of a request, up to the empty line that ends it.

    Raises:
        RefusedError: it breaks a rule, has a body, or asks for what a server of files does not do.
    """
    # One empty line before a request is to be ignored (RFC 9112, section 2.2).
    line, *lines = head.removeprefix(b"\r\n").removesuffix(b"\r\n\r\n").split(b"\r\n")
    match = _REQUEST_LINE.fullmatch(line)
    if match is None:
        raise RefusedError(HTTPStatus.BAD_REQUEST)
    method, target, major, minor = (part.decode() for part in match.groups())
    if major != "1":
        raise RefusedError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
    if len(target) > _TARGET:
        raise RefusedError(HTTPStatus.REQUEST_URI_TOO_LONG)
    headers = _headers(lines)
    # RFC 9112, section 3.2: two would lead two readers to two places.
    if "," in headers.get("host", "") or (minor != "0" and "host" not in headers):
        raise RefusedError(HTTPStatus.BAD_REQUEST)
    if method not in METHODS:
        raise RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, {"Allow": ", ".join(METHODS)})
    _refuse_body(headers)
    options = [option.strip().lower() for option in headers.get("connection", "").split(",")]
    return Request(
        method=method, target=target, headers=headers, keep_alive=minor != "0" and "close" not in options
    )


def _headers(lines: list[bytes]) -> dict[str, str]:
    if len(lines) > _FIELDS:
        raise RefusedError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
    headers: dict[str, str] = {}
    for line in lines:
        match = _FIELD.fullmatch(line)
        if match is None:
            raise RefusedError(HTTPStatus.BAD_REQUEST)
        name, value = match[1].decode().lower(), match[2].decode("latin-1").rstrip(" \t")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _refuse_body(headers: Mapping[str, str]) -> None:
    """No request that is answered has a body, so none can be taken for the next request."""
    length, encoding = headers.get("content-length"), headers.get("transfer-encoding")
    if length is None and encoding is None:
        return
    if encoding is None and length == "0":
        return
    well_formed = encoding is None or (length is None and encoding.lower() == "chunked")
    if well_formed and (length is None or re.fullmatch("[0-9]+", length)):
        raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    raise RefusedError(HTTPStatus.BAD_REQUEST)
