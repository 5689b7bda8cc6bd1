"""Parts of a binary: read alike in memory, on disk and compressed in a wheel, and written at given places.

`apply_patches` writes a list of `Patch`: an edit of a library of 400 MB costs as much as what changes in it.
"""

from __future__ import annotations

import bisect
import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Protocol

import msgspec

from cairn.errors import WheelError
from cairn.formats.zip import deflate
from cairn.formats.zip.layout import DEFLATED, InconsistentArchiveError, Member
from cairn.formats.zip.reader import Archive

# What readers come back to (headers, the dynamic section, symbols, strings) stands at the beginning of nearly
# all libraries, and patchelf moves some of it to the end, in front of the section table.
HELD = 16 << 20
"""So many bytes at the beginning of a member can be read at any time without unpacking it again."""
_HEAD = _TAIL = HELD
_STEP = 1 << 20
_MOST_REWINDS = 64  # of a real library a handful: each unpacks it from the beginning


class View(Protocol):
    """Bytes that can be read at any place."""

    @property
    def size(self) -> int:
        """Their number."""

    def read(self, offset: int, size: int) -> bytes:
        """Exactly `size` bytes from `offset`.

        Raises:
            WheelError: there are fewer.
        """


class BytesView:
    """A view of bytes in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def read(self, offset: int, size: int) -> bytes:
        """See `View.read`."""
        check_range(offset, size, self.size)
        return self._data[offset : offset + size]


class FileView:
    """A view of a file on disk of which nothing stays in memory, where a mapping keeps what was read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.size = file.seek(0, os.SEEK_END)

    def read(self, offset: int, size: int) -> bytes:
        """See `View.read`."""
        check_range(offset, size, self.size)
        self._file.seek(offset)
        data = self._file.read(size)
        check_range(offset, size, offset + len(data))  # of a file that someone has cut meanwhile
        return data


@contextlib.contextmanager
def opening(path: Path) -> Iterator[FileView]:
    """A view of a file on disk as long as the block lasts.

    Raises:
        WheelError: it is empty.
    """
    with path.open("rb") as file:
        view = FileView(file)
        if not view.size:
            raise WheelError(f"{path} is empty")
        yield view


class MemberView:
    """A view of a wheel's member that holds its first 16 MiB, and those up to the end of the part being read.

    Reading forward unpacks the member once. Reading something behind that is no longer held unpacks it again
    from the beginning, which is refused where it happens far more often than in any real library.
    """

    def __init__(
        self,
        archive: Archive,
        member: Member,
        *,
        observer: Callable[[bytes], object] | None = None,
    ) -> None:
        """Begin a view.

        Args:
            archive: where the member is.
            member: which one.
            observer: called once with every piece of the content, in order, as far as it is unpacked. Only
                with an observer are size and CRC checked, once `drain` has come to the end.
        """
        self.size = member.size
        self._archive = archive
        self._member = member
        self._observer = observer
        self._observed = self._rewinds = 0
        self._rewind()

    def read(self, offset: int, size: int) -> bytes:
        """See `View.read`."""
        check_range(offset, size, self.size)
        end = offset + size
        begin, stop = self._gone
        if offset < stop and end > begin:
            self._rewinds += 1
            if self._rewinds > _MOST_REWINDS:
                raise WheelError("its headers lead to and fro, each time over more than 16 MiB")
            self._rewind()
        while self._ahead < end:
            self._go_on(offset)
        first = bisect.bisect_right(self._starts, offset) - 1
        at = offset - self._starts[first]
        piece = self._held[first]
        if at + size > len(piece):
            piece = b"".join(self._held[first : bisect.bisect_left(self._starts, end)])
        return piece[at : at + size]

    def drain(self) -> None:
        """Unpack to the end, so that size and CRC are checked and the observer has seen everything.

        Raises:
            ArchiveError: the content is not what the header says, even if a reader has ignored that.
        """
        while self._observed < self.size:
            self._go_on()
        # The checks are at the very end of the stream, after its last piece.
        for _ in self._pieces:
            pass

    def _rewind(self) -> None:
        self._pieces: Iterator[bytes] = (
            self._archive.stream if self._observer else self._archive.stream_unchecked
        )(self._member)
        self._ahead = 0  # as far as it is unpacked
        self._starts, self._held = [0], [b""]
        self._heads = 1  # how many of them are of the first 16 MiB
        self._gone = (0, 0)  # what is no longer held, between those and the others

    def _go_on(self, needed: int = sys.maxsize) -> None:
        """Unpack one more piece, and let go what is far behind and before the offset `needed`."""
        piece = next(self._pieces, None)
        if piece is None:
            raise InconsistentArchiveError(
                f"{self._member.name} unpacks to {self._observed} bytes, not the {self.size} it claims"
            )
        self._starts.append(self._ahead)
        self._held.append(piece)
        if self._ahead < _HEAD:
            self._heads += 1
        self._ahead = end = self._ahead + len(piece)
        first = self._heads  # of those that may go
        while len(self._starts) > first + 1 and self._starts[first + 1] <= min(needed, end - _TAIL):
            self._gone = (self._gone[0] or self._starts[first], self._starts[first + 1])
            del self._starts[first], self._held[first]
        if end > self._observed:  # not when what was unpacked before is unpacked again
            self._observed = end
            if self._observer is not None:
                self._observer(piece)


def read_at_once(archive: Archive, member: Member) -> bytes | None:
    """The content of a small member on disk, in one step; None where `stream` must say what is wrong."""
    if member.method != DEFLATED or max(member.size, member.compressed_size) > _STEP:
        return None
    packed = archive.raw.at(member.data_offset, member.compressed_size)
    data = deflate.inflate_at_once(packed, member.size)
    return data if data is not None and deflate.crc32(data) == member.crc else None


def pieces(view: View, start: int, end: int) -> Iterator[bytes]:
    """The bytes between two offsets of a view, in pieces of at most 1 MiB."""
    for at in range(start, end, _STEP):
        yield view.read(at, min(_STEP, end - at))


def check_range(offset: int, size: int, available: int) -> None:
    """Refuse to read what is not there.

    Raises:
        WheelError: the range is not within `available` bytes.
    """
    if offset < 0 or size < 0 or offset + size > available:
        raise WheelError(f"a header points at bytes {offset} to {offset + size} of {available}")


class Patch(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes to be written: `data` at the place `at` of a file, and behind it so many zeros."""

    at: int
    data: bytes = b""
    zeros: int = 0

    @property
    def end(self) -> int:
        """The offset behind it."""
        return self.at + len(self.data) + self.zeros

    def pieces(self) -> Iterator[bytes]:
        """The bytes to write, in pieces of at most 1 MiB."""
        yield self.data
        for start in range(0, self.zeros, _STEP):
            yield bytes(min(_STEP, self.zeros - start))


def apply_patches(path: Path, patches: Iterable[Patch]) -> None:
    """Write patches into a file."""
    with path.open("r+b") as out:
        for patch in patches:
            out.seek(patch.at)
            out.writelines(patch.pieces())
