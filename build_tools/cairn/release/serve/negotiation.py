"""What a client is given of what there is: its type (PEP 691), its coding and its part (RFC 9110)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from cairn.release.index.render import HTML_TYPE, JSON_TYPE

# What each of our pages may be called, best first where a client takes all.
_NAMES = {
    "index.html": ("text/html", HTML_TYPE, HTML_TYPE.replace(".v1+", ".latest+")),
    "index.json": (JSON_TYPE, JSON_TYPE.replace(".v1+", ".latest+"), "application/json"),
}
_RANGE = re.compile(r"bytes=([0-9]*)-([0-9]*)")
_WEIGHT = re.compile(r"0(\.[0-9]{0,3})?|1(\.0{0,3})?")  # RFC 9110, section 12.4.2
_DIGITS = 18  # of more bytes than any file has; Python converts no more than 4,300


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The page to give: its file name and what to call it."""

    filename: str
    content_type: str


@dataclass(frozen=True, kw_only=True)
class Span:
    """Part of a file: `count` bytes from `start`."""

    start: int
    count: int


class UnsatisfiableError(Exception):
    """The range lies outside the file."""


def choose_page(accept: str | None, available: Collection[str]) -> Choice | None:
    """The page that a client's `Accept` prefers, HTML where it does not care.

    Returns:
        None when it accepts none of those that are available.
    """
    weights = _weights(accept or "*/*")
    best: Choice | None = None
    most = 0.0
    for filename, names in _NAMES.items():
        for name in names if filename in available else ():
            # The most specific range counts (RFC 9110, section 12.5.1): `*/*, text/html;q=0` is all but HTML.
            ranges = (name, f"{name.partition('/')[0]}/*", "*/*")
            weight = next((weights[range_] for range_ in ranges if range_ in weights), 0.0)
            if weight > most:
                best, most = Choice(filename=filename, content_type=name.replace(".latest+", ".v1+")), weight
    return best


def is_text(content_type: str) -> bool:
    """Whether it is what people or programs read: pages, states, metadata."""
    return content_type.startswith("text/") or content_type.endswith(("json", "toml"))


def accepts_gzip(accept_encoding: str | None) -> bool:
    """Whether a client takes what is compressed by gzip."""
    weights = _weights(accept_encoding or "")
    return weights.get("gzip", weights.get("x-gzip", weights.get("*", 0.0))) > 0


def is_listed(etag: str, header: str | None) -> bool:
    """Whether an `If-None-Match` lists `etag`, which is in quotes as it is sent.

    Ours are strong; a proxy that compresses may have made a weak one of it, which is as good here (RFC 9110,
    section 13.1.2).
    """
    known = [part.strip().removeprefix("W/") for part in (header or "").split(",")]
    return etag in known or "*" in known


def parse_range(header: str | None, size: int) -> Span | None:
    """The part of a file of `size` bytes that a `Range` header asks for.

    Returns:
        None for the whole file: no header, several ranges at once, or one that cannot be read.

    Raises:
        UnsatisfiableError: it begins after the end.
    """
    match = _RANGE.fullmatch(header.strip()) if header else None
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if first == "":  # `bytes=-500`: the last 500
        start, end = max(0, size - _number(last)), size - 1
        if _number(last) == 0:
            raise UnsatisfiableError
    else:
        start, end = _number(first), min(_number(last), size - 1) if last else size - 1
        if last and _number(last) < start:
            return None  # RFC 9110, section 14.1.1: invalid, and so to be ignored
    if start >= size:
        raise UnsatisfiableError
    return Span(start=start, count=end - start + 1)


def _number(text: str) -> int:
    digits = text.lstrip("0") or "0"
    return int(digits) if len(digits) <= _DIGITS else 10**_DIGITS


def _weights(header: str) -> Mapping[str, float]:
    """How much a client wants each of what it lists, from 0 (not at all) to 1."""
    weights: dict[str, float] = {}
    for part in header.split(","):
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        weight = next((value[2:].strip() for value in parameters if value.startswith("q=")), "1")
        weights[name] = float(weight) if _WEIGHT.fullmatch(weight) else 0.0
    return weights
