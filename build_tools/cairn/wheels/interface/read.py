"""Reading what a wheel offers and wants, each of its binaries in one go.

Sources: the ELF specification's `.comment`, and what `formats` and the modules beside this one name.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from cairn.errors import PrerequisiteError, WheelError
from cairn.formats import elf_layout, kpack, macho
from cairn.formats.image import Section
from cairn.formats.offload.kernels import Kernel, KernelReader
from cairn.formats.view import MemberView, View
from cairn.formats.zip.layout import Member
from cairn.formats.zip.reader import Archive, Limits
from cairn.wheels.contents import binaries, code_archives
from cairn.wheels.contents.binaries import Format
from cairn.wheels.interface.model import FileState, Interface, Library
from cairn.wheels.interface.operators import OperatorReader
from cairn.wheels.interface.python_api import PythonApi, PythonSources, public_api
from cairn.wheels.metadata import wheel_info
from cairn.wheels.metadata.fields import core_metadata

_BEHIND = 1 << 16  # bytes
_MOST_RANGES = 64  # of a file that are loaded; of what has more, all is looked at
_LARGEST_COMMENT = 1 << 20
_LARGEST_CODE = 512 << 20  # bytes of a code object that is a file of its own
_MACHO_SUFFIXES = (".so", ".dylib")
_LICENCE = "License :: "
_LONGEST_LICENCE = 200


def read_interface(wheel: Path, *, python: bool = True) -> Interface:
    """Read what a wheel offers and wants.

    Args:
        wheel: the file.
        python: whether to read its Python names too, which takes griffe and, of torch, 10 s.

    Raises:
        WheelError: the archive or its metadata cannot be read; a library that cannot be is named in `unread`.
    """
    with Archive.open(wheel, limits=Limits(links=True)) as archive:
        return read_archive(archive, python=python)


def read_archive(archive: Archive, *, python: bool = True) -> Interface:
    """Like `read_interface`, of an open archive."""
    unread: list[str] = []
    read = binaries.for_each(archive, lambda member, kind: _read_library(archive, member, kind))
    read += [_read_macho(archive, member) for member in archive.members if _is_macho(archive, member)]
    unread += [problem for _, problems in read for problem in problems]
    archived: dict[str, tuple[Kernel, ...]] = {}
    for device_archive in (archives := code_archives.read_archives(archive)):
        archived[device_archive.path], problems = _archived_kernels(archive, device_archive.path)
        unread += problems
    api: PythonApi | None = None
    if python:
        try:
            api = public_api(PythonSources(archive))
            unread += [f"module {problem}" for problem in api.unread]
        except PrerequisiteError as error:
            unread.append(f"Python names: {error} ({error.tip})")
    return dataclasses.replace(
        read_listing(archive),
        libraries=tuple(
            sorted(
                (library for libraries, _ in read for library in libraries),
                key=lambda library: (library.path, library.machine),
            )
        ),
        archives=archives,
        archived_kernels=archived,
        python=api,
        is_listing=False,
        unread=tuple(sorted(unread)),
    )


def read_listing(archive: Archive) -> Interface:
    """Read what the metadata and the directory of an archive tell, without unpacking anything else.

    Raises:
        WheelError: see `read_interface`.
    """
    info = wheel_info.read_archive(archive, variants_too=True)
    digests = {row.path: f"{row.algorithm}={row.digest}" for row in info.record if row.digest}
    return Interface(
        **vars(info),
        files={
            member.name: FileState(
                member.size, member.crc, member.executable, member.stamp, digests.get(member.name, "")
            )
            for member in archive.members
            if not member.is_dir
        },
        libraries=(),
        is_listing=True,
        licences=_licences(info.metadata),
        unread=(f"{info.file_name}: its libraries, kernels and Python names",),
    )


class _Passing:
    """What is taken from a library on the way to its section table, which stands at the end of ELF files.

    Attributes:
        operators: reads the texts that are loaded; debug information and symbol tables are not.
        loaded: where what is loaded begins and ends.
    """

    def __init__(self) -> None:
        self.operators = OperatorReader()
        self.loaded: Sequence[tuple[int, int]] = ((0, sys.maxsize),)
        self._at = 0
        self._behind: dict[int, bytes] = {}  # what follows each of these, by its place: first `.comment`

    def see(self, piece: bytes) -> None:
        """Look at the next piece."""
        at, self._at = self._at, self._at + len(piece)
        for begin, end in self.loaded:
            if begin < self._at and end > at:
                self.operators.feed(piece[max(begin - at, 0) : end - at])
            if end < self._at and at < end + _BEHIND:
                self._behind[end] = self._behind.get(end, b"") + piece[max(end - at, 0) :]

    def comment(self, view: View, section: Section) -> tuple[str, ...]:
        """The texts of `.comment`."""
        for begin, behind in self._behind.items():
            at = section.offset - begin
            if 0 <= at <= len(behind) - section.size:
                data = behind[at : at + section.size]
                break
        else:  # near the beginning of a small file, or behind much else
            data = view.read(section.offset, section.size)
        texts = (text.decode("utf-8", "backslashreplace").strip() for text in data.split(b"\0"))
        return tuple(dict.fromkeys(text for text in texts if text))


def _read_library(archive: Archive, member: Member, kind: Format) -> tuple[Sequence[Library], Sequence[str]]:
    passing = _Passing()
    view = MemberView(archive, member, observer=passing.see)
    reader = KernelReader()
    try:
        if kind == "elf":
            segments = elf_layout.read(view).segments
            loads = _merged(
                (segment.offset, segment.end) for segment in segments if segment.kind == elf_layout.PT_LOAD
            )
            passing.loaded = loads if 0 < len(loads) <= _MOST_RANGES else passing.loaded
        binary = binaries.read_view(view, member.name, kind, checker=reader, symbols=True)
        if binary.is_device_code and view.size <= _LARGEST_CODE:
            reader.look_at(view.read(0, view.size))
        view.drain()
        section = binary.section(".comment")
        library = Library(
            **vars(binary),
            operators=passing.operators.operators() if not binary.is_device_code else frozenset(),
            compilers=passing.comment(view, section) if section and section.size <= _LARGEST_COMMENT else (),
            kernels=tuple(reader.kernels),
        )
    except WheelError as error:
        return (), [f"{member.name}: {error}"]
    return [library], [f"{member.name}: {problem}" for problem in reader.problems]


def _merged(ranges: Iterable[tuple[int, int]]) -> Sequence[tuple[int, int]]:
    """The same places, each in one range alone: segments may share their bytes in the file."""
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(ranges):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged


def _is_macho(archive: Archive, member: Member) -> bool:
    """Whether a member is a library of macOS; what is called otherwise is not looked at."""
    if not member.name.endswith(_MACHO_SUFFIXES) or member.size < 8:  # noqa: PLR2004 - bytes of a magic number
        return False
    try:
        return macho.is_macho(MemberView(archive, member).read(0, 8))
    except WheelError:
        return False


def _read_macho(archive: Archive, member: Member) -> tuple[Sequence[Library], Sequence[str]]:
    try:
        images = binaries.read_macho(MemberView(archive, member), member.name, symbols=True)
    except WheelError as error:
        return (), [f"{member.name}: {error}"]
    return [Library(**vars(image)) for image in images], ()


def _archived_kernels(archive: Archive, path: str) -> tuple[tuple[Kernel, ...], Sequence[str]]:
    reader = KernelReader()
    try:
        opened = kpack.Archive.open(MemberView(archive, archive.member(path)), path)
        for _, size, pieces in opened.checked():
            if size:
                reader.look_at(b"".join(pieces))
    except WheelError as error:
        return (), [f"{path}: {error}"]
    return tuple(reader.kernels), [f"{path}: {problem}" for problem in reader.problems]


def _licences(metadata: bytes) -> tuple[str, ...]:
    raw = core_metadata(metadata, name="METADATA")
    classifiers = (text for text in raw.get("classifiers", ()) if text.startswith(_LICENCE))
    # Before PEP 639 `License` could be the whole text.
    old = (raw.get("license") or "").strip().partition("\n")[0][:_LONGEST_LICENCE]
    named = (raw.get("license_expression") or old, *classifiers, *raw.get("license_files", ()))
    return tuple(dict.fromkeys(text for text in named if text))
