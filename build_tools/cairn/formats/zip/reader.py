"""Reading an archive, which is accepted only where all of ZIP's redundant fields agree.

Installers differ in which of these fields they believe (some read the central directory, some the local
headers), so a file on which they disagree could install one thing here and something else there. Accepted is
an archive whose end record, central directory, local headers and data descriptors agree, without a gap, an
overlap, or a byte that none of them accounts for.

Source: APPNOTE.TXT 4.3.6 (overall layout), read from the end of the file backwards:

    [local header, content, data descriptor]… [central directory] [ZIP64 end, ZIP64 locator] [end record]
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import io
import os
import re
import stat
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from cairn.formats.zip import deflate, layout
from cairn.formats.zip import limits as zip_limits
from cairn.formats.zip.layout import (
    MAX_16,
    MAX_32,
    BombError,
    InconsistentArchiveError,
    Member,
    MissingMemberError,
    NotAnArchiveError,
    TruncatedArchiveError,
    UnsupportedArchiveError,
)
from cairn.formats.zip.limits import DEFAULT_LIMITS, Limits

__all__ = ["Archive", "Limits", "Member", "collector_paused"]

_CHUNK = 1 << 18  # bytes that are read at once


class RawFile:
    """An open file whose reads name their place, so that no position is shared."""

    is_remote = False  # on a server, where each read is a request: see `_bounded`

    def __init__(self, path: Path) -> None:
        try:
            # Opening a pipe waits for a writer unless told not to: O_NONBLOCK, which Windows does not have.
            flag = getattr(os, "O_NONBLOCK", 0)
            self._file = io.FileIO(path, opener=lambda name, flags: os.open(name, flags | flag))
        except OSError as error:
            raise NotAnArchiveError(f"cannot read {path}: {error.strerror}") from error
        status = os.fstat(self._file.fileno())
        if not stat.S_ISREG(status.st_mode):
            self._file.close()
            raise NotAnArchiveError(f"cannot read {path}: not a file")
        self.path = path
        self.size = status.st_size
        self._lock = threading.Lock()

    def at(self, offset: int, size: int) -> bytes:
        """Exactly `size` bytes from `offset`.

        Raises:
            TruncatedArchiveError: the file has fewer.
        """
        data = self._read_once(offset, size) if 0 <= offset <= self.size - size else b""
        # A read may end early at any time (read(2)); nothing at all means that the file was cut off since.
        while 0 < len(data) < size and (part := self._read_once(offset + len(data), size - len(data))):
            data += part
        if len(data) != size:
            raise TruncatedArchiveError(
                f"{self.path.name} ends at byte {self.size}, before what its headers promise",
                tip="the file was cut off: fetch or build it again",
            )
        return data

    def fill(self, buffer: memoryview, offset: int) -> None:
        """The bytes from `offset` into the caller's memory, which saves new memory for each piece."""
        with self._lock:
            self._file.seek(offset)
            count = self._file.readinto(buffer) or 0
        if count < len(buffer):
            buffer[count:] = self.at(offset + count, len(buffer) - count)

    def chunks(self, offset: int, size: int) -> Iterator[bytes]:
        """The same in pieces of at most 256 KiB."""
        end = offset + size
        while offset < end:
            piece = self.at(offset, min(_CHUNK, end - offset))
            yield piece
            offset += len(piece)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _read_once(self, offset: int, size: int) -> bytes:
        if hasattr(os, "pread"):
            return os.pread(self._file.fileno(), size, offset)
        with self._lock:  # Windows has no pread
            self._file.seek(offset)
            return self._file.read(size) or b""


