"""Reading and writing kpack archives, which hold a library's device code, and references to them.

All numbers of an archive but those of the table are little-endian:

    0 `KPAK`, 4 u32 version (1), 8 u64 where the table begins
    zeros, then the code
    the table, a map in MessagePack, up to the end:
        format_version, group_name, gfx_arch_family
        gfx_arches          the targets that it has code for
        compression_scheme  `none` or `zstd-per-kernel`
        toc                 "<kernel_name>#<ordinal of a wrapper>" to a target to
                            {type: "hsaco", ordinal, original_size}
        blobs               of `none`: [{offset, size}], counted from the start of the file
        zstd_offset, zstd_size
                            of `zstd-per-kernel`, of one blob: u32 count, then for each code object
                            u32 size and as many bytes, a frame of zstd

The `ordinal` of an entry counts the blobs, or the frames. Only the table is held; code is read a piece at a
time, so that an archive costs the same memory however large it is.

In a library the content of the section `.rocm_kpack_ref` stands in place of its code: a map in MessagePack of
`kpack_search_paths`, a list of texts, and `kernel_name`, a text. Each wrapper of the library leads to it. A
search path counts from the library's folder; the runtime puts the target of the GPU in place of `@GFXARCH@`:
with all its features (`gfx90a:sramecc+:xnack-`), then with fewer of them. It looks for the key
`<kernel_name>#<ordinal of the wrapper>` in the first archive that exists.

To the runtime a kernel name is any text. Ours ends with the build that the code is of: `lib/libx.so@` and 16
hex digits. So a library does not find the code of a different build, which lies beside it when the host wheel
alone was upgraded, and which would be started with arguments that it does not expect.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO

import msgspec

from cairn import datafile, files
from cairn.errors import UsageError, WheelError
from cairn.formats import compression, msgpack
from cairn.formats.compression import Unpacker, ViewReader, most_unpacked
from cairn.formats.view import View
from cairn.targets import parse_target_id

MAGIC = b"KPAK"
SUFFIX = ".kpack"
VERSION = 1
HEADER = struct.Struct("<4sIQ")
WORD = struct.Struct("<I")  # the count of frames, and the size of each
PLAIN, ZSTD = "none", "zstd-per-kernel"
CODE = "hsaco"  # the only kind of entry: a code object
_VERSIONS = (VERSION, str(VERSION), f"{VERSION}.0")  # of the table, of which no writer is known to us
_LARGEST_TABLE = 64 << 20  # bytes; an entry takes about 100
_ORDINAL = re.compile("0|[1-9][0-9]{0,9}")  # a u32 in each wrapper
_LEVEL = 3  # zstd's own default, which clang takes for bundles too
_LONGEST_FRAME = (1 << 32) - 1
_LONGEST_FRAME_HEADER = 18  # bytes, its magic number included (RFC 8878, 3.1.1)
_STEP = 1 << 20
REFERENCE_SECTION = ".rocm_kpack_ref"
PLACEHOLDER = "@GFXARCH@"
LARGEST_REFERENCE = 64 << 10  # bytes: the runtime reads no more
_BUILD_LENGTH = 16  # hex digits: 64 bits tell builds apart, which nobody makes to be mistaken for each other
_BUILD = re.compile(rf"@[0-9a-f]{{{_BUILD_LENGTH}}}(?=#\d+$|$)")


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `.rocm_kpack_ref`.

    Attributes:
        kpack_search_paths: where the archives are, in the order in which they are tried.
        kernel_name: what the library is called in them.
    """

    kpack_search_paths: tuple[str, ...]
    kernel_name: str


def dump_reference(reference: Reference) -> bytes:
    """The content of the section.

    Raises:
        WheelError: it is more than the runtime reads.
    """
    data = msgspec.msgpack.encode(reference)
    if len(data) > LARGEST_REFERENCE:
        raise WheelError(f"the search paths of {reference.kernel_name:.80} take {len(data)} bytes")
    return data


