"""Writing an archive from another one: what stays is copied as it is, only what is new is compressed.

A kept member costs an entry in the new directory. Its local header and content are copied in one call with
those around it; only where its name changes there is a new local header.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from cairn import files
from cairn.errors import WheelError
from cairn.formats.zip import deflate, layout
from cairn.formats.zip import limits as zip_limits
from cairn.formats.zip.layout import Member
from cairn.formats.zip.reader import Archive, RawFile

# Bytes that are copied and compared at once. Less costs more calls; for more, Linux looks for as much memory
# in one piece, which costs up to five times as much where there is little.
_PIECE = 1 << 18
_EXECUTABLE = 0o111
_ZIP_YEARS = (1980, 2107)  # the year has seven bits
_ANY_SIZE = zip_limits.Limits(total_size=1 << 62)  # what we write ourselves is not a bomb


class CopiedMember(NamedTuple):
    """A member copied with its compressed bytes, its time and its mode (a tuple: a torch wheel has 12,000).

    Attributes:
        member: the member of the source.
        name: its name in the new archive.
    """

    member: Member
    name: str


@dataclass(frozen=True, kw_only=True)
class New:
    """A member made from given content.

    Attributes:
        name: its name.
        content: its bytes, or the file that has them.
        executable: whether it gets the executable bits; None takes those of a file, and none for bytes.
    """

    name: str
    content: bytes | Path
    executable: bool | None = None


def write(target: Path, entries: Iterable[CopiedMember | New], source: Archive | None = None) -> None:
    """Write the archive `target` whole or not at all, its members in the order given.

    New members get the time `SOURCE_DATE_EPOCH` says (else 1980-01-01) and mode 0644 or 0755, so that the
    same entries give the same bytes.

    Args:
        target: the archive to write; never the source's own file.
        entries: what it holds.
        source: the archive that `CopiedMember` entries come from.

    Raises:
        WheelError: `target` is the source; two entries have one name; a name leads out of the wheel; or what
            was copied is not what the source has.
    """
    refuse_source(target, [source.path] if source else [])
    with (
        files.writing_beside(target) as part,
        part.open("wb") as out,
        contextlib.closing(RawFile(part)) as new,
    ):
        writer = _Writer(out, new)
        for step in _runs(entries):
            if isinstance(step, New):
                writer.add(step)
            elif source is not None:
                writer.copy(source.raw, step)
        writer.finish()


def refuse_source(target: Path, sources: Iterable[Path]) -> None:
    """Refuse to write over one of the files that are read.

    Raises:
        WheelError: `target` is one of them.
    """
    if target.exists() and any(target.samefile(path) for path in sources):
        raise WheelError(f"{target} would overwrite its own source", tip="choose a different output folder")


class _Writer:
    """The archive being written, and what its directory will say: its members, each with its offset."""

    def __init__(self, out: BinaryIO, new: RawFile) -> None:
        self._out, self._new = out, new
        self._piece, self._read_back = bytearray(_PIECE), bytearray(_PIECE)
        self._stamp = _stamp()
        self._members: list[tuple[Member, int]] = []

    def copy(self, raw: RawFile, run: Sequence[CopiedMember]) -> None:
        """Copy members that stand one after the other in the source; only the first may be renamed."""
        first, last = run[0].member, run[-1].member
        here = self._out.tell()
        begin = first.offset
        if run[0].name != first.name:
            name = run[0].name
            zip_limits.check_name(name)
            # The new header has CRC and sizes, so that a data descriptor behind the content stays behind.
            flags = first.flags & ~layout.FLAG_DESCRIPTOR | (0 if name.isascii() else layout.FLAG_UTF8)
            first = first._replace(name=name, raw_name=name.encode(), flags=flags)
            wide = max(first.size, first.compressed_size) >= layout.WIDE_SIZE
            self._out.write(layout.local_header(first, zip64=wide))
            self._copy(raw, first.data_offset, first.compressed_size)
            begin = first.end
        shift = self._out.tell() - begin
        self._copy(raw, begin, last.end - begin)
        self._members.append((first, here))
        self._members += [(entry.member, entry.member.offset + shift) for entry in run[1:]]

    def _copy(self, raw: RawFile, offset: int, size: int) -> None:
        """Copy bytes of the source, and compare them with what the new file then has.

        Through our own memory: what moves behind a member of another size stands across the pages of the new
        file, where copy_file_range(2) takes half as long again, and the comparison would read it once more.

        Raises:
            WheelError: they differ.
        """
        begin = self._out.tell() - offset
        for start in range(offset, offset + size, _PIECE):
            with memoryview(self._piece)[: offset + size - start] as piece:
                raw.fill(piece, start)
                self._out.write(piece)
                self._out.flush()
                with memoryview(self._read_back)[: len(piece)] as read_back:
                    self._new.fill(read_back, begin + start)
                if not self._read_back.startswith(piece):
                    raise WheelError(
                        f"the copy of {raw.path.name} differs from it", tip="check the disk, and run it again"
                    )

    def add(self, new: New) -> None:
        """Compress one member."""
        zip_limits.check_name(new.name)
        here = self._out.tell()
        member = _blank(new, self._stamp)
        # The header must say whether the sizes are wide before they are known: deflate adds at most 0.1 %.
        most = new.content.stat().st_size if isinstance(new.content, Path) else len(new.content)
        wide = most + most // 1000 + 1024 >= layout.WIDE_SIZE
        self._out.write(layout.local_header(member, zip64=wide))
        begin = self._out.tell()
        counter = _Counter(_pieces(new.content))
        for packed in deflate.deflate(counter):
            self._out.write(packed)
        end = self._out.tell()
        member = member._replace(crc=counter.crc, size=counter.size, compressed_size=end - begin)
        # Now CRC and sizes are known: the same header again, so that no data descriptor is needed.
        self._out.seek(here)
        self._out.write(layout.local_header(member, zip64=wide))
        self._out.seek(end)
        self._members.append((member, here))

    def finish(self) -> None:
        """Write the central directory."""
        zip_limits.check_together([member for member, _ in self._members], _ANY_SIZE)
        begin = self._out.tell()
        directory = b"".join([layout.central_entry(m, offset) for m, offset in self._members])
        self._out.write(directory)
        size = len(directory)
        self._out.write(layout.end_records(len(self._members), size, begin))


class _Counter:
    """Pieces on their way through, and what they amount to."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = pieces
        self.crc = 0
        self.size = 0

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            self.crc = deflate.crc32(piece, self.crc)
            self.size += len(piece)
            yield piece


