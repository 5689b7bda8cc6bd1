"""The table of contents of an archive, read so that no header can say one thing and another mean another.

Installers differ in which of ZIP's redundant fields they believe, so an archive is only taken when all of
them agree: end record, central directory, local headers and data descriptors, without a gap, an overlap, or
a byte that none of them accounts for.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cairn.formats.errors import (
    BombError,
    InconsistentArchiveError,
    NotAnArchiveError,
    TruncatedArchiveError,
    UnsupportedArchiveError,
)
from cairn.formats.zip import layout
from cairn.formats.zip import limits as zip_limits
from cairn.formats.zip.layout import MAX_16, MAX_32, Member
from cairn.formats.zip.limits import Limits
from cairn.formats.zip.raw_file import RawFile

# A torch wheel has 12,000 members: what is done for each is bound once, and members are made by the tuple's
# own constructor, which takes half the time of the named one.
_new = tuple.__new__
_CENTRAL = layout.CENTRAL.unpack_from
_LOCAL = layout.LOCAL.unpack_from
_SHARED = struct.Struct("<2H4LH").pack  # flags, method, time, CRC, the two sizes, length of the name
_SHARED_AT = 6
_LONGEST_COMMENT = 0xFFFF
_HEADERS_WINDOW = 1 << 16
_DESCRIPTOR_SIZES = (12, 16, 20, 24)


class _End(NamedTuple):
    members: int
    size: int
    offset: int


def read_directory(file: RawFile, limits: Limits) -> tuple[Member, ...]:
    """Every entry in the order of the central directory, checked against its local header.

    Raises:
        ArchiveError: one of its subclasses, by reason.
    """
    end = _find_end(file)
    if end.members > limits.members or end.size > limits.directory_size:
        raise BombError(f"{file.path.name} has {end.members} members in {end.size} bytes of directory")
    entries = tuple(_entries(file.at(end.offset, end.size), end))
    zip_limits.check_members(entries, limits)
    zip_limits.check_together(entries, limits)
    return _located(file, entries, end.offset)


def _find_end(file: RawFile) -> _End:
    size = min(file.size, layout.END.size + _LONGEST_COMMENT)
    tail = file.at(file.size - size, size)
    place = tail.rfind(layout.END_MAGIC)
    if place < 0:
        raise _no_end(file)
    if place + layout.END.size > len(tail):
        raise TruncatedArchiveError(f"{file.path.name} ends inside its end record")
    fields = layout.END.unpack_from(tail, place)
    disk, first_disk, count_here, count, cd_size, cd_offset, comment = fields[1:]
    if place + layout.END.size + comment != len(tail):
        raise InconsistentArchiveError(f"{file.path.name} goes on after its end record")
    if disk not in (0, MAX_16) or first_disk not in (0, MAX_16) or count_here != count:
        raise UnsupportedArchiveError(f"{file.path.name} is one part of several")
    position = file.size - len(tail) + place
    end, start = _widen_end(file, _End(count, cd_size, cd_offset), position)
    if end.offset + end.size != start:
        raise InconsistentArchiveError(
            f"the central directory of {file.path.name} is not where its end record says"
        )
    return end


def _no_end(file: RawFile) -> Exception:
    if file.size >= len(layout.LOCAL_MAGIC) and file.at(0, 4) == layout.LOCAL_MAGIC:
        return TruncatedArchiveError(
            f"{file.path.name} has no end record", tip="the file was cut off: fetch or build it again"
        )
    return NotAnArchiveError(f"{file.path.name} is not a ZIP archive")


def _widen_end(file: RawFile, end: _End, position: int) -> tuple[_End, int]:
    """The true numbers, and where the directory must end."""
    where = position - layout.LOCATOR64.size
    raw = file.at(where, layout.LOCATOR64.size) if where >= 0 else b""
    if not raw.startswith(layout.LOCATOR64_MAGIC):
        return end, position
    _, disk, offset, disks = layout.LOCATOR64.unpack(raw)
    if disk or disks > 1 or offset + layout.END64.size > where:
        raise InconsistentArchiveError(f"the ZIP64 locator of {file.path.name} points nowhere")
    fields = layout.END64.unpack(file.at(offset, layout.END64.size))
    magic, length, disk, first_disk, count_here = fields[0], fields[1], fields[4], fields[5], fields[6]
    wide = _End(*fields[7:])
    if magic != layout.END64_MAGIC or offset + length + 12 != where:
        raise InconsistentArchiveError(
            f"the ZIP64 end record of {file.path.name} is not where its locator says"
        )
    if disk or first_disk or count_here != wide.members:
        raise UnsupportedArchiveError(f"{file.path.name} is one part of several")
    for narrow, value, sentinel in zip(end, wide, (MAX_16, MAX_32, MAX_32), strict=True):
        if narrow not in (value, sentinel):
            raise InconsistentArchiveError(f"the two end records of {file.path.name} contradict each other")
    return wide, offset


def _entries(table: bytes, end: _End) -> Iterator[Member]:
    position = 0
    for number in range(end.members):
        if position + layout.CENTRAL.size > len(table):
            raise InconsistentArchiveError(
                f"the central directory ends before entry {number + 1} of {end.members}"
            )
        member, position = _entry(table, position, number)
        yield member
    if position != len(table):
        raise InconsistentArchiveError(
            f"the central directory holds more than the {end.members} entries it counts"
        )


def _entry(table: bytes, position: int, number: int) -> tuple[Member, int]:
    fields = _CENTRAL(table, position)
    magic, made_by, needs, flags, method, stamp, crc, compressed, size = fields[:9]
    name_size, extra_size, comment_size, disk, internal, external, offset = fields[9:]
    name_at = position + layout.CENTRAL.size
    extra_at = name_at + name_size
    comment_at = extra_at + extra_size
    end = comment_at + comment_size
    if magic != layout.CENTRAL_MAGIC or end > len(table):
        raise InconsistentArchiveError(f"entry {number + 1} of the central directory is broken")
    if disk not in (0, MAX_16):
        raise UnsupportedArchiveError("the archive is one part of several")
    if needs > layout.NEEDS_AT_MOST:
        raise UnsupportedArchiveError(f"entry {number + 1} of the central directory needs a newer ZIP")
    raw_name = table[name_at:extra_at]
    name = _decoded(raw_name, flags)
    extra = b""
    if extra_size:
        zip64, extra = layout.split_extra(table[extra_at:comment_at], where=name)
        size, compressed, offset = layout.widen((size, compressed, offset), zip64, where=name)
    numbers = (flags, method, stamp, crc, compressed, size, external, internal, made_by)
    comment = table[comment_at:end] if comment_size else b""
    return _new(Member, (name, raw_name, *numbers, extra, comment, offset, 0, 0)), end


def _decoded(raw: bytes, flags: int) -> str:
    # Without the flag names are code page 437 (APPNOTE, appendix D), which is what Python's zipfile reads.
    try:
        return raw.decode("utf-8" if flags & layout.FLAG_UTF8 or raw.isascii() else "cp437")
    except UnicodeDecodeError as error:
        raise InconsistentArchiveError(f"the member name {raw!r} is not the UTF-8 it claims to be") from error


def _located(file: RawFile, entries: Sequence[Member], directory: int) -> tuple[Member, ...]:
    order = sorted(range(len(entries)), key=lambda index: entries[index].offset)
    found: list[Member] = list(entries)
    headers = _Headers(file)
    expected = 0
    for place, index in enumerate(order):
        member = entries[index]
        if member.offset != expected:
            raise InconsistentArchiveError(
                f"{member.name} begins at byte {member.offset} where {expected} was due: "
                "members overlap, or leave room for what no header lists"
            )
        expected = entries[order[place + 1]].offset if place + 1 < len(order) else directory
        found[index] = _locate(headers, member, expected)
    if expected != directory:
        raise InconsistentArchiveError(
            f"{file.path.name} has {directory} bytes before its directory and no members"
        )
    return tuple(found)


class _Headers:
    """The local headers, read in passing: those of many small members come with one read."""

    def __init__(self, file: RawFile) -> None:
        self.file = file
        self._start = 0
        self._window = b""

    def at(self, offset: int, size: int) -> tuple[bytes, int]:
        """Bytes that hold those asked for, and where in them they begin."""
        place = offset - self._start
        if place < 0 or place + size > len(self._window):
            self._start, place = offset, 0
            self._window = self.file.at(offset, max(size, min(_HEADERS_WINDOW, self.file.size - offset)))
        return self._window, place


def _locate(headers: _Headers, member: Member, bound: int) -> Member:
    """The member with its place, once its local header agrees."""
    raw_name = member.raw_name
    head_size = layout.LOCAL.size + len(raw_name)
    window, place = headers.at(member.offset, head_size)
    # The usual case at once: what both headers have is the same byte for byte.
    narrow = member.size < MAX_32 and member.compressed_size < MAX_32
    shared = _SHARED(*member[2:8], len(raw_name)) if narrow else layout.CENTRAL_MAGIC
    if (
        window.startswith(layout.LOCAL_MAGIC, place)
        and window.startswith(shared, place + _SHARED_AT)
        and window.startswith(raw_name, place + layout.LOCAL.size)
    ):
        extra_at = place + layout.LOCAL.size - 2
        data_offset = member.offset + head_size + window[extra_at] + (window[extra_at + 1] << 8)
        if data_offset + member.compressed_size == bound:
            return _new(Member, (*member[:-2], data_offset, bound))
    return _locate_oddity(headers, member, bound)


def _locate_oddity(headers: _Headers, member: Member, bound: int) -> Member:
    """A member with ZIP64 sizes, a data descriptor or another time, or one that lies."""
    raw_name = member.raw_name
    head_size = layout.LOCAL.size + len(raw_name)
    window, place = headers.at(member.offset, head_size)
    magic, _, flags, method, _, crc, compressed, size, name_length, extra_length = _LOCAL(window, place)
    if (
        magic != layout.LOCAL_MAGIC
        or name_length != len(raw_name)
        or not window.startswith(raw_name, place + layout.LOCAL.size)
    ):
        raise InconsistentArchiveError(
            f"the local header of {member.name} is missing, or names another member"
        )
    data_offset = member.offset + head_size + extra_length
    end = data_offset + member.compressed_size
    if end > bound:
        raise InconsistentArchiveError(f"{member.name} is longer than the room it has: members overlap")
    if extra_length and MAX_32 in (compressed, size):
        zip64, _ = layout.split_extra(
            headers.file.at(member.offset + head_size, extra_length), where=member.name
        )
        size, compressed = layout.widen((size, compressed), zip64, where=member.name)
    described = (flags, method, crc, compressed, size)
    late = flags & layout.FLAG_DESCRIPTOR
    # With a data descriptor the local numbers may be left at zero.
    if described != member[2:4] + member[5:8] and not (late and described == (*member[2:4], 0, 0, 0)):
        raise InconsistentArchiveError(f"the two headers of {member.name} contradict each other")
    if late:
        _check_descriptor(headers.file, member, end, bound)
    elif end != bound:
        raise InconsistentArchiveError(f"{bound - end} bytes after {member.name} belong to no member")
    return _new(Member, (*member[:-2], data_offset, bound))


def _check_descriptor(file: RawFile, member: Member, start: int, end: int) -> None:
    raw = file.at(start, end - start) if end - start in _DESCRIPTOR_SIZES else b""
    numbers = raw.removeprefix(layout.DESCRIPTOR_MAGIC) if len(raw) % 8 == 0 else raw
    width = (len(numbers) - 4) // 2
    told = (
        int.from_bytes(numbers[:4], "little"),
        int.from_bytes(numbers[4 : 4 + width], "little"),
        int.from_bytes(numbers[4 + width :], "little"),
    )
    if told != (member.crc, member.compressed_size, member.size):
        raise InconsistentArchiveError(f"the data descriptor of {member.name} contradicts its header")