# A torch wheel has 12,000 members: what is done for each is bound once, and members are made by the tuple's
# own constructor, which takes half the time of the named one.
_new = tuple.__new__
_unpack_central = layout.CENTRAL.unpack_from
_CENTRAL_SIZE, _CENTRAL_SHARED_AT = layout.CENTRAL.size, layout.CENTRAL_SHARED_AT
_LOCAL_SIZE, _LOCAL_SHARED_AT = layout.LOCAL.size, layout.LOCAL_SHARED_AT
_LONGEST_COMMENT = 0xFFFF  # its length has 16 bits
_HEADERS_WINDOW = 1 << 16  # one read brings the local headers of many small members
_DESCRIPTOR_SIZES = (12, 16, 20, 24)  # CRC and two sizes of 4 or 8 bytes each; with or without a signature


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
    # Checked before the table is read: a few bytes may ask for gigabytes.
    if end.members > limits.members or end.size > limits.directory_size:
        raise BombError(f"{file.path.name} has {end.members} members in {end.size} bytes of directory")
    entries, shared = _read_entries(file.at(end.offset, end.size), end.members)
    zip_limits.check_members(entries, limits)
    zip_limits.check_together(entries, limits)
    return (_bounded if file.is_remote else _located)(file, entries, shared, end.offset)


def _find_end(file: RawFile) -> _End:
    """Read the end record (4.3.16), or the ZIP64 one in its place (4.3.14)."""
    # The record is the last thing in the file except for a comment, so its place is not fixed: it is searched
    # for from the end. A comment that holds the signature itself is refused by the length check below.
    size = min(file.size, layout.END.size + _LONGEST_COMMENT)
    tail = file.at(file.size - size, size)
    place = tail.rfind(layout.END_MAGIC)
    if place < 0 and file.size >= 4 and file.at(0, 4) == layout.LOCAL_MAGIC:  # noqa: PLR2004 - a signature
        raise TruncatedArchiveError(
            f"{file.path.name} has no end record", tip="the file was cut off: fetch or build it again"
        )
    if place < 0:
        raise NotAnArchiveError(f"{file.path.name} is not a ZIP archive")
    if place + layout.END.size > len(tail):
        raise TruncatedArchiveError(f"{file.path.name} ends inside its end record")
    fields = layout.END.unpack_from(tail, place)
    disk, first_disk, count_here, count, directory_size, offset, comment = fields[1:]
    if place + layout.END.size + comment != len(tail):
        raise InconsistentArchiveError(f"{file.path.name} goes on after its end record")
    # ZIP64 writers may put all ones into the disk numbers too (4.4.19, 4.4.20).
    if disk not in (0, MAX_16) or first_disk not in (0, MAX_16) or count_here != count:
        raise UnsupportedArchiveError(f"{file.path.name} is one part of several")
    position = file.size - len(tail) + place
    end, start = _widen_end(file, _End(count, directory_size, offset), position)
    if end.offset + end.size != start:
        raise InconsistentArchiveError(
            f"the central directory of {file.path.name} is not where its end record says"
        )
    return end


def _widen_end(file: RawFile, end: _End, position: int) -> tuple[_End, int]:
    """The true numbers, and where the directory must end: at the first of the end records."""
    # The locator (4.3.15), where there is one, stands right before the end record at `position`.
    where = position - layout.LOCATOR64.size
    raw = file.at(where, layout.LOCATOR64.size) if where >= 0 else b""
    if not raw.startswith(layout.LOCATOR64_MAGIC):
        return end, position
    _, disk, offset, disks = layout.LOCATOR64.unpack(raw)
    if disk or disks > 1 or offset + layout.END64.size > where:
        raise InconsistentArchiveError(f"the ZIP64 locator of {file.path.name} points nowhere")
    magic, length, _, _, disk, first_disk, count_here, *numbers = layout.END64.unpack(
        file.at(offset, layout.END64.size)
    )
    wide = _End(*numbers)
    # The record's length does not count the signature and the length itself: 12 bytes (4.3.14.1).
    if magic != layout.END64_MAGIC or offset + length + 12 != where:
        raise InconsistentArchiveError(
            f"the ZIP64 end record of {file.path.name} is not where its locator says"
        )
    if disk or first_disk or count_here != wide.members:
        raise UnsupportedArchiveError(f"{file.path.name} is one part of several")
    # A number of the old record is either all ones, which means "see ZIP64", or the same number.
    for narrow, value, sentinel in zip(end, wide, (MAX_16, MAX_32, MAX_32), strict=True):
        if narrow not in (value, sentinel):
            raise InconsistentArchiveError(f"the two end records of {file.path.name} contradict each other")
    return wide, offset