def _runs(entries: Iterable[CopiedMember | New]) -> Iterator[New | list[CopiedMember]]:
    """New members one by one, kept ones in the longest runs that one copy can move."""
    run: list[CopiedMember] = []
    for entry in entries:
        if isinstance(entry, New):
            if run:
                yield run
            run = []
            yield entry
        elif run and entry.member.offset == run[-1].member.end and entry.name == entry.member.name:
            run.append(entry)
        else:
            if run:
                yield run
            run = [entry]
    if run:
        yield run


def _blank(new: New, stamp: int) -> Member:
    """The member as far as it is known before it is compressed."""
    executable = new.executable
    if executable is None:
        executable = isinstance(new.content, Path) and bool(new.content.stat().st_mode & _EXECUTABLE)
    mode = stat.S_IFREG | (0o755 if executable else 0o644)
    return Member(
        name=new.name,
        raw_name=new.name.encode(),
        flags=0 if new.name.isascii() else layout.FLAG_UTF8,
        method=layout.DEFLATED,
        stamp=stamp,
        crc=0,
        compressed_size=0,
        size=0,
        external=mode << 16,
        internal=0,
        made_by=layout.MADE_ON_UNIX,
        extra=b"",
        comment=b"",
        offset=0,
        data_offset=0,
        end=0,
    )


def _pieces(content: bytes | Path) -> Iterator[bytes]:
    if isinstance(content, bytes):
        for start in range(0, len(content), deflate.PIECE):
            yield content[start : start + deflate.PIECE]
        return
    with content.open("rb") as file:
        while piece := file.read(deflate.PIECE):
            yield piece


def _stamp() -> int:
    """The DOS time of new members (https://reproducible-builds.org/specs/source-date-epoch/)."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not epoch.isdecimal():
        return layout.DOS_EPOCH
    try:
        then = time.gmtime(int(epoch))
    except (OverflowError, ValueError, OSError):
        return layout.DOS_EPOCH
    if not _ZIP_YEARS[0] <= then.tm_year <= _ZIP_YEARS[1]:
        return layout.DOS_EPOCH
    # The bits as in `layout.DOS_EPOCH`; seconds come in twos.
    date = (then.tm_year - _ZIP_YEARS[0]) << 9 | then.tm_mon << 5 | then.tm_mday
    return date << 16 | then.tm_hour << 11 | then.tm_min << 5 | then.tm_sec // 2
