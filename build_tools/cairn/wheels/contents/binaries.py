"""The model of a binary (ELF, PE or Mach-O): what its loader looks for, and the device code in it.

`read_wheel` and `read_archive` read the binaries of a wheel, `read_file` reads one on disk, and `read_view`
one that is being unpacked anyway. Where formats have different words, those of ELF are used: an import of a
PE file is a library that it needs. Mach-O is read by `read_macho` alone: no device code is in
it, and nothing is repaired.
"""

from __future__ import annotations

import dataclasses
import os
import posixpath
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cairn.errors import WheelError
from cairn.formats import elf, macho, pe
from cairn.formats.image import Format, Image
from cairn.formats.view import MemberView, View, opening
from cairn.formats.zip.layout import STORED, Member
from cairn.formats.zip.reader import Archive, collector_paused
from cairn.targets import in_order

if TYPE_CHECKING:
    # Loaded only where device code is looked for: that takes longer than to read what most wheels need.
    from cairn.formats.kpack import Reference
    from cairn.formats.offload.bundle import Checker
    from cairn.formats.offload.code_object import CodeObject

__all__ = ["Binary", "Format"]

_T = TypeVar("_T")

_SMALLEST_ELF = 52  # bytes of an Elf32_Ehdr, the shorter of the two
_SMALLEST_PE = 64  # bytes of an IMAGE_DOS_HEADER, which every PE file begins with
_PE_SUFFIXES = (".dll", ".pyd", ".exe")
MODULE = re.compile(r"\.(?:cpython|pypy|graalpy|cp|abi3)[^/]*\.so$|\.pyd$", re.IGNORECASE)
"""The names of extension modules that say so; `m.so` may be one, too."""
OF_MACOS = ("/usr/lib/", "/System/Library/")
"""Where the libraries are that every macOS has."""
_PEEK = 512  # compressed bytes that are enough to see the first four of a file
# An ELF file may have any name, but not one of these endings: that spares 10,000 looks in a torch wheel.
_TEXT = (
    *(".py", ".pyi", ".h", ".hpp", ".cuh", ".inc", ".c", ".cc", ".cpp", ".cu"),
    *(".cmake", ".txt", ".json", ".md"),
)
ORIGIN = "$ORIGIN"


