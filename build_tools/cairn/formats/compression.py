"""zlib and zstd for device code: reading streams no further than needed, and compressing again."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from typing import IO, Any, Protocol

from cairn.errors import WheelError
from cairn.formats.view import View

if sys.version_info >= (3, 14):
    from compression.zstd import (
        CompressionParameter,
        DecompressionParameter,
        ZstdCompressor,
        ZstdDecompressor,
        ZstdError,
        ZstdFile,
        get_frame_info,
    )
else:
    from backports.zstd import (
        CompressionParameter,
        DecompressionParameter,
        ZstdCompressor,
        ZstdDecompressor,
        ZstdError,
        ZstdFile,
        get_frame_info,
    )

__all__ = [
    "CompressionParameter",
    "DecompressionParameter",
    "ZstdCompressor",
    "ZstdDecompressor",
    "ZstdError",
    "ZstdFile",
    "get_frame_info",
]


ZLIB, ZSTD = 0, 1  # the method in the header of a compressed bundle
_STEP = 1 << 16
# What zstd allows itself with --long, which clang uses: 128 MiB.
_LONGEST_WINDOW: dict[int, int] = {DecompressionParameter.window_log_max: 27}
_RATIO_CHECK_MIN_SIZE = 16 << 20  # what unpacks to less does no harm however well it is compressed
_RATIO = 250  # far more than code for many targets is ever compressed by

# Levels that are tried in order to get the original bytes again: clang's defaults come first (6 of zlib, 3
# of zstd: OffloadBundler.cpp), then others that people ask for. zstd runs with long distance matching, as in
# clang: the code of one target looks much like that of the next.
LEVELS = {ZLIB: (6, 9, 1), ZSTD: (3, 5, 9)}


def most_unpacked(size: int) -> int:
    """The most bytes that `size` compressed ones may unpack to; more is an attack."""
    return max(_RATIO_CHECK_MIN_SIZE, _RATIO * size)


class Reader(Protocol):
    """A sequential source of bytes."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; none at the end."""


class ViewReader:
    """Part of a view, read from its beginning to its end.

    Attributes:
        at: the place that is read next.
    """

    def __init__(self, view: View, at: int, end: int) -> None:
        self._view = view
        self._end = end
        self.at = at

    def read(self, size: int = _STEP, /) -> bytes:
        """See `Reader.read`."""
        size = min(size, self._end - self.at) if size >= 0 else self._end - self.at
        data = self._view.read(self.at, size)
        self.at += size
        return data


class Unpacker:
    """The content of a stream of zlib, or else of zstd, read from its beginning to its end.

    `read` raises zlib.error or ZstdError where the stream is broken.

    Attributes:
        ended: whether the stream has come to its own end.
    """

    def __init__(self, packed: ViewReader, *, zlib_stream: bool) -> None:
        self._packed = packed
        self._begin = packed.at
        self._zlib = zlib.decompressobj() if zlib_stream else None
        self._zstd = ZstdDecompressor(options=_LONGEST_WINDOW)
        self._left = b""

    @property
    def ended(self) -> bool:
        """See the class."""
        return bool(self._zlib.eof if self._zlib else self._zstd.eof)

    @property
    def used(self) -> int:
        """Packed bytes that the stream took, once it has ended."""
        over = self._zlib.unused_data if self._zlib else self._zstd.unused_data
        return self._packed.at - len(over) - self._begin

    def read(self, size: int, /) -> bytes:
        """See `Reader.read`."""
        pieces = [self._left[:size]]
        self._left = self._left[size:]
        missing = size - len(pieces[0])
        while missing > 0 and not self.ended:
            part = self._next(missing)
            if part is None:
                break
            pieces.append(part[:missing])
            self._left = part[missing:]
            missing -= len(pieces[-1])
        return b"".join(pieces)

    def _next(self, size: int) -> bytes | None:
        if self._zlib:
            data = self._zlib.unconsumed_tail or self._packed.read(_STEP)
            part = self._zlib.decompress(data, size)
            return part if part or data else None
        needs_input = self._zstd.needs_input
        data = self._packed.read(_STEP) if needs_input else b""
        return self._zstd.decompress(data, size) if data or not needs_input else None


class Forward:
    """A reader that counts its position.

    Attributes:
        at: how many bytes have been read.
    """

    def __init__(
        self, reader: Reader, *, size: int | None = None, observer: Callable[[bytes], object] | None = None
    ) -> None:
        """Begin where the reader is.

        Args:
            reader: what gives the bytes.
            size: how many of them there are, where the reader goes on behind them.
            observer: called with every piece on the way.
        """
        self.at = 0
        self._reader = reader
        self._size = size
        self._observer = observer

    def read(self, size: int, /) -> bytes:
        """See `Reader.read`."""
        data = self._reader.read(size if self._size is None else min(size, self._size - self.at))
        self.at += len(data)
        if self._observer is not None:
            self._observer(data)
        return data

    def skip_to(self, offset: int) -> bool:
        """Go on to a place, if it is ahead; whether there are as many bytes."""
        if offset > self.at and self._observer is None and isinstance(self._reader, ViewReader):
            self._reader.at += offset - self.at
            self.at = offset
        elif offset > self.at and self._observer is None and isinstance(self._reader, Forward):
            whole = self._reader.skip_to(self._reader.at + offset - self.at)
            self.at = offset
            return whole
        while self.at < offset:
            if not self.read(min(offset - self.at, _STEP)):
                return False
        return True


def exactly(reader: Reader, size: int) -> bytes:
    """Exactly `size` bytes.

    Raises:
        WheelError: there are fewer.
    """
    data = reader.read(size)
    while len(data) < size:
        part = reader.read(size - len(data))
        if not part:
            raise WheelError("an offload bundle ends inside its table")
        data += part
    return data


def compress(plain: bytes, method: int, level: int) -> bytes:
    """The packed data of a bundle, as clang packs it."""
    if method == ZLIB:
        return zlib.compress(plain, level)
    packer = ZstdCompressor(options=_options(level))
    return packer.compress(plain, packer.FLUSH_FRAME)


def compress_file(plain: IO[bytes], size: int, out: IO[bytes], method: int, level: int) -> None:
    """Like `compress`, for the `size` bytes of a file, one piece at a time."""
    if method == ZLIB:
        packer: Any = zlib.compressobj(level)
    else:
        packer = ZstdCompressor(options=_options(level))
        packer.set_pledged_input_size(size)
    while part := plain.read(_STEP):
        out.write(packer.compress(part))
    out.write(packer.flush())


def _options(level: int) -> dict[int, int]:
    # Level and matching alone, as clang sets them: zstd then chooses all else by the size of the content.
    parameter = CompressionParameter
    return {parameter.compression_level: level, parameter.enable_long_distance_matching: 1}


def level_of(plain: bytes, packed: bytes, method: int) -> int | None:
    """The level that packs `plain` into exactly `packed`; None where none of the usual ones does."""
    return next((level for level in LEVELS[method] if compress(plain, method, level) == packed), None)