def load_reference(data: bytes) -> Reference:
    """Read the content of the section; zeros may follow it.

    Raises:
        WheelError: it is malformed.
    """
    if len(data) > LARGEST_REFERENCE:
        raise WheelError(f"a section {REFERENCE_SECTION} of {len(data)} bytes")
    try:
        return datafile.convert(msgpack.loads(data, padded=True), Reference)
    except msgspec.ValidationError as error:
        raise WheelError(f"a section {REFERENCE_SECTION} that is malformed: {error}") from error


def key_of(kernel_name: str, ordinal: int) -> str:
    """The key in an archive's table of the code that the wrapper of that ordinal leads to."""
    return f"{kernel_name}#{ordinal}"


def build_of(digests: Mapping[str, str]) -> str:
    """An identifier that tells a build from others of the same version.

    Args:
        digests: path to sha256 of each file with device code, as it was before the split.
    """
    rows = "".join(f"{digest} {path}\n" for path, digest in sorted(digests.items()))
    return hashlib.sha256(rows.encode("utf-8", "surrogateescape")).hexdigest()[:_BUILD_LENGTH]


def kernel_name_of(library: str, build: str) -> str:
    """The kernel name of a library of a build."""
    return f"{library}@{build}"


def without_build(text: str) -> str:
    """Return a kernel name or a key without its build id."""
    return _BUILD.sub("", text)


def builds_in(texts: Iterable[str]) -> tuple[str, ...]:
    """The build ids in kernel names or keys; names written by other programs have none."""
    matches = map(_BUILD.search, texts)
    return tuple(sorted({match[0][1:] for match in matches if match}))


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """The table's entry for one code object.

    Attributes:
        type: always `hsaco`.
        ordinal: which blob or frame has it; several entries may share one.
        original_size: its bytes, unpacked.
    """

    type: str
    ordinal: int
    original_size: int


