"""The structures of a ZIP archive, packed and unpacked, and an error for each way in which one can be wrong.

Source: PKWARE APPNOTE.TXT 6.3.10, sections 4.3 (layout), 4.4 (fields) and 4.5.3 (the ZIP64 extra field).
"""

from __future__ import annotations

import stat
import struct
from typing import NamedTuple

from cairn.errors import WheelError


class ArchiveError(WheelError):
    """The ZIP archive of a wheel cannot be trusted."""

    usual_tip = "build it again, or fetch it again where it was copied"


class NotAnArchiveError(ArchiveError):
    """The file is not a ZIP archive at all."""


class TruncatedArchiveError(ArchiveError):
    """The file ends before, or in the middle of, what its headers promise."""


class InconsistentArchiveError(ArchiveError):
    """Two places of the archive contradict each other, or the content contradicts its header."""


class EscapingPathError(ArchiveError):
    """A member's name would lead outside the folder it is unpacked into."""


class AbsolutePathError(ArchiveError):
    """A member's name begins at a root or a drive."""


class DuplicateMemberError(ArchiveError):
    """Two members claim one path."""


class LinkMemberError(ArchiveError):
    """A member is a symbolic link, a device, or anything else that is not a file."""


class EncryptedMemberError(ArchiveError):
    """A member needs a password."""


class BombError(ArchiveError):
    """Unpacking would take far more room than a wheel needs."""


class UnsupportedArchiveError(ArchiveError):
    """The archive uses a ZIP feature that installers do not understand."""


class MissingMemberError(ArchiveError):
    """The archive has no member of that name."""


# Compression methods (4.4.5): of all that exist, wheels use these two (PEP 427 asks for what zipfile reads).
STORED = 0
DEFLATED = 8
# General purpose bits (4.4.4).
FLAG_DESCRIPTOR = 1 << 3  # CRC and sizes stand behind the content
FLAG_UTF8 = 1 << 11  # the name is UTF-8, else code page 437
FLAG_PATCHED = 1 << 5  # the content is a patch of another file
FLAGS_ENCRYPTED = 1 | 1 << 6 | 1 << 13  # encrypted; strongly; the central directory too
# A field of all ones means that the value is in the ZIP64 extra field or the ZIP64 end record (4.4.1.4).
MAX_32 = 0xFFFFFFFF
MAX_16 = 0xFFFF
# From which sizes, offsets and counts on the ZIP64 fields are used; only tests lower them.
WIDE_SIZE, WIDE_COUNT = MAX_32, MAX_16
# Version made by (4.4.2): the system in the high byte (3: Unix, so that the mode counts), 2.0 in the low one.
MADE_ON_UNIX = 3 << 8 | 20
# Date (years from 1980, 7 bits; month, 4; day, 5) and time (hour, 5; minute, 6; seconds halved, 5) of MS-DOS.
DOS_EPOCH = 0x0021_0000  # 1980-01-01 00:00:00, the earliest time that ZIP can say

# Local file header (4.3.7), 30 bytes: 0 signature, 4 version needed, 6 flags, 8 method, 10 time and date,
# 14 CRC-32, 18 compressed size, 22 size, 26 length of the name, 28 of the extra field; then name and extra.
LOCAL = struct.Struct("<4s3H4L2H")
LOCAL_MAGIC = b"PK\x03\x04"
# Central directory header (4.3.12), 46 bytes: 0 signature, 4 version made by, 6 needed, 8 flags, 10 method,
# 12 time and date, 16 CRC-32, 20 compressed size, 24 size, 28 length of the name, 30 of the extra field,
# 32 of the comment, 34 disk, 36 internal attributes, 38 external ones (the Unix mode in the high 16 bits),
# 42 offset of the local header; then name, extra and comment.
CENTRAL = struct.Struct("<4s4H4L5H2L")
CENTRAL_MAGIC = b"PK\x01\x02"
# From the flags to the length of the name both headers have the same 22 bytes.
LOCAL_SHARED_AT = 6
CENTRAL_SHARED_AT = 8
# End of central directory (4.3.16), 22 bytes: 0 signature, 4 disk, 6 disk of the directory, 8 entries on this
# disk, 10 in all, 12 size of the directory, 16 its offset, 20 length of the comment; then the comment.
END = struct.Struct("<4s4H2LH")
END_MAGIC = b"PK\x05\x06"
# ZIP64 end of central directory (4.3.14), 56 bytes: 0 signature, 4 length of what follows, 12 version made
# by, 14 needed, 16 disk, 20 disk of the directory, 24 entries on this disk, 32 in all, 40 size, 48 offset.
END64 = struct.Struct("<4sQ2H2L4Q")
END64_MAGIC = b"PK\x06\x06"
# Its locator (4.3.15), 20 bytes: 0 signature, 4 disk and 8 offset of the record above, 16 number of disks.
LOCATOR64 = struct.Struct("<4sLQL")
LOCATOR64_MAGIC = b"PK\x06\x07"
DESCRIPTOR_MAGIC = b"PK\x07\x08"

