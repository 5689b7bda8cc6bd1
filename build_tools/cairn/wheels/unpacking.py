"""Streams of zlib and zstd read no further than needed."""

from __future__ import annotations

import zlib
from typing import Protocol

import zstandard

from cairn.errors import WheelError
from cairn.wheels.views import View

_STEP = 1 << 16
_SMALL_STEP = 256
_MOST_WINDOW = 1 << 27


class Reader(Protocol):
    """Something that gives bytes from its beginning to its end."""

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


class _ZlibReader:
    def __init__(self, packed: Reader) -> None:
        self._packed = packed
        self._stream = zlib.decompressobj()

    def read(self, size: int, /) -> bytes:
        found = bytearray()
        while len(found) < size and not self._stream.eof:
            data = self._stream.unconsumed_tail or self._packed.read(_STEP)
            part = self._stream.decompress(data, size - len(found))
            if not part and not data:
                break
            found += part
        return bytes(found)


def unpacker(packed: Reader, *, zlib_stream: bool) -> Reader:
    """The content of a stream of zlib, or else of zstd.

    Its `read` raises zlib.error or ZstdError where the stream is broken.
    """
    if zlib_stream:
        return _ZlibReader(packed)
    decompressor = zstandard.ZstdDecompressor(max_window_size=_MOST_WINDOW)
    return decompressor.stream_reader(packed, read_size=_STEP)  # type: ignore[arg-type]


def stream_length(packed: ViewReader, *, zlib_stream: bool) -> int:
    """How many bytes a stream takes that no header tells the length of.

    Raises:
        WheelError: it does not end.
    """
    # Small steps: a few bytes of zstd can stand for megabytes.
    stream = (
        zlib.decompressobj()
        if zlib_stream
        else zstandard.ZstdDecompressor(max_window_size=_MOST_WINDOW).decompressobj()
    )
    begin = packed.at
    while not stream.eof:
        data = packed.read(_SMALL_STEP)
        if not data:
            raise WheelError("a compressed offload bundle does not end")
        stream.decompress(data)
    return packed.at - len(stream.unused_data) - begin


def exactly(reader: Reader, size: int) -> bytes:
    """Exactly `size` bytes.

    Raises:
        WheelError: there are fewer.
    """
    data = reader.read(size)
    if len(data) == size:
        return data
    found = bytearray(data)
    while len(found) < size:
        part = reader.read(size - len(found))
        if not part:
            raise WheelError("an offload bundle ends inside its table")
        found += part
    return bytes(found)
