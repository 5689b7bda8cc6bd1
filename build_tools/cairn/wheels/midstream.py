"""Bytes far into a deflate stream, unpacked from a little before them.

Such a stream has no index, and a block may repeat what is in the 32 KiB before it. But a block that brings
its own codes can be told by its header. What follows it is unpacked to the end, so that we know how far from
the end, and so how far in, it begins. Then it is unpacked behind two windows that have no byte in common:
where the results are the same, they do not hang on what we do not know.

What looks like a header may be content, though, of a file that was made to deceive, or that by chance ends in
a deflate stream of its own. What must not be deceived does not read so.

Source: RFC 1951, sections 3.2.3 to 3.2.7.
"""

from __future__ import annotations

import functools
import itertools
import re
import zlib
from collections.abc import Iterator

from cairn.wheels import deflate, zipformat
from cairn.wheels.rawfile import RawFile
from cairn.wheels.zipformat import Member

# Where to begin: this many times what the rest would take, were it as dense as all, before the end. Symbol
# tables are denser, so that half of it often does; where not, a little more than all of it.
_SHARES = (0.5, 1.25)
_TRIES = 3  # blocks to begin at; nearly always it is the first
_SEARCHED = 1 << 17  # bytes within which a block begins: those of zlib hold 16 K symbols at most
_SPAN = 1 << 15  # bytes that are searched at a time
_TRIAL = 1 << 16  # bytes that must unpack after what looks like a header …
_ENOUGH = 1 << 20  # … unless they unpack to this much
_ONE = 1 << 7  # what shares are counted in
_LONGEST_HEADER = 10  # bytes of a header up to the codes of its codes
_WINDOWS = (bytes(1 << 15), b"\xff" * (1 << 15))  # without a common byte: what is the same is known

# Blocks that bring what follows to its place within a byte, as value and bits: one without content, and one
# that repeats the last byte of the window eleven times, and so differs between the windows as they do. Both
# have the codes that every reader knows.
_EMPTY = (0b10, 10)
_REPEAT = (0b10_0100_0010, 23)
_REPEATED = 11


def read(raw: RawFile, member: Member, offset: int, size: int) -> bytes | None:
    """Exactly `size` bytes from `offset` of a member, or None where that is no shortcut or does not work."""
    left = member.size - offset
    if member.method != zipformat.DEFLATED or not size <= left <= offset // 2:
        return None
    for share in _SHARES:
        packed = int(member.compressed_size * left / member.size * share)
        found = _read_from(raw, member, member.compressed_size - packed, offset, size)
        if found is not None:
            return found
    return None


def _read_from(raw: RawFile, member: Member, start: int, offset: int, size: int) -> bytes | None:
    packed = raw.at(member.data_offset + start, min(_SEARCHED + _TRIAL, member.compressed_size - start))
    for bit in itertools.islice(_block_starts(packed), _TRIES):
        rest = _Rest(raw, member, start * 8 + bit)
        length = rest.length()
        if length is None:
            continue
        begin = member.size - length
        if begin > offset:
            return None
        one, other = (rest.read(offset - begin, size, window) for window in _WINDOWS)
        return one if one == other else None
    return None


def _block_starts(data: bytes) -> Iterator[int]:
    """The bits of `data` at which blocks seem to begin."""
    for at in range(0, min(_SEARCHED, len(data)), _SPAN):
        span = data[at : at + _SPAN + _TRIAL]
        number = int.from_bytes(span, "little")
        for bit in range(8):
            shifted = (number >> bit).to_bytes(len(span), "little")[:-1]  # the last one is not whole
            for begin in _headers(shifted[: _SPAN + _LONGEST_HEADER]):
                if _unpacks(shifted[begin : begin + _TRIAL]):
                    yield 8 * (at + begin) + bit


def _headers(data: bytes) -> Iterator[int]:
    """The bytes of `data` at which the header of a block with its own codes could stand.

    It holds a code for the lengths of the other codes. Like every code it must be complete: the shares that
    its words take add up to one (Kraft's sum).
    """
    pattern, shares = _tables()
    for found in pattern.finditer(data, 0, len(data) - _LONGEST_HEADER + 1):  # the match looks one byte on
        begin = found.start()
        bits = int.from_bytes(data[begin + 1 : begin + _LONGEST_HEADER], "little") >> 5
        lengths = bits >> 4 & (1 << 3 * ((bits & 15) + 4)) - 1
        share = 0
        while lengths:
            share += shares[lengths & 0xFFF]
            lengths >>= 12
        if share == _ONE:
            yield begin


@functools.cache
def _tables() -> tuple[re.Pattern[bytes], tuple[int, ...]]:
    """What the first two bytes of a header match; and the sum of the shares of each four lengths.

    Three bits, the lowest ones first, say that the block has its own codes (2) and is not the last; twice
    five bits hold counts below 30. A length has three bits, and 0 is none.
    """
    first = [count << 3 | 2 << 1 for count in range(30)]
    second = [bits << 5 | count for count in range(30) for bits in range(8)]
    classes = tuple(b"".join(re.escape(bytes([byte])) for byte in each) for each in (first, second))
    share = (0, *(_ONE >> length for length in range(1, 8)))
    sums = [a + b for b in share for a in share]
    return re.compile(b"(?=[%s][%s])" % classes), tuple(a + b for b in sums for a in sums)


def _unpacks(data: bytes) -> bool:
    stream = zlib.decompressobj(-15, zdict=_WINDOWS[0])
    try:
        stream.decompress(data, _ENOUGH)
    except zlib.error:
        return False
    return not stream.unused_data


class _Rest:
    """A deflate stream from a block to its end."""

    def __init__(self, raw: RawFile, member: Member, bit: int) -> None:
        self._raw = raw
        self._member = member
        self._byte, self._bit = divmod(bit, 8)
        self._extra = _REPEATED * (self._bit % 2)

    def length(self) -> int | None:
        """How many bytes it unpacks to; None when it is none that ends where the member does."""
        unpacked = -self._extra
        try:
            for piece in self._pieces(_WINDOWS[0]):
                unpacked += len(piece)
                if unpacked > self._member.size:
                    return None
        except (*deflate.InflateError, EOFError, ValueError):
            return None
        return unpacked

    def read(self, at: int, size: int, window: bytes) -> bytes:
        """`size` bytes of it as they are after `window`."""
        start, end = at + self._extra, at + self._extra + size
        found, seen = [], 0
        for piece in self._pieces(window):
            found.append(piece[max(start - seen, 0) : max(end - seen, 0)])
            seen += len(piece)
            if seen >= end:
                break
        return b"".join(found)

    def _pieces(self, window: bytes) -> Iterator[bytes]:
        return deflate.inflate(self._packed(), window=window)

    def _packed(self) -> Iterator[bytes]:
        at = self._member.data_offset + self._byte
        value, bits = _REPEAT if self._bit % 2 else (0, 0)
        while bits % 8 != self._bit:
            value |= _EMPTY[0] << bits
            bits += _EMPTY[1]
        value |= self._raw.at(at, 1)[0] >> self._bit << bits
        yield value.to_bytes((bits + 8 - self._bit) // 8, "little")
        yield from self._raw.chunks(at + 1, self._member.compressed_size - self._byte - 1)
