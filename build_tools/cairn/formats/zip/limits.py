"""Limits on names, kinds and sizes of members."""

from __future__ import annotations

import collections
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cairn.formats.zip import layout
from cairn.formats.zip.layout import (
    AbsolutePathError,
    BombError,
    DuplicateMemberError,
    EncryptedMemberError,
    EscapingPathError,
    InconsistentArchiveError,
    LinkMemberError,
    Member,
    UnsupportedArchiveError,
)

_DRIVE = re.compile(r"[A-Za-z]:")
# APPNOTE 4.4.17 allows forward slashes alone; Windows would take a backslash for one.
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f\\]")
_RATIO_CHECK_MIN_SIZE = 16 << 20  # a member of less does no harm however well it is compressed
_LONGEST_PART = 255  # bytes between two slashes (NAME_MAX of Linux)
_LONGEST_PATH = 4095  # bytes that Linux takes (PATH_MAX), less than that on every other system
_FLAGS_REFUSED = layout.FLAGS_ENCRYPTED | layout.FLAG_PATCHED
_REGULAR = stat.S_IFREG >> 12  # the file type in the upper four bits of the external attributes


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much an archive may ask for; the defaults leave ten times the room of the largest torch wheel.

    Attributes:
        members: entries in the central directory.
        total_size: bytes of all members when unpacked.
        ratio: unpacked to packed size of a member that unpacks to more than 16 MiB.
        directory_size: bytes of the central directory.
        links: whether members may be symbolic links, for who only looks and writes nothing.
    """

    members: int = 1_000_000
    total_size: int = 64 << 30
    ratio: int = 250  # deflate itself cannot do better than 1032 to 1
    directory_size: int = 256 << 20
    links: bool = False


DEFAULT_LIMITS = Limits()


def check_members(members: Sequence[Member], limits: Limits) -> None:
    """Refuse members by what their central entries say.

    Raises:
        ArchiveError: one of its subclasses, by reason.
    """
    check_names([member.name for member in members])
    for member in members:
        # A regular file of usual size is what nearly all are.
        if (
            member.external >> 28 != _REGULAR
            or member.method != layout.DEFLATED
            or member.flags & _FLAGS_REFUSED
            or member.size > _RATIO_CHECK_MIN_SIZE
            or member.name.endswith("/")
        ):
            _check_member(member, limits)


def _check_member(member: Member, limits: Limits) -> None:
    if member.flags & layout.FLAGS_ENCRYPTED:
        raise EncryptedMemberError(f"{member.name} is encrypted", tip="no installer can ask for a password")
    if member.flags & layout.FLAG_PATCHED:
        raise UnsupportedArchiveError(f"{member.name} is a patch (bit 5), which no installer can apply")
    if member.method not in (layout.STORED, layout.DEFLATED):
        raise UnsupportedArchiveError(
            f"{member.name} is compressed by method {member.method}", tip="wheels use deflate or nothing"
        )
    _check_kind(member, limits)
    if member.method == layout.STORED and member.size != member.compressed_size:
        raise InconsistentArchiveError(f"{member.name} is stored, yet its two sizes differ")
    if member.size and member.name.endswith("/"):
        raise InconsistentArchiveError(f"the folder {member.name} has content")
    if member.size > _RATIO_CHECK_MIN_SIZE and member.size > member.compressed_size * limits.ratio:
        raise BombError(
            f"{member.name} would unpack from {member.compressed_size} to {member.size} bytes",
            tip=f"the limit is {limits.ratio} to 1",
        )


def _check_kind(member: Member, limits: Limits) -> None:
    # The mode that Unix writes; 0 where the archive comes from a system without, which is a file then.
    kind = stat.S_IFMT(member.external >> 16)
    if kind == (stat.S_IFDIR if member.name.endswith("/") else stat.S_IFREG):
        return
    if stat.S_ISLNK(kind) and limits.links:
        return
    if stat.S_ISLNK(kind):
        raise LinkMemberError(f"{member.name} is a symbolic link", tip="store the file itself")
    if kind:
        raise LinkMemberError(f"{member.name} is not what its name says: file type {kind:#o}")


def check_names(names: Sequence[str]) -> None:
    """Refuse paths that an installer could not put safely below a folder; see `check_name`."""
    # All at once, since there are thousands: each by itself only where something in the whole looks odd.
    text = f"/{'/|/'.join(name.removesuffix('/') for name in names)}/"
    longest = max(map(len, names), default=0)
    # A character may take four bytes.
    may_be_long = longest > _LONGEST_PART or (longest > _LONGEST_PART // 4 and not text.isascii())
    odd = not text.isprintable() or any(odd in text for odd in ("//", "/./", "/../", "\\", ":"))
    if odd or may_be_long:
        for name in names:
            check_name(name)


def check_name(name: str) -> None:
    """Refuse a path that an installer could not put safely below a folder.

    Raises:
        AbsolutePathError: it begins with `/` or a drive.
        EscapingPathError: it has `..`, `.`, an empty part, a backslash or a control character.
        UnsupportedArchiveError: it, or a part of it, is longer than that of any file can be.
    """
    if name.startswith("/") or _DRIVE.match(name):
        raise AbsolutePathError(f"the member name {name!r} is absolute")
    path = name.removesuffix("/")
    if _FORBIDDEN.search(name) or not {"", ".", ".."}.isdisjoint(path.split("/")):
        raise EscapingPathError(f"the member name {name!r} does not stay inside the wheel")
    if len(path.encode()) > _LONGEST_PATH or any(
        len(part.encode()) > _LONGEST_PART for part in path.split("/")
    ):
        raise UnsupportedArchiveError(f"the member name {name[:40]!r}… is longer than file systems take")


def check_together(members: Sequence[Member], limits: Limits) -> None:
    """Refuse members that claim one path, or together too much room.

    Raises:
        DuplicateMemberError: two members have one name, or one is a file where another needs a folder.
        BombError: all of them unpack to more than the limit.
    """
    total = sum(member.size for member in members)
    if total > limits.total_size:
        raise BombError(f"the members unpack to {total} bytes, over the limit of {limits.total_size}")
    names = {member.name for member in members}
    if len(names) < len(members):
        counts = collections.Counter(member.name for member in members)
        double = next(name for name, count in counts.items() if count > 1)
        raise DuplicateMemberError(f"there are two members named {double!r}")
    both = names & _folders(names)
    if both:
        raise DuplicateMemberError(f"{min(both)!r} is both a file and a folder")


def _folders(names: Iterable[str]) -> set[str]:
    folded: set[str] = set()
    for folder in {name.rstrip("/").rpartition("/")[0] for name in names}:
        above = folder
        while above and above not in folded:
            folded.add(above)
            above = above.rpartition("/")[0]
    return folded
