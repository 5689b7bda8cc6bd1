"""Device code inside host binaries: clang's offload bundles, plain and compressed.

A `.hip_fatbin` section holds any number of bundles. A plain one begins with a table of its entries; a
compressed one (`CCOB`) has a header of one of three versions, then a plain bundle packed by zlib or zstd.
Only as much is unpacked as the table takes.

Source: LLVM's docs/ClangOffloadBundler.rst and clang/lib/Driver/OffloadBundler.cpp.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import zstandard

from cairn.errors import UsageError, WheelError
from cairn.targets import TargetId, parse_target_id
from cairn.wheels import elf
from cairn.wheels.elf import Elf
from cairn.wheels.views import BytesView, View

SECTION = ".hip_fatbin"
PLAIN_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
PACKED_MAGIC = b"CCOB"
_HEAD = struct.Struct("<4sHH")
_SIZES = {1: struct.Struct("<I8x"), 2: struct.Struct("<II8x"), 3: struct.Struct("<QQ8x")}
_ZLIB, _ZSTD = 0, 1
_ENTRY = struct.Struct("<QQQ")
_MOST_ENTRIES = 4096
_LONGEST_ID = 1024
_STEP = 1 << 16
_SMALL_STEP = 256
_MOST_WINDOW = 1 << 27


@dataclass(frozen=True, kw_only=True)
class CodeObject:
    """The code of one target in one bundle.

    Attributes:
        target: what it was compiled for.
        size: bytes, unpacked.
        compressed: whether its bundle is.
        offset: where its bundle begins, counted from the start of what was read.
    """

    target: TargetId
    size: int
    compressed: bool
    offset: int


class _Reader(Protocol):
    def read(self, size: int, /) -> bytes: ...


def read(data: bytes) -> tuple[CodeObject, ...]:
    """The code objects in the content of a `.hip_fatbin` section.

    Raises:
        WheelError: it is malformed.
    """
    return tuple(read_range(BytesView(data), 0, len(data)))


def of_elf(data: bytes | mmap.mmap) -> tuple[CodeObject, ...]:
    """The code objects of a whole ELF file; none when it has no device code.

    Raises:
        WheelError: it is no ELF file, or malformed.
    """
    view = BytesView(data)
    return of_view(view, elf.read_view(view))


def of_view(view: View, parsed: Elf) -> tuple[CodeObject, ...]:
    """Like `of_elf`, when the file (with its sections) has been read already."""
    ranges = [(s.offset, s.offset + s.size) for s in parsed.sections if s.name == SECTION]
    return tuple(found for start, end in ranges for found in read_range(view, start, end))


def read_range(view: View, start: int, end: int) -> Iterator[CodeObject]:
    """The code objects of every bundle between two places.

    Raises:
        WheelError: there is something else than bundles and zeros between them.
    """
    at = _next_bundle(view, start, end)
    while at < end:
        magic = view.read(at, min(len(PLAIN_MAGIC), end - at))
        if magic == PLAIN_MAGIC:
            objects, at_end = _read_plain(view, at, end)
        elif magic.startswith(PACKED_MAGIC):
            objects, at_end = _read_packed(view, at, end)
        else:
            raise WheelError(f"device code is malformed: no offload bundle at byte {at - start}")
        yield from objects
        at = _next_bundle(view, at_end, end)


def _next_bundle(view: View, at: int, end: int) -> int:
    while at < end:
        part = view.read(at, min(_STEP, end - at))
        rest = part.lstrip(b"\0")
        if rest:
            return at + len(part) - len(rest)
        at += len(part)
    return end


def _read_plain(view: View, at: int, end: int) -> tuple[list[CodeObject], int]:
    table = _Table(_ViewReader(view, at, end), end - at)
    objects = [code.at(at, compressed=False) for code in table.entries]
    return objects, at + table.size


def _read_packed(view: View, at: int, end: int) -> tuple[list[CodeObject], int]:
    version, method = _unpack(_HEAD, view, at, end)[1:]
    if version not in _SIZES or method not in (_ZLIB, _ZSTD):
        raise WheelError(f"a compressed offload bundle of unknown version {version} or method {method}")
    sizes = _unpack(_SIZES[version], view, at + _HEAD.size, end)
    begin = at + _HEAD.size + _SIZES[version].size
    stop = _end_of_stream(view, begin, end, method) if version == 1 else at + sizes[0]
    if not begin < stop <= end:
        raise WheelError(f"a compressed offload bundle of {stop - at} bytes where {end - at} are left")
    packed = _ViewReader(view, begin, stop)
    try:
        table = _Table(_zlib_reader(packed) if method == _ZLIB else _zstd_reader(packed), sizes[-1])
    except (zlib.error, zstandard.ZstdError, MemoryError) as error:
        raise WheelError(f"a compressed offload bundle cannot be unpacked: {error}") from error
    return [code.at(at, compressed=True) for code in table.entries], stop


def _unpack(layout: struct.Struct, view: View, at: int, end: int) -> tuple[int, ...]:
    if at + layout.size > end:
        raise WheelError("an offload bundle ends inside its header")
    return layout.unpack(view.read(at, layout.size))


@dataclass(frozen=True, kw_only=True)
class _Entry:
    target: TargetId
    size: int

    def at(self, offset: int, *, compressed: bool) -> CodeObject:
        return CodeObject(target=self.target, size=self.size, compressed=compressed, offset=offset)


class _Table:
    """The table of a plain bundle: its device entries, and where the bundle ends."""

    def __init__(self, reader: _Reader, limit: int) -> None:
        if _exactly(reader, len(PLAIN_MAGIC)) != PLAIN_MAGIC:
            raise WheelError("an offload bundle without its magic text")
        count = int.from_bytes(_exactly(reader, 8), "little")
        if count > _MOST_ENTRIES:
            raise WheelError(f"an offload bundle of {count} entries")
        self.size = len(PLAIN_MAGIC) + 8
        self.entries: list[_Entry] = []
        for _ in range(count):
            self._read_entry(reader, limit)

    def _read_entry(self, reader: _Reader, limit: int) -> None:
        offset, size, length = _ENTRY.unpack(_exactly(reader, _ENTRY.size))
        if length > _LONGEST_ID or offset + size > limit:
            raise WheelError("an offload bundle with an entry that leads out of it")
        name = _exactly(reader, length).decode("utf-8", "backslashreplace")
        self.size = max(self.size, offset + size)
        if not name.startswith("host-"):
            self.entries.append(_Entry(target=_target_of(name), size=size))


def _target_of(name: str) -> TargetId:
    """The target of an entry such as `hipv4-amdgcn-amd-amdhsa--gfx90a:xnack+`."""
    _, mark, rest = name.partition("-gfx")
    try:
        return parse_target_id(mark[1:] + rest)
    except UsageError as error:
        raise WheelError(f"the offload bundle entry {name!r} names no target") from error


class _ViewReader:
    """Part of a view, read from its beginning to its end."""

    def __init__(self, view: View, at: int, end: int) -> None:
        self._view = view
        self._end = end
        self.at = at

    def read(self, size: int = _STEP, /) -> bytes:
        size = min(size, self._end - self.at) if size >= 0 else self._end - self.at
        data = self._view.read(self.at, size)
        self.at += size
        return data


class _ZlibReader:
    def __init__(self, packed: _ViewReader) -> None:
        self._packed = packed
        self._stream = zlib.decompressobj()

    def read(self, size: int, /) -> bytes:
        found = b""
        while len(found) < size and not self._stream.eof:
            data = self._stream.unconsumed_tail or self._packed.read(_STEP)
            part = self._stream.decompress(data, size - len(found))
            if not part and not data:
                break
            found += part
        return found


def _zlib_reader(packed: _ViewReader) -> _Reader:
    return _ZlibReader(packed)


def _zstd_reader(packed: _ViewReader) -> _Reader:
    unpacker = zstandard.ZstdDecompressor(max_window_size=_MOST_WINDOW)
    return unpacker.stream_reader(packed, read_size=_STEP)  # type: ignore[arg-type]


def _end_of_stream(view: View, begin: int, end: int, method: int) -> int:
    """Where a compressed stream ends that no header tells the length of (version 1)."""
    # Small steps: a few bytes of zstd can stand for megabytes.
    stream = (
        zlib.decompressobj()
        if method == _ZLIB
        else zstandard.ZstdDecompressor(max_window_size=_MOST_WINDOW).decompressobj()
    )
    packed = _ViewReader(view, begin, end)
    try:
        while not stream.eof:
            data = packed.read(_SMALL_STEP)
            if not data:
                raise WheelError("a compressed offload bundle does not end")
            stream.decompress(data)
    except (zlib.error, zstandard.ZstdError, MemoryError) as error:
        raise WheelError(f"a compressed offload bundle cannot be unpacked: {error}") from error
    return packed.at - len(stream.unused_data)


def _exactly(reader: _Reader, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = reader.read(size - len(data))
        if not part:
            raise WheelError("an offload bundle ends inside its table")
        data += part
    return data