def _read_entries(table: bytes, count: int) -> tuple[list[Member], list[bytes]]:
    """The entries of the directory, and of each the bytes that its local header must repeat."""
    entries: list[Member] = []
    shared: list[bytes] = []
    position = 0
    for number in range(1, count + 1):
        if position + _CENTRAL_SIZE > len(table):
            raise InconsistentArchiveError(f"the central directory ends before entry {number} of {count}")
        fields = _unpack_central(table, position)
        magic, made_by, needs, flags, method, stamp, crc, compressed, size = fields[:9]
        name_size, extra_size, comment_size, disk, internal, external, offset = fields[9:]
        name_at = position + _CENTRAL_SIZE
        extra_at = name_at + name_size
        comment_at = extra_at + extra_size
        end = comment_at + comment_size
        if magic != layout.CENTRAL_MAGIC or end > len(table):
            raise InconsistentArchiveError(f"entry {number} of the central directory is broken")
        if disk not in (0, MAX_16):
            raise UnsupportedArchiveError("the archive is one part of several")
        if needs & 0xFF > layout.NEEDS_AT_MOST:  # 4.4.3.1: the upper byte is a system's number
            raise UnsupportedArchiveError(f"entry {number} of the central directory needs a newer ZIP")
        raw_name = table[name_at:extra_at]
        name = raw_name.decode() if raw_name.isascii() else _decoded(raw_name, flags)
        # Sizes of all ones are in the ZIP64 field, of which the local header has its own: not compared so.
        wide = MAX_32 in (size, compressed)
        shared.append(b"" if wide else table[position + _CENTRAL_SHARED_AT : name_at - 16])
        extra = b""
        if extra_size:
            zip64, extra = layout.split_extra(table[extra_at:comment_at], where=name)
            size, compressed, offset = layout.widen((size, compressed, offset), zip64, where=name)
        comment = table[comment_at:end] if comment_size else b""
        numbers = (flags, method, stamp, crc, compressed, size, external, internal, made_by)
        entries.append(_new(Member, (name, raw_name, *numbers, extra, comment, offset, 0, 0)))
        position = end
    if position != len(table):
        raise InconsistentArchiveError(f"the central directory holds more than the {count} entries it counts")
    return entries, shared


def _decoded(raw: bytes, flags: int) -> str:
    # Without the flag names are code page 437 (APPNOTE, appendix D), which is what Python's zipfile reads.
    try:
        return raw.decode("utf-8" if flags & layout.FLAG_UTF8 else "cp437")
    except UnicodeDecodeError as error:
        raise InconsistentArchiveError(f"the member name {raw!r} is not the UTF-8 it claims to be") from error


def _in_file(entries: Sequence[Member], directory: int) -> tuple[list[int], list[int]]:
    """The numbers of the members in the order of the file, and where each must end."""
    order = sorted(range(len(entries)), key=[member.offset for member in entries].__getitem__)
    return order, [entries[index].offset for index in order[1:]] + [directory]


def _bounded(file: RawFile, entries: Sequence[Member], _: object, directory: int) -> tuple[Member, ...]:
    """The members with their ends: each local header is looked at when its member is read, others never."""
    order, bounds = _in_file(entries, directory)
    members = list(entries)
    if order and entries[order[0]].offset:
        raise InconsistentArchiveError(f"{file.path.name} has bytes before its first member")
    for index, bound in zip(order, bounds, strict=False):
        member = entries[index]
        if member.offset + _LOCAL_SIZE + len(member.raw_name) + member.compressed_size > bound:
            raise InconsistentArchiveError(f"{member.name} is longer than the room it has: members overlap")
        members[index] = _new(Member, (*member[:-2], 0, bound))
    return tuple(members)


def _local_header(file: RawFile, member: Member) -> Member:
    """The member of a file on a server with the place of its content, once its local header was checked."""
    whole = file.at(member.offset, min(member.end - member.offset, _HEADERS_WINDOW))  # mostly all of it
    head = whole[: _LOCAL_SIZE + len(member.raw_name)]
    return member._replace(data_offset=_locate_unusual(file, member, head, member.end))


