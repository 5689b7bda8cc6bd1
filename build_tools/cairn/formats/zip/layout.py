"""The structures of a ZIP archive, packed and unpacked.

Source: PKWARE APPNOTE.TXT 6.3.10, sections 4.3 (layout), 4.4 (fields) and 4.5.3 (the ZIP64 extra field).
"""

from __future__ import annotations

import stat
import struct
from typing import NamedTuple

from cairn.formats.errors import InconsistentArchiveError

STORED = 0
DEFLATED = 8
FLAG_DESCRIPTOR = 1 << 3
FLAG_UTF8 = 1 << 11
FLAGS_ENCRYPTED = 1 | 1 << 6 | 1 << 13
MAX_32 = 0xFFFFFFFF
MAX_16 = 0xFFFF
MADE_ON_UNIX = 3 << 8 | 20
DOS_EPOCH = 0x0021_0000  # 1980-01-01 00:00:00, the earliest time that ZIP can say

LOCAL = struct.Struct("<4s3H4L2H")
CENTRAL = struct.Struct("<4s4H4L5H2L")
END = struct.Struct("<4s4H2LH")
END64 = struct.Struct("<4sQ2H2L4Q")
LOCATOR64 = struct.Struct("<4sLQL")
LOCAL_MAGIC = b"PK\x03\x04"
CENTRAL_MAGIC = b"PK\x01\x02"
END_MAGIC = b"PK\x05\x06"
END64_MAGIC = b"PK\x06\x06"
LOCATOR64_MAGIC = b"PK\x06\x07"
DESCRIPTOR_MAGIC = b"PK\x07\x08"

_EXTRA_HEAD = struct.Struct("<HH")
_EXTRA_ZIP64 = 0x0001
_EXTRA_UNICODE_NAME = 0x7075
NEEDS_AT_MOST = 45
"""The version of ZIP that brought 64 bits: all that wheels use is older, and readers refuse newer ones."""
_NEEDS_ZIP64 = NEEDS_AT_MOST
_NEEDS_DEFLATE = 20


class Zip64At(NamedTuple):
    """From which values on the ZIP64 fields are used; only tests lower them."""

    size: int = MAX_32
    members: int = MAX_16


class Member(NamedTuple):
    """One entry of the central directory (a tuple, because a torch wheel has 12,000 of them).

    Attributes:
        name: the path inside the wheel, with `/`; a folder's ends in one.
        raw_name: the same as its bytes in the archive.
        flags: the general purpose bits.
        method: STORED or DEFLATED.
        stamp: DOS date (high 16 bits) and time (low).
        crc: CRC-32 of the content.
        compressed_size: bytes in the archive.
        size: bytes when unpacked.
        external: external attributes; the high 16 bits are the Unix mode.
        internal: internal attributes.
        made_by: the system and version that made the entry.
        extra: extra fields without the ZIP64 one.
        comment: the entry's comment.
        offset: where its local header begins.
        data_offset: where its compressed bytes begin.
        end: where it ends, data descriptor included.
    """

    name: str
    raw_name: bytes
    flags: int
    method: int
    stamp: int
    crc: int
    compressed_size: int
    size: int
    external: int
    internal: int
    made_by: int
    extra: bytes
    comment: bytes
    offset: int
    data_offset: int
    end: int

    @property
    def mode(self) -> int:
        """The Unix mode with its file type bits, as pip reads it; 0 when the archive has none."""
        return self.external >> 16

    @property
    def is_dir(self) -> bool:
        """Whether it stands for a folder."""
        return self.name.endswith("/")

    @property
    def is_link(self) -> bool:
        """Whether it is a symbolic link, whose content is where it leads."""
        return stat.S_ISLNK(self.mode)

    @property
    def executable(self) -> bool:
        """Whether an installer would set the executable bits."""
        return bool(stat.S_ISREG(self.mode) and self.mode & 0o111)