class Blob(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a code object in the file."""

    offset: int
    size: int


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """The table. Keys that are not known here are passed over; `format_version` says when they count.

    Attributes:
        format_version: of the table.
        group_name: of what the archive is a part.
        gfx_arch_family: what its targets are called together.
        gfx_arches: the targets that it has code for.
        compression_scheme: `none` or `zstd-per-kernel`.
        toc: `<kernel_name>#<ordinal of a wrapper>` to target to code.
        blobs: of the scheme `none`.
        zstd_offset: of the other: where its blob begins,
        zstd_size: and its bytes.
    """

    format_version: int | str
    group_name: str
    gfx_arch_family: str
    gfx_arches: tuple[str, ...]
    compression_scheme: str
    toc: dict[str, dict[str, Entry]]
    blobs: tuple[Blob, ...] | msgspec.UnsetType = msgspec.UNSET
    zstd_offset: int | msgspec.UnsetType = msgspec.UNSET
    zstd_size: int | msgspec.UnsetType = msgspec.UNSET


class Archive(msgspec.Struct, frozen=True, kw_only=True):
    """A kpack archive opened for reading.

    Attributes:
        name: what it is called in errors.
        table: its table.
        places: where the blobs, or the frames, are in the file.
    """

    name: str
    table: Table
    places: tuple[Blob, ...]
    view: View

    @classmethod
    def open(cls, view: View, name: str) -> Archive:
        """Read the table of an archive.

        Raises:
            WheelError: it is not an archive, of an unknown version or scheme, or malformed: cut off, with an
                entry that leads out of it, with blobs that overlap.
        """
        table, table_at = _read_table(view, name)
        _check_targets(table, name)
        if table.compression_scheme == PLAIN:
            places = _blobs(table, table_at, name)
        elif table.compression_scheme == ZSTD:
            places = tuple(_frames(view, table, table_at, name))
        else:
            raise WheelError(f"{name} is compressed in the unknown way {table.compression_scheme!r:.40}")
        archive = cls(name=name, table=table, places=places, view=view)
        for (key, arch), entry in archive.entries.items():
            try:
                _check_entry(table, places, entry)
            except WheelError as error:
                raise WheelError(f"{key} of {name} has a code object for {arch} {error}") from error
        return archive

    @property
    def entries(self) -> Mapping[tuple[str, str], Entry]:
        """Every entry by its key in `toc` and its target."""
        return {(key, arch): entry for key, row in self.table.toc.items() for arch, entry in row.items()}

    def pieces(self, entry: Entry) -> Iterator[bytes]:
        """The bytes of a code object, a piece at a time.

        Raises:
            WheelError: it is cut off, or has a different size when it is unpacked.
        """
        place = self.places[entry.ordinal]
        packed = ViewReader(self.view, place.offset, place.offset + place.size)
        if self.table.compression_scheme == PLAIN:
            while piece := packed.read(_STEP):
                yield piece
            return
        stream, count = Unpacker(packed, zlib_stream=False), 0
        try:
            while piece := stream.read(min(_STEP, entry.original_size + 1 - count)):
                count += len(piece)
                if count > entry.original_size:
                    break
                yield piece
        except (compression.ZstdError, MemoryError) as error:
            raise WheelError(f"a code object of {self.name} cannot be unpacked: {error}") from error
        if count == entry.original_size and not (stream.ended and stream.used == place.size):
            raise WheelError(f"a frame of {self.name} does not end with its bytes")
        if count != entry.original_size:
            raise WheelError(
                f"a code object of {self.name} unpacks to {'more' if count > entry.original_size else count}"
                f" bytes, and its table says {entry.original_size}"
            )

    def read(self, entry: Entry) -> bytes:
        """The bytes of a code object; see `pieces`."""
        return b"".join(self.pieces(entry))

    def checked(self) -> Iterator[tuple[str, int, Iterator[bytes]]]:
        """Target, size and content of each code object, in the order in which they lie there.

        Once all are read, so is everything that the table does not vouch for: each code object to its end,
        and what lies between them.

        Raises:
            WheelError: one cannot be unpacked, belongs to no entry, is in a frame that does not say its size,
                or there is anything but zeros between.
        """
        by_ordinal = {entry.ordinal: (arch, entry) for (_, arch), entry in self.entries.items()}
        if len(by_ordinal) < len(self.places):
            raise WheelError(
                f"{self.name} has {len(self.places)} code objects, and entries for {len(by_ordinal)}"
            )
        for ordinal in sorted(by_ordinal, key=lambda number: self.places[number].offset):
            arch, entry = by_ordinal[ordinal]
            self._check_frame(entry)
            pieces = self.pieces(entry)
            yield arch, entry.original_size, pieces
            for _ in pieces:
                pass
        if self.table.compression_scheme == PLAIN:  # frames have no gaps
            self._check_gaps()

    def _check_frame(self, entry: Entry) -> None:
        """Check that a frame states its size, as AMD's tools unpack it in one call (RFC 8878, 3.1.1.1)."""
        place = self.places[entry.ordinal]
        if self.table.compression_scheme == PLAIN or not place.size:
            return
        head = self.view.read(place.offset, min(_LONGEST_FRAME_HEADER, place.size))
        try:
            # Its types leave out that a frame need not say it.
            says: int | None = compression.get_frame_info(head).decompressed_size
        except compression.ZstdError as error:
            raise WheelError(f"a code object of {self.name} cannot be unpacked: {error}") from error
        if says != entry.original_size:
            claim = "does not say its size" if says is None else f"says {says} bytes"
            raise WheelError(
                f"the frame of a code object of {entry.original_size} bytes in {self.name} {claim}: "
                "AMD's own tools cannot read it"
            )

    def _check_gaps(self) -> None:
        at = HEADER.size
        for place in sorted(self.places, key=lambda place: place.offset):
            for start in range(at, place.offset, _STEP):
                if self.view.read(start, min(_STEP, place.offset - start)).strip(b"\0"):
                    raise WheelError(f"{self.name} has bytes at {start} that belong to no code object")
            at = max(at, place.offset + place.size)


def _read_table(view: View, name: str) -> tuple[Table, int]:
    """The table, and where it begins."""
    head = view.read(0, min(HEADER.size, view.size))
    if len(head) < HEADER.size or not head.startswith(MAGIC):
        raise WheelError(f"{name} is not a kpack archive")
    _, version, table_at = HEADER.unpack(head)
    if version != VERSION:
        raise WheelError(f"{name} is a kpack archive of the unknown version {version}")
    size = view.size - table_at
    if not HEADER.size <= table_at < view.size or size > _LARGEST_TABLE:
        raise WheelError(f"{name} is cut off, or its table begins at byte {table_at} of {view.size}")
    try:
        table = datafile.convert(msgpack.loads(view.read(table_at, size)), Table)
    except (WheelError, msgspec.ValidationError) as error:
        raise WheelError(f"the table of {name} is malformed: {error}") from error
    if table.format_version not in _VERSIONS:
        raise WheelError(f"the table of {name} is of the unknown version {table.format_version!r:.40}")
    return table, table_at


def _blobs(table: Table, table_at: int, name: str) -> tuple[Blob, ...]:
    """The places of the code objects by ordinal, for the scheme `none`."""
    if table.blobs is msgspec.UNSET:
        raise WheelError(f"the table of {name} lacks its blobs")
    end = HEADER.size
    for blob in sorted(table.blobs, key=lambda blob: (blob.offset, blob.size)):
        if blob.size < 0 or blob.offset < end or blob.offset + blob.size > table_at:
            raise WheelError(f"the blob at byte {blob.offset} of {name} overlaps another, or leads out of it")
        end = blob.offset + blob.size
    return table.blobs


def _frames(view: View, table: Table, table_at: int, name: str) -> Iterator[Blob]:
    """The places of the frames by ordinal, for the scheme `zstd-per-kernel`."""
    if table.zstd_offset is msgspec.UNSET or table.zstd_size is msgspec.UNSET:
        raise WheelError(f"the table of {name} does not say where its frames are")
    at, end = table.zstd_offset, table.zstd_offset + table.zstd_size
    if not HEADER.size <= at <= end - WORD.size or end > table_at:
        raise WheelError(f"the frames of {name} lead out of it")
    (count,) = WORD.unpack(view.read(at, WORD.size))
    at += WORD.size
    if count * WORD.size > end - at:
        raise WheelError(f"{name} cannot have {count} frames")
    for _ in range(count):
        size = WORD.unpack(view.read(at, WORD.size))[0] if at + WORD.size <= end else 0
        at += WORD.size
        if at + size > end:
            raise WheelError(f"a frame of {name} leads out of it")
        yield Blob(offset=at, size=size)
        at += size
    if at != end:
        raise WheelError(f"{name} has {end - at} bytes behind its last frame")


def _check_targets(table: Table, name: str) -> None:
    for arch in table.gfx_arches:
        try:
            exact = str(parse_target_id(arch)) == arch
        except UsageError:
            exact = False
        if not exact:
            raise WheelError(f"{name} names the target {arch!r:.40}, which is none")
    processors = set(table.gfx_arches)
    if len(processors) < len(table.gfx_arches):
        raise WheelError(f"{name} names a target twice")
    for key, row in table.toc.items():
        kernel, _, number = key.rpartition("#")
        if not kernel or not _ORDINAL.fullmatch(number):
            raise WheelError(f"the table of {name} has the key {key!r:.80}")
        strange = next((arch for arch in row if arch not in processors), None)
        if strange is not None:
            raise WheelError(f"{name} has code for {strange!r:.40}, which is not among its targets")


def _check_entry(table: Table, places: tuple[Blob, ...], entry: Entry) -> None:
    """Check that an entry refers to a code object of the size that it states."""
    if entry.type != CODE:
        raise WheelError(f"of the unknown kind {entry.type!r:.40}")
    if not 0 <= entry.ordinal < len(places):
        raise WheelError(f"number {entry.ordinal} of {len(places)}")
    size = places[entry.ordinal].size
    plain = table.compression_scheme == PLAIN
    least, most = (size, size) if plain else (0, most_unpacked(size))
    if not least <= entry.original_size <= most:
        raise WheelError(f"of {size} bytes that would be {entry.original_size}")


@contextlib.contextmanager
def writing(path: Path, *, group: str, family: str, targets: Iterable[str]) -> Iterator[Writer]:
    """Yield the writer of an archive, which is at `path` once the block has ended without an error.

    Args:
        path: where it will be.
        group: of what it is a part.
        family: what its targets are called together.
        targets: those that it is for.
    """
    with files.writing_beside(path) as part, part.open("wb") as out:
        writer = Writer(out)
        yield writer
        writer.finish(group, family, tuple(targets))


class Writer:
    """An archive that is being written: `add` the code, and `name` whose it is.

    Code goes to the disk at once, a piece at a time, each code object compressed by itself with zstd.
    """

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        self._sizes: list[int] = []
        self._toc: dict[str, dict[str, Entry]] = {}
        # The header, which says where the table is, and the count of frames come when they are known.
        self._at = HEADER.size + WORD.size
        out.write(bytes(self._at))

    def add(self, pieces: Iterable[bytes], plain: int) -> int:
        """Write a code object of `plain` bytes; returns its ordinal in the archive.

        Raises:
            WheelError: the pieces have more bytes or fewer.
        """
        at, size = self._at + WORD.size, 0
        self._out.write(bytes(WORD.size))
        # A stream does not know its length by itself, and rocm-kpack's Python reader, which unpacks in
        # one go (`ZstdDecompressor.decompress`), refuses a frame that does not say it.
        packer = compression.ZstdCompressor(level=_LEVEL)
        packer.set_pledged_input_size(plain)
        try:
            for piece in pieces:
                size += self._out.write(packer.compress(piece))
            size += self._out.write(packer.flush())
        except compression.ZstdError as error:
            raise WheelError(f"a code object is not of {plain} bytes: {error}") from error
        if size > _LONGEST_FRAME:
            raise WheelError(f"a code object that takes {size} bytes is too large for a kpack archive")
        self._out.seek(at - WORD.size)
        self._out.write(WORD.pack(size))
        self._out.seek(at + size)
        self._at = at + size
        self._sizes.append(plain)
        return len(self._sizes) - 1

    def name(self, kernel_name: str, wrapper: int, target: str, ordinal: int) -> None:
        """Add an entry for a wrapper and a target that refers to the code object `ordinal`."""
        row = self._toc.setdefault(key_of(kernel_name, wrapper), {})
        if target in row:
            raise WheelError(f"{kernel_name} has two code objects for {target} at its wrapper {wrapper}")
        row[target] = Entry(type=CODE, ordinal=ordinal, original_size=self._sizes[ordinal])

    def finish(self, group: str, family: str, targets: tuple[str, ...]) -> None:
        """Write the table, and the header that leads to it."""
        table = Table(
            format_version=VERSION,
            group_name=group,
            gfx_arch_family=family,
            gfx_arches=targets,
            compression_scheme=ZSTD,
            toc=self._toc,
            zstd_offset=HEADER.size,
            zstd_size=self._at - HEADER.size,
        )
        self._out.write(msgspec.msgpack.encode(table))
        self._out.seek(0)
        self._out.write(HEADER.pack(MAGIC, VERSION, self._at))
        self._out.write(WORD.pack(len(self._sizes)))
