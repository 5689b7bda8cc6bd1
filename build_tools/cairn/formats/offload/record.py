"""What was taken from libraries with their device code, so that they can be put together again.

The code itself is in kpack archives, which say nothing about the bundles that it came in: their tables, their
compression, their places. That is here, in a file of JSON that lies in the dist-info folder of a host wheel.
"""

from __future__ import annotations

from collections.abc import Mapping

from cairn import datafile
from cairn.formats.offload.detach import Undo

NAME = "cairn-split.json"


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
    """A file that went to a device wheel as it was.

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