def _located(
    file: RawFile, entries: Sequence[Member], shared: Sequence[bytes], directory: int
) -> tuple[Member, ...]:
    """The members with their places: every byte before the directory belongs to exactly one of them."""
    order, bounds = _in_file(entries, directory)
    members = list(entries)
    window, start, expected = b"", 0, 0
    for index, bound in zip(order, bounds, strict=False):
        member, raw_name = entries[index], entries[index].raw_name
        if member.offset != expected:
            raise InconsistentArchiveError(
                f"{member.name} begins at byte {member.offset} where {expected} was due: "
                "members overlap, or leave room for what no header lists"
            )
        head_size = _LOCAL_SIZE + len(raw_name)
        data_offset = expected + head_size
        at = member.offset - start
        if at + head_size > len(window):
            start, at = member.offset, 0
            window = file.at(start, max(head_size, min(_HEADERS_WINDOW, file.size - start)))
        # The usual case at once: what both headers have is the same, byte for byte, and no extra field, whose
        # length stands before the name.
        same = shared[index]
        if (
            not same
            or not window.startswith(same + b"\0\0" + raw_name, at + _LOCAL_SHARED_AT)
            or not window.startswith(layout.LOCAL_HEADS, at)
            or data_offset + member.compressed_size != bound
        ):
            data_offset = _locate_unusual(file, member, window[at : at + head_size], bound)
        members[index] = _new(Member, (*member[:-2], data_offset, bound))
        expected = bound
    if expected != directory:
        raise InconsistentArchiveError(
            f"{file.path.name} has {directory} bytes before its directory and no members"
        )
    return tuple(members)


def _locate_unusual(file: RawFile, member: Member, head: bytes, bound: int) -> int:
    """The offset of the content of a member with ZIP64 sizes, a descriptor, extra fields or another time."""
    magic, needs, flags, method, _, crc, compressed, size, length, extra_size = layout.LOCAL.unpack_from(head)
    same_name = length == len(member.raw_name) and head.endswith(member.raw_name)
    if magic != layout.LOCAL_MAGIC or not same_name or needs & 0xFF > layout.NEEDS_AT_MOST:
        reason = "is missing, needs a newer ZIP, or names a different member"
        raise InconsistentArchiveError(f"the local header of {member.name} {reason}")
    data_offset: int = member.offset + len(head) + extra_size
    end = data_offset + member.compressed_size
    if end > bound:
        raise InconsistentArchiveError(f"{member.name} is longer than the room it has: members overlap")
    if extra_size:  # which may have a second name too (4.6.9), or sizes that nobody asked for
        zip64, _ = layout.split_extra(file.at(member.offset + len(head), extra_size), where=member.name)
        size, compressed = layout.widen((size, compressed), zip64, where=member.name)
    described = (flags, method, crc, compressed, size)
    # Bit 3: CRC and sizes follow the content, and are zero in the local header (4.4.4). Zip writers that
    # cannot seek write so: `zip -`, and Java's ZipOutputStream.
    late = flags & layout.FLAG_DESCRIPTOR
    if described != member[2:4] + member[5:8] and not (late and described == (*member[2:4], 0, 0, 0)):
        raise InconsistentArchiveError(f"the two headers of {member.name} contradict each other")
    if late:
        _check_descriptor(file, member, end, bound)
    elif end != bound:
        raise InconsistentArchiveError(f"{bound - end} bytes after {member.name} belong to no member")
    return data_offset


def _check_descriptor(file: RawFile, member: Member, start: int, end: int) -> None:
    """The data descriptor (4.3.9) between the content of a member and the next one."""
    raw = file.at(start, end - start) if end - start in _DESCRIPTOR_SIZES else b""
    # CRC, compressed size, size: 4+4+4 or, with ZIP64, 4+8+8 bytes. The signature before them is optional,
    # and makes them 16 or 24, which alone are divisible by 8.
    numbers = raw.removeprefix(layout.DESCRIPTOR_MAGIC) if len(raw) % 8 == 0 else raw
    width = (len(numbers) - 4) // 2
    reason = (
        int.from_bytes(numbers[:4], "little"),
        int.from_bytes(numbers[4 : 4 + width], "little"),
        int.from_bytes(numbers[4 + width :], "little"),
    )
    if reason != (member.crc, member.compressed_size, member.size):
        raise InconsistentArchiveError(f"the data descriptor of {member.name} contradicts its header")