def split_extra(extra: bytes, *, where: str) -> tuple[bytes | None, bytes]:
    """The content of the ZIP64 extra field, if any, and all the other fields.

    Raises:
        InconsistentArchiveError: a field is longer than the whole, or repeated, or is a second name.
    """
    zip64: bytes | None = None
    rest = bytearray()
    position = 0
    while position < len(extra):
        end = _field_end(extra, position, where=where)
        kind = int.from_bytes(extra[position : position + 2], "little")
        if kind == _EXTRA_UNICODE_NAME or (kind == _EXTRA_ZIP64 and zip64 is not None):
            raise InconsistentArchiveError(f"{where} says the same thing twice in its extra fields")
        if kind == _EXTRA_ZIP64:
            zip64 = extra[position + _EXTRA_HEAD.size : end]
        else:
            rest += extra[position:end]
        position = end
    return zip64, bytes(rest)


def _field_end(extra: bytes, position: int, *, where: str) -> int:
    if position + _EXTRA_HEAD.size <= len(extra):
        _, size = _EXTRA_HEAD.unpack_from(extra, position)
        if position + _EXTRA_HEAD.size + size <= len(extra):
            return int(position + _EXTRA_HEAD.size + size)
    raise InconsistentArchiveError(f"{where} has a broken extra field")


def widen(values: tuple[int, ...], zip64: bytes | None, *, where: str) -> tuple[int, ...]:
    """Replace each 32-bit value that is all ones by its 64-bit one, which stand in the same order.

    Raises:
        InconsistentArchiveError: the ZIP64 field does not hold exactly what is missing.
    """
    missing = sum(value == MAX_32 for value in values)
    if zip64 is None:
        return values
    if len(zip64) < 8 * missing:
        raise InconsistentArchiveError(f"{where} has a ZIP64 field that is too short")
    wide = iter(struct.unpack_from(f"<{missing}Q", zip64))
    return tuple(next(wide) if value == MAX_32 else value for value in values)


def local_header(member: Member, *, zip64: bool) -> bytes:
    """The local header of a member that is written anew (no data descriptor)."""
    sizes = (member.compressed_size, member.size)
    extra = member.extra
    if zip64:
        extra = _EXTRA_HEAD.pack(_EXTRA_ZIP64, 16) + struct.pack("<QQ", member.size, member.compressed_size)
        sizes = (MAX_32, MAX_32)
    head = LOCAL.pack(
        LOCAL_MAGIC,
        _NEEDS_ZIP64 if zip64 else _NEEDS_DEFLATE,
        member.flags & ~FLAG_DESCRIPTOR,
        member.method,
        member.stamp,
        member.crc,
        *sizes,
        len(member.raw_name),
        len(extra),
    )
    return head + member.raw_name + extra


def central_entry(member: Member, limits: Zip64At) -> bytes:
    """The entry of `member` in the central directory."""
    size, compressed_size, offset, extra = member.size, member.compressed_size, member.offset, member.extra
    needed = _NEEDS_DEFLATE
    most = limits.size
    if size >= most or compressed_size >= most or offset >= most:
        values = (size, compressed_size, offset)
        wide = [value for value in values if value >= most]
        size, compressed_size, offset = (MAX_32 if value >= most else value for value in values)
        extra = _EXTRA_HEAD.pack(_EXTRA_ZIP64, 8 * len(wide)) + struct.pack(f"<{len(wide)}Q", *wide) + extra
        needed = _NEEDS_ZIP64
    head = CENTRAL.pack(
        CENTRAL_MAGIC,
        member.made_by,
        needed,
        member.flags,
        member.method,
        member.stamp,
        member.crc,
        compressed_size,
        size,
        len(member.raw_name),
        len(extra),
        len(member.comment),
        0,
        member.internal,
        member.external,
        offset,
    )
    return head + member.raw_name + extra + member.comment


def end_records(count: int, size: int, offset: int, limits: Zip64At) -> bytes:
    """What follows the central directory: the end record, and before it the ZIP64 ones when needed."""
    head = b""
    if count >= limits.members or size >= limits.size or offset >= limits.size:
        head = END64.pack(
            END64_MAGIC, END64.size - 12, MADE_ON_UNIX | 25, _NEEDS_ZIP64, 0, 0, count, count, size, offset
        )
        head += LOCATOR64.pack(LOCATOR64_MAGIC, 0, offset + size, 1)
    count = MAX_16 if count >= limits.members else count
    size, offset = (MAX_32 if value >= limits.size else value for value in (size, offset))
    return head + END.pack(END_MAGIC, 0, 0, count, count, size, offset, 0)
