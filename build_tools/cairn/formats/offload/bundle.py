"""Clang's offload bundles, plain and compressed, as they lie in a `.hip_fatbin` section.

A section holds any number of bundles, one for each object file that was linked, with zeros between them. All
numbers are little-endian:

    plain       0 `__CLANG_OFFLOAD_BUNDLE__`, 24 u64 number of entries; then for each entry
                u64 offset of its code in the bundle, u64 its size, u64 length of the id, the id;
                then the code, aligned, with zeros between
    compressed  0 `CCOB`, 4 u16 version, 6 u16 method; then
                version 1: 8 u32 plain size, 12 hash; 20 the packed data, which has no length
                version 2: 8 u32 total size, 12 u32 plain size, 16 hash; 24 the packed data
                version 3: 8 u64 total size, 16 u64 plain size, 24 hash; 32 the packed data

The packed data is a plain bundle. To list its entries only as much is unpacked as the table takes.

Source: LLVM's clang/docs/ClangOffloadBundler.rst and clang/lib/Driver/OffloadBundler.cpp.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import IO, Any, Protocol

import msgspec

from cairn.errors import WheelError
from cairn.formats import compression
from cairn.formats.compression import (
    ZLIB,
    ZSTD,
    Forward,
    Reader,
    Unpacker,
    ViewReader,
    exactly,
)
from cairn.formats.view import View

PLAIN_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
PACKED_MAGIC = b"CCOB"
# What the id of an entry begins with that is not for a device: clang writes an empty one for the host first.
HOST = "host-"
# Written over the beginning of the id of an entry whose code is gone. HIP's runtime skips the entries of the
# host, so it never takes zeros for code. Of the id only these five bytes change: the rest stays readable.
INERT_PREFIX = HOST.encode()
_MOST_PLAIN = (1 << 32) - (16 << 20)  # just under what the 32-bit fields of version 2 can say

_HEAD = struct.Struct("<4sHH")
# By version what follows the head: sizes, then the low half of the MD5 of the plain bundle.
_SIZES = {1: struct.Struct("<I8s"), 2: struct.Struct("<II8s"), 3: struct.Struct("<QQ8s")}
_ENTRY = struct.Struct("<QQQ")
VERSIONS = frozenset(_SIZES)  # of the header of a compressed bundle
# Levels for a bundle that must fit where it was although it has other content now, the cheapest first.
_STRONGER = {ZLIB: (6, 9), ZSTD: (3, 12, 19, 22)}
_MOST_ENTRIES = 4096  # LLVM knows fewer than 100 processors, with at most nine combinations of features each
_LONGEST_ID = 1024
_STEP = 1 << 16


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a bundle's table.

    Attributes:
        id: such as `hipv4-amdgcn-amd-amdhsa--gfx90a:xnack+`.
        offset: where its code begins, counted from the start of the unpacked bundle.
        size: bytes of the code.
        id_at: where the id itself stands in the unpacked bundle.
    """

    id: str
    offset: int
    size: int
    id_at: int


class Packing(msgspec.Struct, frozen=True, kw_only=True):
    """How a bundle is compressed.

    Attributes:
        version: of the header, 1 to 3.
        method: ZLIB or ZSTD.
        plain_size: bytes of the bundle when unpacked, as the header says.
    """

    version: int
    method: int
    plain_size: int

    @property
    def header_size(self) -> int:
        """Bytes before the compressed data."""
        return _HEAD.size + _SIZES[self.version].size


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    """One bundle.

    Attributes:
        at: where it begins in what was read.
        size: how many bytes it takes there.
        entries: its table.
        table_size: bytes of the table, and of what stands before it, in the unpacked bundle.
        packing: how it is compressed, or None.
    """

    at: int
    size: int
    entries: tuple[Entry, ...]
    table_size: int
    packing: Packing | None = None

    @property
    def device_entries(self) -> tuple[Entry, ...]:
        """The entries that are code for a device."""
        return tuple(entry for entry in self.entries if not entry.id.startswith(HOST))