@dataclass(frozen=True, kw_only=True)
class Binary(Image):
    """A program, library or code object, in a wheel or on disk: a file that some loader reads.

    Attributes:
        path: in the wheel, or on disk.
        size: bytes unpacked.
        code_objects: its device code.
        reference: where it looks for the device code that was taken out of it; None where none was.
    """

    path: str
    size: int
    code_objects: tuple[CodeObject, ...] = ()
    reference: Reference | None = None

    @property
    def names(self) -> frozenset[str]:
        """The names by which other binaries find this one; those of DLLs in lower case."""
        # A loaded library is known by its SONAME (ld.so(8)); a file that is looked for, by its file name.
        name = self.path.rpartition("/")[2]
        if self.format == "pe":
            return frozenset([name.lower()])
        return frozenset([name, (self.soname or name).rpartition("/")[2]])

    @property
    def is_module(self) -> bool:
        """Whether its file name can only be that of an extension module."""
        return bool(MODULE.search(self.path))

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets that it has device code for, sorted."""
        return in_order(str(code.target) for code in self.code_objects)

    @property
    def device_code_size(self) -> int:
        """Bytes of its device code, unpacked."""
        return sum(code.size for code in self.code_objects)


def read_wheel(wheel: Path, *, only: Format | None = None) -> tuple[Binary, ...]:
    """Every binary in the wheel at a path; see `read_archive`."""
    with Archive.open(wheel) as archive:
        return read_archive(archive, only=only)


def read_archive(
    archive: Archive,
    *,
    only: Format | None = None,
    device_code: bool = True,
    look_for: frozenset[str] = frozenset(),
) -> tuple[Binary, ...]:
    """Every binary in a wheel, on all cores: ELF files by path, then PE files by path.

    Args:
        archive: the wheel.
        only: the format to read; both by default.
        device_code: whether to look for it, which means to unpack each binary to its end.
        look_for: symbols to look for among the undefined symbols of ELF files.

    Raises:
        WheelError: one of them is malformed; the message names it.
    """

    def read_member(member: Member, kind: Format) -> Binary:
        view = MemberView(archive, member)
        return read_view(view, member.name, kind, device_code=device_code, look_for=look_for)

    read = for_each(archive, read_member, only=only)
    return tuple(sorted(read, key=lambda binary: (binary.format, binary.path)))


def for_each(
    archive: Archive, function: Callable[[Member, Format], _T], *, only: Format | None = None
) -> list[_T]:
    """Call a function for every binary in a wheel, on all cores, and return the results.

    Raises:
        WheelError: the function raised it, or a member cannot be unpacked; the message names the member.
    """
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - `verify` reads binaries as they come

    def read_member(pair: tuple[Member, Format]) -> _T:
        member, kind = pair
        try:
            return function(member, kind)
        except WheelError as error:
            raise WheelError(f"{member.name}: {error}", tip=error.tip) from error

    # The largest first, so that no core waits for it at the end.
    members = [pair for pair in binary_members(archive) if only in (None, pair[1])]
    members.sort(key=lambda pair: -pair[0].size)
    with collector_paused(), ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(read_member, members))


def read_file(
    path: Path, kind: Format, *, device_code: bool = True, look_for: frozenset[str] = frozenset()
) -> Binary:
    """A binary on disk; see `read_archive`.

    Raises:
        WheelError: it is not a file of that format, malformed or empty.
    """
    with opening(path) as view:
        return read_view(view, str(path), kind, device_code=device_code, look_for=look_for)


def read_view(  # noqa: PLR0913 - what to look for is one keyword each
    view: View,
    path: str,
    kind: Format,
    *,
    device_code: bool = True,
    look_for: frozenset[str] = frozenset(),
    python: bool = False,
    symbols: bool = False,
    linkage: bool = False,
    checker: Checker | None = None,
) -> Binary:
    """One binary; see `read_archive`.

    Args:
        view: its bytes.
        path: what it is called.
        kind: its format: ELF or PE.
        device_code: see `read_archive`.
        look_for: see `read_archive`.
        python: whether to look for symbols of Python's C API.
        symbols: whether to read all symbols.
        linkage: whether to read the names of those of an ELF file, by version.
        checker: what looks at the content of its offload bundles.

    Raises:
        WheelError: it is malformed.
    """
    if kind == "pe":
        image = pe.read_view(view, python=python, symbols=symbols)
        image = dataclasses.replace(image, is_program=path.lower().endswith(".exe"))
    else:
        # The section table, which says where device code is, stands at the end of the file.
        image = elf.read_view(
            view,
            sections=device_code,
            look_for=look_for,
            python=python,
            symbols=symbols,
            linkage=linkage,
        )
    binary = Binary(**vars(image), path=path, size=view.size)
    if not device_code:
        return binary
    from cairn.formats import kpack  # noqa: PLC0415
    from cairn.formats.offload import code_object  # noqa: PLC0415

    # What stands in place of device code in a library of a host wheel.
    section = image.section(kpack.REFERENCE_SECTION) if image.format == "elf" else None
    data = view.read(section.offset, min(section.size, kpack.LARGEST_REFERENCE + 1)) if section else b""
    return dataclasses.replace(
        binary,
        code_objects=code_object.of_view(view, image, checker),
        reference=kpack.load_reference(data) if section else None,
    )


def read_macho(view: View, path: str, *, python: bool = False, symbols: bool = False) -> tuple[Binary, ...]:
    """A Mach-O file, one for each machine that it is for; see `read_view`.

    Raises:
        WheelError: it is malformed.
    """
    return tuple(
        Binary(**vars(image), path=path, size=view.size)
        for image in macho.read_view(view, python=python, symbols=symbols)
        if image.type in ("program", "library", "bundle")
    )


def format_of(name: str, size: int, head: bytes) -> Format | None:
    """The format of a binary, from its name, size and first bytes; None for any other file.

    Linux opens whatever is an ELF file, Windows what has the ending of a program, library or module.
    """
    if elf.is_elf(head):
        return "elf"
    on_windows = pe.is_pe(head) and size >= _SMALLEST_PE and name.lower().endswith(_PE_SUFFIXES)
    return "pe" if on_windows else None


def binary_members(archive: Archive) -> Iterator[tuple[Member, Format]]:
    """The members that are binaries by their first bytes.

    Raises:
        WheelError: one of them cannot be unpacked.
    """
    for member in archive.members:
        if member.size >= _SMALLEST_ELF and not member.name.lower().endswith(_TEXT):
            kind = format_of(member.name, member.size, _head(archive, member))
            if kind:
                yield member, kind


def packed_size(archive: Archive) -> int:
    """The bytes that members which may be binaries take in an archive, by their names and sizes alone."""
    return sum(
        member.compressed_size
        for member in archive.members
        if member.size >= _SMALLEST_ELF and not member.name.lower().endswith(_TEXT)
    )


def _head(archive: Archive, member: Member) -> bytes:
    """The first bytes of a member, without unpacking more than they take."""
    packed = archive.raw.at(member.data_offset, min(_PEEK, member.compressed_size))
    if member.method == STORED:
        return packed
    try:
        head = zlib.decompressobj(-15).decompress(packed, len(elf.MAGIC))
    except zlib.error as error:
        raise WheelError(f"the compressed data of {member.name} is broken") from error
    if len(head) == len(elf.MAGIC):
        return head
    # RFC 1951, 3.2.4: any number of stored blocks of no bytes may stand before the first that has some.
    return MemberView(archive, member).read(0, len(elf.MAGIC))


def shipped(binaries: Iterable[Binary]) -> frozenset[str]:
    """All names by which the binaries of a wheel find each other."""
    return frozenset(name for binary in binaries for name in binary.names)


def targets_of(wheel: Path) -> tuple[str, ...]:
    """The targets that a wheel has device code for, sorted; none when it has no device code.

    Raises:
        WheelError: the archive or a binary is malformed.
    """
    from cairn.wheels.contents import code_archives  # noqa: PLC0415

    with Archive.open(wheel) as archive:
        targets = {target for binary in read_archive(archive) for target in binary.targets}
        return in_order(
            targets.union(
                *(device_archive.targets for device_archive in code_archives.read_archives(archive))
            )
        )


def run_path_folder(member: str, run_path: str) -> str | None:
    """The folder that a run path of a member leads to, relative to the root of the wheel.

    It begins with `..` if it is outside the wheel; None if the run path is not relative to the binary.
    """
    start, _, rest = run_path.replace("${ORIGIN}", ORIGIN).partition("/")
    if start != ORIGIN:
        return None
    folder = posixpath.normpath(posixpath.join(posixpath.dirname(member), rest))
    return "" if folder == "." else folder


def run_path_to(member: str, folder: str) -> str:
    """The run path by which a member finds a folder."""
    relative = posixpath.relpath(folder or ".", posixpath.dirname(member) or ".")
    return ORIGIN if relative == "." else f"{ORIGIN}/{relative}"
