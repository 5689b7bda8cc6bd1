"""The container of device code that was split from a library: `<library>.<processor>.devcode`.

A file begins with `CAIRNDEV` and the length of its index (u64, little-endian). The index is JSON, a
`Container`; the bytes that its blobs name follow, their places counted from the end of the index.
docs/reference/device-wheels.md is the description for others.
"""

from __future__ import annotations

import hashlib
import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cairn import datafile, files
from cairn.errors import UsageError, WheelError
from cairn.formats.offload import bundle
from cairn.formats.offload.compression import Reader

SUFFIX = ".devcode"
MAGIC = b"CAIRNDEV"
_LENGTH = struct.Struct("<Q")
_LONGEST_INDEX = 256 << 20  # bytes; a code object takes about 300
_STEP = 1 << 20


class Blob(datafile.Value):
    """Bytes in a container.

    Attributes:
        at: where they begin, counted from the end of the index.
        size: how many.
        sha256: their sha256 in hex.
    """

    at: int
    size: int
    sha256: str


class Code(datafile.Value):
    """One code object.

    Attributes:
        id: the id of its entry in the bundle.
        entry: the number of that entry in the bundle's table, from 0.
        offset: where it begins in the unpacked bundle.
        blob: its bytes.
    """

    id: str
    entry: int
    offset: int
    blob: Blob


class Piece(datafile.Value):
    """Bytes of an unpacked bundle that are not device code: mostly its table.

    Attributes:
        offset: where they begin in the unpacked bundle.
        blob: the bytes; zeros between pieces are not stored.
    """

    offset: int
    blob: Blob


class Packed(datafile.Value):
    """A bundle that was compressed.

    Attributes:
        version: of its header, 1 to 3.
        method: 0 for zlib, 1 for zstd.
        header_size: bytes of its header.
        plain_size: bytes when unpacked.
        digest: the hash in its header, 8 bytes in hex.
        level: the level at which compressing again gives the original bytes, or None where none was found.
        pieces: what is not device code.
    """

    version: int
    method: int
    header_size: int
    plain_size: int
    digest: str
    level: int | None
    pieces: tuple[Piece, ...]


class Part(datafile.Value):
    """What came out of one bundle.

    Attributes:
        at: where the bundle begins in the library.
        size: the bytes it takes there.
        count: how many code objects it had for all processors.
        codes: those for the container's processor.
        packed: how it was compressed, or None.
    """

    at: int
    size: int
    count: int
    codes: tuple[Code, ...]
    packed: Packed | None = None


class Container(datafile.Value, tag_field="schema", tag="cairn.device/1"):
    """The index.

    Attributes:
        library: the file name of the library it belongs to, which lies beside it.
        library_size: bytes of that library.
        library_sha256: of the library before the split.
        host_sha256: of the library as the host wheel has it.
        processor: what the code is for, features aside.
        processors: all that the library had code for.
        parts: what came out of each bundle with code for the processor.
    """

    library: str
    library_size: int
    library_sha256: str
    host_sha256: str
    processor: str
    processors: tuple[str, ...]
    parts: tuple[Part, ...]


class Sink:
    """The bytes of a container being written, in a file beside."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.parts: list[Part] = []
        self._size = 0
        path.touch()

    def add(self, data: bytes) -> Blob:
        """Append bytes."""
        blob = Blob(at=self._size, size=len(data), sha256=hashlib.sha256(data).hexdigest())
        with self.path.open("ab") as out:
            out.write(data)
        self._size += len(data)
        return blob

    def finish(self, container: Container, target: Path) -> None:
        """Write the container."""
        index = datafile.dumps(container).encode()
        with files.writing_beside(target) as part, part.open("wb") as out:
            out.write(MAGIC + _LENGTH.pack(len(index)) + index)
            with self.path.open("rb") as data:
                shutil.copyfileobj(data, out, _STEP)


@dataclass(frozen=True, kw_only=True)
class Source:
    """A container that was read.

    Attributes:
        path: the file.
        container: its index.
        data_at: where in the file its bytes begin.
    """

    path: Path
    container: Container
    data_at: int

    def read(self, blob: Blob) -> bytes:
        """The bytes of a blob.

        Raises:
            WheelError: the file is too short, or has different bytes.
        """
        if blob.at < 0 or blob.size < 0 or self.data_at + blob.at + blob.size > self.path.stat().st_size:
            raise WheelError(f"the index of {self.path.name} points out of the file")
        with self.path.open("rb") as file:
            file.seek(self.data_at + blob.at)
            data = file.read(blob.size)
        if hashlib.sha256(data).hexdigest() != blob.sha256:
            raise WheelError(f"{self.path.name} holds other bytes than its index says")
        return data


def read(path: Path) -> Source:
    """Read a container's index.

    Raises:
        WheelError: it is not a container, or malformed.
    """
    with path.open("rb") as file:
        container = parse(file, path.name)
        return Source(path=path, container=container, data_at=file.tell())


def parse(file: Reader, name: str) -> Container:
    """The index of a container, read from its beginning; `name` stands for it in errors.

    Raises:
        WheelError: it is not a container, or malformed.
    """
    try:
        container = datafile.loads(_index(file, name), Container, name=name)
    except UsageError as error:
        raise WheelError(str(error), tip="fetch the device wheel again") from error
    _check(container, name)
    return container


def blobs(container: Container) -> Iterator[Blob]:
    """Every blob that an index names."""
    for part in container.parts:
        yield from (code.blob for code in part.codes)
        if part.packed:
            yield from (piece.blob for piece in part.packed.pieces)


def _index(file: Reader, name: str) -> bytes:
    head = file.read(len(MAGIC) + _LENGTH.size)
    if len(head) != len(MAGIC) + _LENGTH.size or not head.startswith(MAGIC):
        raise WheelError(f"{name} is not a container of device code")
    (length,) = _LENGTH.unpack(head[len(MAGIC) :])
    if length > _LONGEST_INDEX:
        raise WheelError(f"the index of {name} has {length} bytes")
    index = file.read(length)
    if len(index) != length:
        raise WheelError(f"{name} ends inside its index")
    return index


def _check(container: Container, name: str) -> None:
    numbers = [container.library_size, *_numbers(container.parts)]
    inside = all(part.at + part.size <= container.library_size for part in container.parts)
    if min(numbers) < 0 or container.processor not in container.processors or not inside:
        raise WheelError(f"the index of {name} contradicts itself")
    for part in container.parts:
        if part.packed and part.packed.plain_size > bundle.most_plain(part.size):
            raise WheelError(f"the index of {name} would unpack to {part.packed.plain_size} bytes")


def _numbers(parts: tuple[Part, ...]) -> Iterator[int]:
    for part in parts:
        yield from (part.at, part.size, part.count)
        for code in part.codes:
            yield from (code.entry, code.offset)
        if part.packed:
            yield from (part.packed.plain_size, part.packed.header_size)
            yield from (piece.offset for piece in part.packed.pieces)
