"""RECORD: the list of a wheel's files with their hashes.

Source: https://packaging.python.org/en/latest/specifications/recording-installed-packages/#the-record-file
"""

from __future__ import annotations

import base64
import csv
import io
import re
from collections.abc import Sequence
from typing import NamedTuple

from cairn.errors import WheelError

# Files of the dist-info folder without a hash in RECORD: itself, and its signatures (PEP 427).
UNLISTED = ("RECORD", "RECORD.jws", "RECORD.p7s")

_COLUMNS = 3  # path, hash, size
# PEP 427: sha256 or better; md5 and sha1 are not permitted.
_STRONG = frozenset(("sha256", "sha384", "sha512", "sha3_256", "sha3_384", "sha3_512", "blake2b", "blake2s"))
_SIZE = re.compile(r"[0-9]{1,18}")
_HASH = re.compile(r"[a-z0-9_]+=[A-Za-z0-9_-]+")
# A row as nearly all are, without quotes: one search in C finds them all.
_PLAIN = re.compile(
    r'^([^",\r\n]++),(?:([a-z0-9_]++)=([A-Za-z0-9_-]++))?,([0-9]{0,18}+)\r?+\n', re.MULTILINE | re.ASCII
)
_new = tuple.__new__  # a torch wheel has 12,000 rows, and this takes half the time of the named constructor
# What makes a CSV field need quotes (RFC 4180).
_SPECIAL = re.compile(r'[",\r\n]')
_ODD_LINE_ENDS = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"


class RecordRow(NamedTuple):
    """One file (a tuple, because a torch wheel has 12,000 of them).

    Attributes:
        path: its path in the wheel.
        algorithm: the name of the hash, such as `sha256`; None for RECORD itself.
        digest: the hash, in URL-safe base64 without padding; None for RECORD itself.
        size: bytes; None when not said.
    """

    path: str
    algorithm: str | None = None
    digest: str | None = None
    size: int | None = None


def parse_record(text: str) -> tuple[RecordRow, ...]:
    """The rows of a RECORD file.

    Raises:
        WheelError: a row is blank, does not have three columns, has a malformed hash or size, or repeats a
            path.
    """
    if has_odd_line_end(text):
        raise WheelError("RECORD has line ends in which its readers differ")
    plain = _PLAIN.findall(text)
    # Every match is a whole line, so as many as there are line ends are all there is.
    if len(plain) == text.count("\n") and text.endswith("\n"):
        rows = [
            _new(RecordRow, (path, algorithm or None, digest or None, int(size) if size else None))
            for path, algorithm, digest, size in plain
        ]
    else:
        try:
            rows = [_row(cells) for cells in csv.reader(io.StringIO(text, newline=""))]
        except csv.Error as error:
            raise WheelError(f"RECORD is not CSV: {error}") from error
    if len({row.path for row in rows}) < len(rows):
        raise WheelError("RECORD lists a path twice")
    return tuple(rows)


def has_odd_line_end(text: str) -> bool:
    """Whether a line ends there for `str.splitlines`, and so for pip and installer, and not for others."""
    return text.count("\r") > text.count("\r\n") or any(end in text for end in _ODD_LINE_ENDS)


def format_record(rows: Sequence[RecordRow]) -> str:
    """The text of a RECORD file with these rows, in the order given."""
    # Searched for all at once: of thousands of paths, hardly any has such a character.
    quoted = _quoted if _SPECIAL.search("".join([row.path for row in rows])) else str
    return "".join(
        f"{quoted(path)},{f'{algorithm}={digest}' if algorithm else ''},{'' if size is None else size}\n"
        for path, algorithm, digest, size in rows
    )


def row_of(path: str, digest: bytes, size: int) -> RecordRow:
    """The row of a file whose sha256 is `digest` (32 bytes)."""
    return RecordRow(path=path, algorithm="sha256", digest=encode_digest(digest), size=size)


def encode_digest(digest: bytes) -> str:
    """A hash as RECORD writes it."""
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")


def is_strong(algorithm: str) -> bool:
    """Whether a hash algorithm may be used in RECORD: sha256 or better."""
    return algorithm in _STRONG


def _row(cells: list[str]) -> RecordRow:
    if not cells:
        raise WheelError("RECORD has a blank line, which pip cannot read")
    if len(cells) != _COLUMNS:
        raise WheelError(f"RECORD has a row of {len(cells)} columns: {','.join(cells)[:200]}")
    path, hashed, size = cells
    if size and not _SIZE.fullmatch(size):
        raise WheelError(f"RECORD gives {path} the size {size[:50]!r}")
    if hashed and not _HASH.fullmatch(hashed):
        raise WheelError(f"RECORD gives {path} the malformed hash {hashed[:100]!r}")
    algorithm, _, digest = hashed.partition("=")
    return RecordRow(path, algorithm or None, digest or None, int(size) if size else None)


def _quoted(path: str) -> str:
    return '"' + path.replace('"', '""') + '"' if _SPECIAL.search(path) else path