class Checker(Protocol):
    """Something that looks at the content of bundles while they are read, in the one pass that there is."""

    def look(self, entries: Sequence[Entry], content: Forward) -> None:
        """Look at the code of a plain bundle, of which the table has been read."""

    def complain(self, reason: str) -> None:
        """Note what is wrong with a bundle."""


def read_range(view: View, start: int, end: int, checker: Checker | None = None) -> Iterator[Bundle]:
    """Every bundle between two places, its content looked at by `checker`.

    Raises:
        WheelError: there is anything but bundles and zeros between them.
    """
    at = _next(view, start, end)
    while at < end:
        magic = view.read(at, min(len(PLAIN_MAGIC), end - at))
        if magic == PLAIN_MAGIC:
            bundle = _read_plain(view, at, end, checker)
        elif magic.startswith(PACKED_MAGIC):
            bundle = _read_packed(view, at, end, checker)
        else:
            raise WheelError(f"device code is malformed: no offload bundle at byte {at - start}")
        yield bundle
        at = _next(view, at + bundle.size, end)


def most_plain(size: int) -> int:
    """Bytes that a compressed bundle of `size` bytes may unpack to when it is unpacked whole."""
    return min(_MOST_PLAIN, compression.most_unpacked(size))


def pack(plain: bytes, packing: Packing, *, level: int, digest: bytes) -> bytes:
    """A compressed bundle at a given level, with the 8 bytes of hash `digest` in its header."""
    packed = compression.compress(plain, packing.method, level)
    return _header(packing, packing.header_size + len(packed), digest) + packed


def pack_into(plain: IO[bytes], packing: Packing, out: IO[bytes], *, room: int) -> bool:
    """Write a compressed bundle of the content of a file to `out`; whether it takes no more than `room`."""
    plain.seek(0)
    hasher = hashlib.md5(usedforsecurity=False)
    while piece := plain.read(_STEP):
        hasher.update(piece)
    digest = hasher.digest()[:8]
    for level in _STRONGER[packing.method]:
        out.seek(0)
        out.truncate()
        out.write(bytes(packing.header_size))
        plain.seek(0)
        compression.compress_file(plain, packing.plain_size, out, packing.method, level)
        total = out.tell()
        if total <= room:
            out.seek(0)
            out.write(_header(packing, total, digest))
            return True
    return False


def _header(packing: Packing, total: int, digest: bytes) -> bytes:
    sizes = (packing.plain_size,) if packing.version == 1 else (total, packing.plain_size)
    head = _HEAD.pack(PACKED_MAGIC, packing.version, packing.method)
    return head + _SIZES[packing.version].pack(*sizes, digest)


def _next(view: View, at: int, end: int) -> int:
    while at < end:
        part = view.read(at, min(_STEP, end - at))
        rest = part.lstrip(b"\0")
        if rest:
            return at + len(part) - len(rest)
        at += len(part)
    return end


def _read_plain(view: View, at: int, end: int, checker: Checker | None) -> Bundle:
    content = Forward(ViewReader(view, at, end))
    entries, table_size = _read_table(content, end - at)
    if checker:
        checker.look(entries, content)
    # A plain bundle does not say where it ends: behind the last code object.
    size = max((table_size, *(entry.offset + entry.size for entry in entries)))
    return Bundle(at=at, size=size, entries=entries, table_size=table_size)


