"""The record of a split: everything but the code itself that is needed to restore the libraries.

The code itself is in kpack archives, which say nothing about the bundles that it came in: their tables, their
compression, their places. That is here, in a file of JSON that lies in the dist-info folder of a host wheel.
`unpacking` gives the content of a bundle, and `part_of` writes down all of it but the code.
"""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from cairn import datafile
from cairn.errors import WheelError
from cairn.formats import compression
from cairn.formats.compression import ZLIB, Unpacker, ViewReader
from cairn.formats.offload import bundle as offload_bundle
from cairn.formats.offload import code_object
from cairn.formats.offload.bundle import Bundle, Entry
from cairn.formats.offload.detach import Undo
from cairn.formats.view import FileView, View, pieces


class Code(datafile.Value):
    """One code object.

    Attributes:
        id: the id of its entry in the bundle.
        target: what that id says that it is for, which is its key in the archives.
        id_at: where in the unpacked bundle the id stands.
        offset: where in the unpacked bundle it begins.
        size: its bytes.
        sha256: of them, in hex.
    """

    id: str
    target: str
    id_at: int
    offset: int
    size: int
    sha256: str


class BundlePacking(datafile.Value):
    """How a bundle was compressed.

    Attributes:
        version: of its header, 1 to 3.
        method: 0 for zlib, 1 for zstd.
        digest: the hash in its header, 8 bytes in hex.
        level: the level at which compressing again gives the original bytes, or None where none was found.
    """

    version: int
    method: int
    digest: str
    level: int | None


class Part(datafile.Value):
    """One bundle.

    Attributes:
        at: where it begins in the library.
        size: the bytes it takes there.
        wrappers: the ordinals of those that lead to it.
        plain_size: its bytes, unpacked.
        pieces: what of it is neither device code nor zeros, mostly its table: place and bytes in hex.
        codes: its device code.
        packed: how it was compressed, or None.
    """

    at: int
    size: int
    wrappers: tuple[int, ...]
    plain_size: int
    pieces: tuple[tuple[int, str], ...]
    codes: tuple[Code, ...]
    packed: BundlePacking | None = None


class Library(datafile.Value):
    """One library.

    Attributes:
        path: in the wheel; what is in the data folder begins with `.data/`.
        kernel_name: what it is called in the archives.
        archives: path in the wheel of its archives, as far as all have it in common, likewise.
        sha256: of the library before.
        host_sha256: of the library without its code.
        undo: what gives back all but the code.
        parts: its bundles.
    """

    path: str
    kernel_name: str
    archives: str
    sha256: str
    host_sha256: str
    undo: Undo
    parts: tuple[Part, ...]


class MovedFile(datafile.Value):
    """A file that was moved to a device wheel unchanged.

    Attributes:
        path: in the wheel; what is in the data folder begins with `.data/`.
        processor: whose device wheel has it.
        sha256: of the file.
    """

    path: str
    processor: str
    sha256: str


class Record(datafile.Value, tag_field="schema", tag="cairn.split/2"):
    """The file.

    Attributes:
        libraries: every one that had device code.
        files: code objects that were files of their own, and databases of kernels.
        devices: each processor, and the project of its device wheel.
        extras: each extra that the split has added, and the processors whose device wheels it asks for.
        runtime: the first release of ROCm whose runtime finds the code; None where that was not said.
    """

    libraries: tuple[Library, ...]
    files: tuple[MovedFile, ...]
    devices: Mapping[str, str]
    extras: Mapping[str, tuple[str, ...]]
    runtime: str | None = None


# Of an unpacked bundle for which the level of compression is looked for: that takes both forms in memory.
_MOST_REPACKED = 48 << 20
_MOST_BETWEEN = 4 << 20  # bytes of a bundle that are neither code nor zeros: a table takes 2 kB
_STEP = 1 << 20


class UnpackedBundle(msgspec.Struct, frozen=True, kw_only=True):
    """A bundle whose content can be read.

    Attributes:
        bundle: the bundle.
        view: where its content is; of a compressed one, a file of its own.
        begin: where in the view it begins.
        size: its bytes.
    """

    bundle: Bundle
    view: View
    begin: int
    size: int

    def pieces(self, start: int, end: int) -> Iterator[bytes]:
        """The bytes between two places in it."""
        return pieces(self.view, self.begin + start, self.begin + end)

    def code(self, entry: Entry) -> Iterator[bytes]:
        """The bytes of an entry."""
        return self.pieces(entry.offset, entry.offset + entry.size)


