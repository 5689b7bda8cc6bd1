"""A wheel's archive, opened for reading with every guard in place."""

from __future__ import annotations

import contextlib
import gc
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from cairn.formats.errors import BombError, InconsistentArchiveError, MissingMemberError
from cairn.formats.zip import deflate, layout
from cairn.formats.zip.central_directory import read_directory
from cairn.formats.zip.layout import Member
from cairn.formats.zip.limits import DEFAULT_LIMITS, Limits
from cairn.formats.zip.raw_file import RawFile

__all__ = ["Archive", "Limits", "Member", "collector_paused"]

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
    def open(cls, path: Path, *, limits: Limits = DEFAULT_LIMITS) -> Archive:
        """Open an archive and check all its headers.

        Raises:
            ArchiveError: one of its subclasses in `cairn.formats.errors`, by reason.
        """
        raw = RawFile(path)
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