def _read_packed(view: View, at: int, end: int, checker: Checker | None) -> Bundle:
    packing, stop, digest = _read_header(view, at, end)
    begin, plain_size, open_end = at + packing.header_size, packing.plain_size, packing.version == 1
    packed = Unpacker(ViewReader(view, begin, stop), zlib_stream=packing.method == ZLIB)
    # As in the header: MD5::MD5Result::low() is the first 8 of its 16 bytes.
    hasher = hashlib.md5(usedforsecurity=False)
    content = Forward(packed, observer=hasher.update if checker else None)
    sane_size = min(plain_size, most_plain(stop - at))
    problem = None
    try:
        entries, table_size = _read_table(content, plain_size)
        if checker and sane_size == plain_size:
            checker.look(entries, content)
        if checker or open_end:
            problem = _drained(packed, content, sane_size)
    except (zlib.error, compression.ZstdError, MemoryError) as error:
        raise WheelError(f"a compressed offload bundle cannot be unpacked: {error}") from error
    if open_end:
        # A bundle of version 1 ends where its zlib or zstd stream does; no field says where.
        if problem:
            raise WheelError(f"a compressed offload bundle {problem}")
        stop = begin + packed.used
    if checker:
        same = hasher.digest()[: len(digest)] == digest
        _complain(checker, problem, takes=begin - at + packed.used, size=stop - at, same=same)
    return Bundle(at=at, size=stop - at, entries=entries, table_size=table_size, packing=packing)


def _read_header(view: View, at: int, end: int) -> tuple[Packing, int, bytes]:
    """Read how a bundle is compressed, its latest possible end, and the hash of its content."""
    version, method = _fields(_HEAD, view, at, end)[1:]
    if version not in _SIZES or method not in (ZLIB, ZSTD):
        raise WheelError(f"a compressed offload bundle of unknown version {version} or method {method}")
    *total, plain_size, digest = _fields(_SIZES[version], view, at + _HEAD.size, end)
    packing = Packing(version=version, method=method, plain_size=plain_size)
    stop = at + total[0] if total else end
    if not at + packing.header_size < stop <= end:
        raise WheelError(f"a compressed offload bundle of {stop - at} bytes where {end - at} are left")
    return packing, stop, digest


def _complain(checker: Checker, problem: str | None, *, takes: int, size: int, same: bool) -> None:
    if problem is None and takes != size:
        problem = f"takes {takes} bytes, and its header says {size}"
    if problem is None and not same:
        problem = "has a different hash than its header says"
    if problem:
        checker.complain(f"a compressed offload bundle {problem}")


def _drained(packed: Unpacker, content: Forward, size: int) -> str | None:
    """Read a compressed bundle to its end; what is wrong where it does not unpack to `size` bytes."""
    if not content.skip_to(size):
        return f"unpacks to {content.at} bytes, and its header says {size}"
    # The stream's own checksum stands after its last byte, so that only reading on compares it.
    if packed.read(1):
        return f"unpacks to more than the {size} bytes that its header says"
    return None if packed.ended else "does not end"


def _fields(layout: struct.Struct, view: View, at: int, end: int) -> tuple[Any, ...]:
    if at + layout.size > end:
        raise WheelError("an offload bundle ends inside its header")
    return layout.unpack(view.read(at, layout.size))


def _read_table(reader: Reader, limit: int) -> tuple[tuple[Entry, ...], int]:
    """The entries of a plain bundle, and how many bytes they take with what stands before them."""
    if exactly(reader, len(PLAIN_MAGIC)) != PLAIN_MAGIC:
        raise WheelError("an offload bundle without its magic text")
    count = int.from_bytes(exactly(reader, 8), "little")
    if count > _MOST_ENTRIES:
        raise WheelError(f"an offload bundle of {count} entries")
    at = len(PLAIN_MAGIC) + 8
    entries = []
    for _ in range(count):
        offset, size, length = _ENTRY.unpack(exactly(reader, _ENTRY.size))
        if length > _LONGEST_ID or offset + size > limit:
            raise WheelError("an offload bundle with an entry that leads out of it")
        name = exactly(reader, length).decode("utf-8", "backslashreplace")
        entries.append(Entry(id=name, offset=offset, size=size, id_at=at + _ENTRY.size))
        at += _ENTRY.size + length
    return tuple(entries), at