@contextlib.contextmanager
def unpacking(view: View, bundle: Bundle, folder: Path) -> Iterator[UnpackedBundle]:
    """Yield the content of a bundle; a compressed one is unpacked into a file in `folder` meanwhile.

    Raises:
        WheelError: it is malformed, or two of its entries overlap or are for one target.
    """
    _check(bundle)
    packing = bundle.packing
    if packing is None:
        yield UnpackedBundle(bundle=bundle, view=view, begin=bundle.at, size=bundle.size)
        return
    if packing.plain_size > offload_bundle.most_plain(bundle.size):
        raise WheelError(f"a compressed offload bundle that would unpack to {packing.plain_size} bytes")
    reader = ViewReader(view, bundle.at + packing.header_size, bundle.at + bundle.size)
    stream = Unpacker(reader, zlib_stream=packing.method == ZLIB)
    with tempfile.TemporaryFile(dir=folder) as file:
        try:
            while part := stream.read(min(_STEP, packing.plain_size + 1 - file.tell())):
                file.write(part)
        except (zlib.error, compression.ZstdError, MemoryError) as error:
            raise WheelError(f"a compressed offload bundle cannot be unpacked: {error}") from error
        if file.tell() != packing.plain_size:
            raise WheelError(
                f"a compressed offload bundle that does not unpack to {packing.plain_size} bytes"
            )
        yield UnpackedBundle(bundle=bundle, view=FileView(file), begin=0, size=packing.plain_size)


def part_of(content: UnpackedBundle, wrappers: tuple[int, ...], library: View) -> Part:
    """All of a bundle but the code; `wrappers` lead to it, `library` has it."""
    bundle = content.bundle
    return Part(
        at=bundle.at,
        size=bundle.size,
        wrappers=wrappers,
        plain_size=content.size,
        pieces=tuple(_between(content)),
        codes=tuple(_code(content, entry) for entry in bundle.device_entries),
        packed=_packed(content, library.read(bundle.at, bundle.size)) if bundle.packing else None,
    )


def _check(bundle: Bundle) -> None:
    end = bundle.table_size
    odd = next((entry.id for entry in bundle.entries if "\\" in entry.id), None)
    if odd is not None:
        raise WheelError(f"the offload bundle entry {odd!r} has a name that is not text")
    for entry in sorted(bundle.entries, key=lambda entry: (entry.offset, entry.size)):
        if entry.size and entry.offset < end:
            raise WheelError(f"the code of {entry.id} in an offload bundle overlaps what is before it")
        end = max(end, entry.offset + entry.size)
    targets = [str(code_object.target_of_entry(entry.id)) for entry in bundle.device_entries]
    twice = next((target for target in targets if targets.count(target) > 1), None)
    if twice is not None:
        raise WheelError(f"an offload bundle has two code objects for {twice}")


def _code(content: UnpackedBundle, entry: Entry) -> Code:
    digest = hashlib.sha256()
    for piece in content.code(entry):
        digest.update(piece)
    return Code(
        id=entry.id,
        target=str(code_object.target_of_entry(entry.id)),
        id_at=entry.id_at,
        offset=entry.offset,
        size=entry.size,
        sha256=digest.hexdigest(),
    )


def _between(content: UnpackedBundle) -> Iterator[tuple[int, str]]:
    """The bytes between the code objects that are not zero: the table, mostly."""
    at = count = 0
    ends = [(e.offset, e.offset + e.size) for e in content.bundle.device_entries if e.size]
    for start, end in [*sorted(ends), (content.size, content.size)]:
        begin = at
        for piece in content.pieces(at, start):
            stripped = piece.rstrip(b"\0")
            count += len(stripped)
            if count > _MOST_BETWEEN:
                raise WheelError("an offload bundle with more than tables between its code objects")
            if stripped:
                yield begin, stripped.hex()
            begin += len(piece)
        at = end


def _packed(content: UnpackedBundle, data: bytes) -> BundlePacking | None:
    how = content.bundle.packing
    if how is None:
        return None
    level = None
    if content.size <= _MOST_REPACKED:
        plain = b"".join(content.pieces(0, content.size))
        level = compression.level_of(plain, data[how.header_size :], how.method)
    return BundlePacking(
        version=how.version,
        method=how.method,
        digest=data[how.header_size - 8 : how.header_size].hex(),  # the last field in each version
        level=level,
    )
