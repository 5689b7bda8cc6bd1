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
from cairn.formats.kpack.archive import CODE, HEADER, MAGIC, PLAIN, VERSION, WORD, ZSTD, Blob, Entry, Table
from cairn.formats.kpack.reference import key_of

_ALIGNMENT = 4096  # of the code: a runtime may map the file instead of reading it
_LEVEL = 3  # zstd's own default, which clang takes for bundles too
_LONGEST_FRAME = (1 << 32) - 1


@contextlib.contextmanager
def writing(
    path: Path, *, group: str, family: str, targets: Iterable[str], packed: bool = True
) -> Iterator[Writer]:
    """Yield the writer of an archive, which is at `path` once the block has ended without an error.

    Args:
        path: where it will be.
        group: of what it is a part.
        family: what its targets are called together.
        targets: those that it is for.
        packed: whether to compress each code object, with zstd.
    """
    with files.writing_beside(path) as part, part.open("wb") as out:
        writer = Writer(out, packed=packed)
        yield writer
        writer.finish(group, family, tuple(targets))


class Writer:
    """An archive that is being written: `add` the code, and `name` whose it is.

    Code goes to the disk at once, a piece at a time.
    """

    def __init__(self, out: IO[bytes], *, packed: bool) -> None:
        self._out = out
        self._packed = packed
        self._places: list[Blob] = []
        self._sizes: list[int] = []
        self._toc: dict[str, dict[str, Entry]] = {}
        # The header, which says where the table is, and the count of frames come when they are known.
        self._at = HEADER.size + (WORD.size if packed else 0)
        out.write(bytes(self._at))

    def add(self, pieces: Iterable[bytes], plain: int) -> int:
        """Write a code object of `plain` bytes; returns its ordinal in the archive.

        Raises:
            WheelError: the pieces have more bytes or fewer.
        """
        if self._packed:
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
        else:
            at = self._at + -self._at % _ALIGNMENT
            self._out.write(bytes(at - self._at))
            size = sum(map(self._out.write, pieces))
            if size != plain:
                raise WheelError(f"a code object is not of {plain} bytes, but of {size}")
        self._at = at + size
        self._places.append(Blob(offset=at, size=size))
        self._sizes.append(plain)
        return len(self._places) - 1

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
            compression_scheme=ZSTD if self._packed else PLAIN,
            toc=self._toc,
            blobs=msgspec.UNSET if self._packed else tuple(self._places),
            zstd_offset=HEADER.size if self._packed else msgspec.UNSET,
            zstd_size=self._at - HEADER.size if self._packed else msgspec.UNSET,
        )
        self._out.write(msgspec.msgpack.encode(table))
        self._out.seek(0)
        self._out.write(HEADER.pack(MAGIC, VERSION, self._at))
        if self._packed:
            self._out.write(WORD.pack(len(self._places)))
