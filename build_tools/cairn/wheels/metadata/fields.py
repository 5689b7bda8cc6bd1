"""The `Name: value` lines of METADATA and WHEEL, changed line by line so that all others stay as they are.

Source: https://packaging.python.org/en/latest/specifications/core-metadata/ (email headers, PEP 566).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.errors import WheelError

if TYPE_CHECKING:
    from packaging.metadata import RawMetadata

# As Python's email.feedparser has it (printable ASCII but the colon: RFC 5322, section 2.2), which takes the
# headers to be over at any other line.
_HEADER = re.compile(r"[!-9;-~]+:")
_FIELD = re.compile(rb"^[!-9;-~]+(?=:)", re.MULTILINE)
_HEAD_END = re.compile(rb"\n\r?\n")
_MOST_FIELDS = 1_000  # the core metadata specification has about thirty
_MOST_REQUIREMENTS = 20_000  # the longest lists on PyPI have some two thousand


@dataclass(frozen=True, kw_only=True)
class Headers:
    """A header block and what follows it.

    Attributes:
        lines: one entry per header with its continuation lines, as they stand, without the last line end.
        body: everything from the blank line on.
        name: the file, for errors.
        end: what every line of the headers ends with; a line feed where they differ.
    """

    lines: tuple[str, ...]
    body: bytes
    name: str
    end: str = "\n"

    def all(self, field: str) -> tuple[str, ...]:
        """The values of every header of that name, continuation lines folded into one."""
        return tuple(_value(line) for line in self.lines if _is(line, field))

    def replaced(self, field: str, values: Iterable[str]) -> Headers:
        """The same with other values for `field`: where the first one stood, else after all others.

        Raises:
            WheelError: a value has a line end or other control character.
        """
        new = [_line(field, value) for value in values]
        lines: list[str] = []
        placed = False
        for line in self.lines:
            if not _is(line, field):
                lines.append(line)
            elif not placed:
                lines += new
                placed = True
        return self._with(lines if placed else [*lines, *new])

    def mapped(self, field: str, change: Callable[[str], str | None]) -> Headers:
        """The same with each value of `field` changed; None drops the header.

        Raises:
            WheelError: a new value has a line end or other control character.
        """
        lines: list[str] = []
        for line in self.lines:
            if not _is(line, field):
                lines.append(line)
            elif (value := change(_value(line))) is not None:
                lines.append(line if value == _value(line) else _line(field, value))
        return self._with(lines)

    def added(self, field: str, values: Iterable[str]) -> Headers:
        """The same with more headers of that name, after the last one there is.

        Raises:
            WheelError: a value has a line end or other control character.
        """
        at = max((i + 1 for i, line in enumerate(self.lines) if _is(line, field)), default=len(self.lines))
        new = [_line(field, value) for value in values]
        return self._with([*self.lines[:at], *new, *self.lines[at:]])

    def to_bytes(self) -> bytes:
        """The file."""
        text = "".join(f"{line}\n" for line in self.lines).replace("\n", self.end)
        return text.encode("utf-8", "surrogateescape") + self.body

    def _with(self, lines: Iterable[str]) -> Headers:
        return dataclasses.replace(self, lines=tuple(lines))


def parse_headers(data: bytes, *, name: str) -> Headers:
    """Split a file into its headers and its body.

    Raises:
        WheelError: a line is neither a header nor the continuation of one.
    """
    lines: list[list[str]] = []
    position = 0
    while position < len(data):
        stop = data.find(b"\n", position)
        stop = len(data) if stop < 0 else stop
        line = data[position:stop].removesuffix(b"\r").decode("utf-8", "surrogateescape")
        if not line:
            break
        # A carriage return alone ends a line for some readers and not for others, so none may be inside one.
        if "\r" not in line and line[0] in " \t" and lines:
            lines[-1].append(line)
        elif "\r" not in line and _HEADER.match(line):
            lines.append([line])
        else:
            raise WheelError(f"{name} has the line {line[:100]!r}, which is not a header")
        position = stop + 1
    head = data[:position]
    end = "\r\n" if head and head.count(b"\n") == head.count(b"\r\n") else "\n"
    return Headers(lines=tuple(map("\n".join, lines)), body=data[position:], name=name, end=end)


def core_metadata(data: bytes, *, name: str) -> RawMetadata:
    """METADATA or PKG-INFO, read as tolerantly as installers do.

    Raises:
        WheelError: it has two Requires-Python, or more different fields, or more requirements, than any
            project needs (the time to read them grows with the square of their number).
    """
    end = _HEAD_END.search(data)
    fields = {match[0].lower() for match in _FIELD.finditer(data, 0, end.start() if end else len(data))}
    if len(fields) > _MOST_FIELDS:
        raise WheelError(
            f"{name} has {len(fields)} different fields, more than the {_MOST_FIELDS} that are read"
        )
    from packaging.metadata import parse_email  # noqa: PLC0415 - who asks for a file name alone needs none

    raw, unparsed = parse_email(data)
    if len(unparsed.get("requires-python", ())) > 1:  # pip takes the first, and an index none
        raise WheelError(f"{name} has two Requires-Python", tip="build it again with one")
    if (count := len(raw.get("requires_dist", ()))) > _MOST_REQUIREMENTS:
        raise WheelError(
            f"{name} has {count} requirements, more than the {_MOST_REQUIREMENTS} that are read",
            tip="name those that the project needs itself; theirs come with them",
        )
    return raw


def _line(field: str, value: str) -> str:
    # Readers differ in what ends a line (\x85 and \u2028 do for str.splitlines), so none of it goes in.
    if not value.isprintable():
        raise WheelError(
            f"{field} cannot be {value[:100]!r}: it has a line end or a character that is not printable"
        )
    return f"{field}: {value}"


def _is(line: str, field: str) -> bool:
    return line.partition(":")[0].strip().lower() == field.lower()


def _value(line: str) -> str:
    return " ".join(part.strip() for part in line.partition(":")[2].splitlines()).strip()