_OVERLAP = 1 << 10
_READ_LIMIT = 64 << 20  # of a file that is read whole: METADATA, RECORD, a module


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Keep the garbage collector from looking again and again at tens of thousands of tuples being made."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Archive:
    """The members of a ZIP file.

    Attributes:
        path: the file.
        members: its entries in the order of the central directory.
        raw: the open file, for copying members as they are.
    """

    def __init__(self, raw: RawFile, members: tuple[Member, ...]) -> None:
        self.path = raw.path
        self.raw = raw
        self.members = members
        self._by_name = {member.name: member for member in members}

    @classmethod
    def open(cls, path: Path | RawFile, *, limits: Limits = DEFAULT_LIMITS) -> Archive:
        """Open an archive and check all its headers.

        Raises:
            ArchiveError: one of its subclasses in `cairn.formats.zip.layout`, by reason.
        """
        raw = path if isinstance(path, RawFile) else RawFile(path)
        try:
            with collector_paused():
                return cls(raw, read_directory(raw, limits))
        except BaseException:
            raw.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.raw.close()

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def member(self, name: str) -> Member:
        """The member of that name.

        Raises:
            MissingMemberError: there is none.
        """
        try:
            return self._by_name[name]
        except KeyError:
            raise MissingMemberError(f"{self.path.name} has no {name}") from None

    def read(self, name: str, *, limit: int = _READ_LIMIT) -> bytes:
        """The content of a member of at most `limit` bytes.

        Raises:
            BombError: it is larger.
            ArchiveError: see `stream`.
        """
        member = self.member(name)
        if member.size > limit:
            raise BombError(f"{name} is {member.size} bytes, far more than it should need")
        return b"".join(self.stream(member))

    def read_any(self, name: str) -> bytes | None:
        """Like `read`; None where there is no such member."""
        return self.read(name) if name in self else None

    def windows(self, name: str) -> Iterator[bytes]:
        """The content of a member of any size, in pieces that begin with the last KiB of the one before.

        What is no longer than that stands whole in one of them. For what it raises see `stream`.
        """
        window = b""
        for piece in self.stream(self.member(name)):
            window = window[-_OVERLAP:] + piece
            yield window

    def search(self, name: str, pattern: re.Pattern[bytes]) -> bool:
        """Whether a member of any size has a match, of at most 1 KiB; for what it raises see `stream`."""
        return any(map(pattern.search, self.windows(name)))

    def digest(self, name: str, algorithm: str = "sha256") -> bytes:
        """The hash of a member's content; for what it raises see `stream`."""
        digest = hashlib.new(algorithm)
        for piece in self.stream(self.member(name)):
            digest.update(piece)
        return digest.digest()

    def stream(self, member: Member) -> Iterator[bytes]:
        """The content of a member in pieces of at most 256 KiB, its size and CRC checked at the end.

        Raises:
            InconsistentArchiveError: the content is not what the header says.
            TruncatedArchiveError: the file ends too early.
        """
        crc, size = 0, 0
        for piece in self.stream_unchecked(member):
            size += len(piece)
            if size > member.size:
                raise InconsistentArchiveError(f"{member.name} unpacks to more than {member.size} bytes")
            crc = deflate.crc32(piece, crc)
            yield piece
        if size != member.size:
            raise InconsistentArchiveError(
                f"{member.name} unpacks to {size} bytes, not the {member.size} it claims"
            )
        if crc != member.crc:
            raise InconsistentArchiveError(f"the CRC of {member.name} does not match its content")

    def stream_unchecked(self, member: Member) -> Iterator[bytes]:
        """Like `stream` without the checks, for readers that stop early."""
        if self.raw.is_remote:
            member = _local_header(self.raw, member)
        packed = self.raw.chunks(member.data_offset, member.compressed_size)
        if member.method == layout.STORED:
            yield from packed
            return
        try:
            yield from deflate.inflate(packed)
        except deflate.InflateError as error:
            raise InconsistentArchiveError(f"the compressed data of {member.name} is broken") from error
        except (EOFError, ValueError) as error:
            raise InconsistentArchiveError(
                f"the compressed data of {member.name} has a different length"
            ) from error
