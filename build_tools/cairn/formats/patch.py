"""Writing into a file at given places: how device code is cut out and put back, and an ELF file is edited.

`apply_patches` writes a list of `Patch`; a library of 400 MB costs as much as what changes in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_STEP = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Patch:
    """Bytes to be written: `data` at the place `at` of a file, and behind it so many zeros."""

    at: int
    data: bytes = b""
    zeros: int = 0

    @property
    def end(self) -> int:
        """Where what is not changed goes on."""
        return self.at + len(self.data) + self.zeros

    def pieces(self) -> Iterator[bytes]:
        """What to write, in pieces of a size that memory holds."""
        yield self.data
        for start in range(0, self.zeros, _STEP):
            yield bytes(min(_STEP, self.zeros - start))


def apply_patches(path: Path, patches: Iterable[Patch]) -> None:
    """Write patches into a file."""
    with path.open("r+b") as out:
        for patch in patches:
            out.seek(patch.at)
            out.writelines(patch.pieces())
