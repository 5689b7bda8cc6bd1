"""Writing a kpack archive; `archive` says what is in one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

import msgspec
import zstandard

from cairn import files
from cairn.errors import WheelError
from cairn.formats.kpack.archive import CODE, HEADER, MAGIC, VERSION, WORD, ZSTD, Entry, Table
from cairn.formats.kpack.reference import key_of

_LEVEL = 3  # zstd's own default, which clang takes for bundles too
_LONGEST_FRAME = (1 << 32) - 1


@contextlib.contextmanager
def writing(path: Path, *, group: str, family: str, targets: Iterable[str]) -> Iterator[Writer]:
    """Yield the writer of an archive, which is at `path` once the block has ended without an error.

    Args:
        path: where it will be.
        group: of what it is a part.
        family: what its targets are called together.
        targets: those that it is for.
    """
    with files.writing_beside(path) as part, part.open("wb") as out:
        writer = Writer(out)
        yield writer
        writer.finish(group, family, tuple(targets))


class Writer:
    """An archive that is being written: `add` the code, and `name` whose it is.

    Code goes to the disk at once, a piece at a time, each code object compressed by itself with zstd.
    """

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        self._sizes: list[int] = []
        self._toc: dict[str, dict[str, Entry]] = {}
        # The header, which says where the table is, and the count of frames come when they are known.
        self._at = HEADER.size + WORD.size
        out.write(bytes(self._at))

    def add(self, pieces: Iterable[bytes], plain: int) -> int:
        """Write a code object of `plain` bytes; returns its ordinal in the archive.

        Raises:
            WheelError: the pieces have more bytes or fewer.
        """
        at, size = self._at + WORD.size, 0
        self._out.write(bytes(WORD.size))
        # A stream does not know its length by itself, and rocm-kpack's Python reader, which unpacks in
        # one go (`ZstdDecompressor.decompress`), refuses a frame that does not say it.
        packer = zstandard.ZstdCompressor(level=_LEVEL).compressobj(size=plain)
        try:
            for piece in pieces:
                size += self._out.write(packer.compress(piece))
            size += self._out.write(packer.flush())
        except zstandard.ZstdError as error:
            raise WheelError(f"a code object is not of {plain} bytes: {error}") from error
        if size > _LONGEST_FRAME:
            raise WheelError(f"a code object that takes {size} bytes is too large for a kpack archive")
        self._out.seek(at - WORD.size)
        self._out.write(WORD.pack(size))
        self._out.seek(at + size)
        self._at = at + size
        self._sizes.append(plain)
        return len(self._sizes) - 1

    def name(self, kernel_name: str, wrapper: int, target: str, ordinal: int) -> None:
        """Let the code object `ordinal` be that of a wrapper for a target."""
        row = self._toc.setdefault(key_of(kernel_name, wrapper), {})
        if target in row:
            raise WheelError(f"{kernel_name} has two code objects for {target} at its wrapper {wrapper}")
        row[target] = Entry(type=CODE, ordinal=ordinal, original_size=self._sizes[ordinal])

    def finish(self, group: str, family: str, targets: tuple[str, ...]) -> None:
        """Write the table, and the header that leads to it."""
        table = Table(
            format_version=VERSION,
            group_name=group,
            gfx_arch_family=family,
            gfx_arches=targets,
            compression_scheme=ZSTD,
            toc=self._toc,
            zstd_offset=HEADER.size,
            zstd_size=self._at - HEADER.size,
        )
        self._out.write(msgspec.msgpack.encode(table))
        self._out.seek(0)
        self._out.write(HEADER.pack(MAGIC, VERSION, self._at))
        self._out.write(WORD.pack(len(self._sizes)))
