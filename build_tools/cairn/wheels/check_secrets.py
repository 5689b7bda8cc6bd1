"""Keys and tokens that have got into a file, told by the marks their makers give them for that purpose."""

from __future__ import annotations

import re
from dataclasses import dataclass

_OVERLAP = 512  # bytes: longer than what any pattern looks at
_BINARIES = (b"\x7fELF", b"MZ")


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """One kind of secret.

    Attributes:
        name: what it is.
        mark: a text that is in each; found much faster than the pattern.
        pattern: how a whole one looks.
    """

    name: str
    mark: bytes
    pattern: re.Pattern[bytes]


_KINDS = (
    _Kind(
        name="a private key",
        mark=b"PRIVATE KEY-----",
        pattern=re.compile(rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----\s+[A-Za-z0-9+/=\s]{64}"),
    ),
    _Kind(
        name="a key to Amazon's services",
        mark=b"AKIA",
        pattern=re.compile(rb"(?<![A-Za-z0-9])AKIA[A-Z2-7]{16}(?![A-Za-z0-9])(?<!EXAMPLE)"),
    ),
    _Kind(name="a GitHub token", mark=b"ghp_", pattern=re.compile(rb"ghp_[A-Za-z0-9]{36}")),
    _Kind(name="a GitHub token", mark=b"ghs_", pattern=re.compile(rb"ghs_[A-Za-z0-9]{36}")),
    _Kind(name="a GitHub token", mark=b"github_pat_", pattern=re.compile(rb"github_pat_\w{40}")),
    _Kind(
        name="a PyPI token",
        mark=b"pypi-AgEIcHlwaS5vcmc",
        pattern=re.compile(rb"pypi-AgEIcHlwaS5vcmc[\w-]{50}"),
    ),
)


class Scanner:
    """Looks through one file, piece by piece; binaries are let through, since texts are where they get in.

    Attributes:
        found: the kinds of secrets it has.
    """

    def __init__(self) -> None:
        self.found: set[str] = set()
        self._tail: bytes | None = b""

    def feed(self, piece: bytes) -> None:
        """Look at the next piece."""
        if self._tail == b"" and piece.startswith(_BINARIES):
            self._tail = None
        if self._tail is None:
            return
        text = self._tail + piece
        self.found |= {kind.name for kind in _KINDS if kind.mark in text and kind.pattern.search(text)}
        self._tail = text[-_OVERLAP:]
