"""What a client is given of what there is: its type (PEP 691) and its part (RFC 9110, section 14)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cairn.release.index.render import HTML_TYPE, JSON_TYPE

# What each of our pages may be called, best first where a client takes all.
_NAMES = {
    "index.html": ("text/html", HTML_TYPE, HTML_TYPE.replace(".v1+", ".latest+")),
    "index.json": (JSON_TYPE, JSON_TYPE.replace(".v1+", ".latest+"), "application/json"),
}
_RANGE = re.compile(r"bytes=([0-9]*)-([0-9]*)")
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


def choose_page(accept: str | None, available: Sequence[str]) -> Choice | None:
    """The page that a client's `Accept` prefers, HTML where it does not care.

    Returns:
        None when it accepts none of those that are available.
    """
    # Highest weight first; where two weigh the same, the order of `_NAMES`. How specific a range is (RFC
    # 9110, section 12.5.1) makes no difference with two pages, of which installers name the types.
    ranked: list[tuple[float, int, Choice]] = []
    for part in (accept or "*/*").split(","):
        kind, *parameters = part.split(";")
        weight = _weight(parameters)
        for place, (filename, names) in enumerate(_NAMES.items()):
            name = _matching(kind.strip().lower(), names)
            if filename in available and name is not None and weight > 0:
                served = name.replace(".latest+", ".v1+")
                ranked.append((-weight, place, Choice(filename=filename, content_type=served)))
    return min(ranked, key=lambda item: item[:2])[2] if ranked else None


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


def _weight(parameters: Sequence[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.strip().partition("=")
        if name.lower() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


def _matching(kind: str, names: Sequence[str]) -> str | None:
    if kind == "*/*":
        return names[0]
    if kind.endswith("/*"):
        return next((name for name in names if name.startswith(kind[:-1])), None)
    return kind if kind in names else None