_EXTRA_HEAD = struct.Struct("<HH")  # an extra field (4.5.1): its kind, the length of what follows
_EXTRA_ZIP64 = 0x0001
_EXTRA_UNICODE_NAME = 0x7075  # Info-ZIP's second name (4.6.9), which some readers prefer to the first
# Version needed to extract (4.4.3): 2.0 brought deflate, and 4.5 ZIP64, the newest thing that wheels use.
NEEDS_AT_MOST = 45
_NEEDS_DEFLATE = 20
LOCAL_HEADS = tuple(LOCAL_MAGIC + bytes([needs, 0]) for needs in (_NEEDS_DEFLATE, 10, NEEDS_AT_MOST))
"""How usual local headers begin: the signature, and the version needed."""


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
        content = position + _EXTRA_HEAD.size
        if content > len(extra) and not extra[position:].strip(b"\0"):  # what zipalign fills up with
            rest += extra[position:]
            break
        if content > len(extra):
            raise InconsistentArchiveError(f"{where} has a broken extra field")
        kind, size = _EXTRA_HEAD.unpack_from(extra, position)
        end = content + size
        if end > len(extra):
            raise InconsistentArchiveError(f"{where} has a broken extra field")
        if kind == _EXTRA_UNICODE_NAME or (kind == _EXTRA_ZIP64 and zip64 is not None):
            raise InconsistentArchiveError(f"{where} says the same thing twice in its extra fields")
        if kind == _EXTRA_ZIP64:
            zip64 = extra[content:end]
        else:
            rest += extra[position:end]
        position = end
    return zip64, bytes(rest)


def widen(values: tuple[int, ...], zip64: bytes | None, *, where: str) -> tuple[int, ...]:
    """Replace each 32-bit value that is all ones by its 64-bit one (4.5.3).

    The field holds only those that are missing, in the order size, compressed size, offset of the header.
    Some writers put the others there too, which some readers believe: they must be the same.

    Raises:
        InconsistentArchiveError: the ZIP64 field does not hold what is missing, or something else.
    """
    missing = sum(value == MAX_32 for value in values)
    if zip64 is None:
        return values
    if len(zip64) < 8 * missing:
        raise InconsistentArchiveError(f"{where} has a ZIP64 field that is too short")
    wide = iter(struct.unpack_from(f"<{missing}Q", zip64))
    result = tuple(next(wide) if value == MAX_32 else value for value in values)
    count = min(len(zip64) // 8, len(values))
    if count > missing and struct.unpack_from(f"<{count}Q", zip64) != result[:count]:
        raise InconsistentArchiveError(f"{where} has a ZIP64 field that contradicts its header")
    return result


def local_header(member: Member, *, zip64: bool) -> bytes:
    """The local header of a member that is written anew (no data descriptor)."""
    sizes = (member.compressed_size, member.size)
    extra = member.extra
    if zip64:
        # In a local header both sizes must be there, whichever needs it (4.5.3).
        extra = _EXTRA_HEAD.pack(_EXTRA_ZIP64, 16) + struct.pack("<QQ", member.size, member.compressed_size)
        sizes = (MAX_32, MAX_32)
    head = LOCAL.pack(
        LOCAL_MAGIC,
        NEEDS_AT_MOST if zip64 else _NEEDS_DEFLATE,
        member.flags & ~FLAG_DESCRIPTOR,
        member.method,
        member.stamp,
        member.crc,
        *sizes,
        len(member.raw_name),
        len(extra),
    )
    return head + member.raw_name + extra


def central_entry(member: Member, offset: int) -> bytes:
    """The entry of `member` in the central directory of an archive that has it at `offset`."""
    # Taken apart at once: for 12,000 members fields by their names would take four times as long.
    _, raw_name, flags, method, stamp, crc, packed, size = member[:8]
    external, internal, made_by, extra, comment = member[8:13]
    needed = _NEEDS_DEFLATE
    most = WIDE_SIZE
    if size >= most or packed >= most or offset >= most:
        wide = [value for value in (size, packed, offset) if value >= most]
        size, packed, offset = (MAX_32 if value >= most else value for value in (size, packed, offset))
        extra = _EXTRA_HEAD.pack(_EXTRA_ZIP64, 8 * len(wide)) + struct.pack(f"<{len(wide)}Q", *wide) + extra
        needed = NEEDS_AT_MOST
    head = (CENTRAL_MAGIC, made_by, needed, flags, method, stamp, crc, packed, size, len(raw_name))
    rest = (len(extra), len(comment), 0, internal, external, offset)
    return CENTRAL.pack(*head, *rest) + raw_name + extra + comment


def end_records(count: int, size: int, offset: int) -> bytes:
    """The end record, preceded by the ZIP64 ones where they are needed."""
    head = b""
    if count >= WIDE_COUNT or size >= WIDE_SIZE or offset >= WIDE_SIZE:
        versions = (3 << 8 | NEEDS_AT_MOST, NEEDS_AT_MOST)
        head = END64.pack(END64_MAGIC, END64.size - 12, *versions, 0, 0, count, count, size, offset)
        head += LOCATOR64.pack(LOCATOR64_MAGIC, 0, offset + size, 1)
    count = MAX_16 if count >= WIDE_COUNT else count
    size, offset = (MAX_32 if value >= WIDE_SIZE else value for value in (size, offset))
    return head + END.pack(END_MAGIC, 0, 0, count, count, size, offset, 0)
