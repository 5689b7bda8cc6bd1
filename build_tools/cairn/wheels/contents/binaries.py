"""The ELF files in a wheel: what they need, and their device code."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.errors import WheelError
from cairn.formats import elf
from cairn.formats.elf import Elf
from cairn.formats.offload import code_object
from cairn.formats.offload import container as offload_container
from cairn.formats.offload.unpack import ViewReader
from cairn.formats.view import MemberView
from cairn.formats.zip import layout
from cairn.formats.zip.layout import Member
from cairn.formats.zip.reader import Archive, collector_paused
from cairn.targets import in_order
from cairn.wheels.contents import windows_dlls
from cairn.wheels.contents.windows_dlls import PeLibrary

if TYPE_CHECKING:
    from cairn.formats.offload.bundle import Checker
    from cairn.formats.offload.code_object import CodeObject

_SMALLEST = 52  # an ELF header of 32 bits
_PEEK = 512
# Files that no loader opens; everything else is looked into.
_TEXT = frozenset(
    (
        ".py",
        ".pyi",
        ".h",
        ".hpp",
        ".cuh",
        ".inc",
        ".c",
        ".cc",
        ".cpp",
        ".cu",
        ".cmake",
        ".txt",
        ".json",
        ".md",
    )
)


@dataclass(frozen=True, kw_only=True)
class Library:
    """An ELF file in a wheel.

    Attributes:
        member: its path.
        size: bytes unpacked.
        elf: what the loader reads of it.
        code_objects: its device code.
    """

    member: str
    size: int
    elf: Elf
    code_objects: tuple[CodeObject, ...] = ()

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets it has code for, sorted."""
        return in_order(str(code.target) for code in self.code_objects)


def libraries_of(wheel: Path, *, look_for: frozenset[str] = frozenset()) -> tuple[Library, ...]:
    """Every ELF file in a wheel, by path; `look_for` as for `elf.read_view`.

    Raises:
        WheelError: the archive or a binary is malformed.
    """
    with Archive.open(wheel) as archive:
        return read_libraries(archive, look_for=look_for)


def read_libraries(
    archive: Archive,
    *,
    device_code: bool = True,
    look_for: frozenset[str] = frozenset(),
) -> tuple[Library, ...]:
    """Like `libraries_of`, from an open archive, on all cores.

    Args:
        archive: the wheel.
        device_code: whether to look for it, which means to unpack each binary to its end.
        look_for: as for `elf.read_view`.
    """
    binaries = sorted(elf_members(archive), key=lambda member: -member.size)

    def one(member: Member) -> Library:
        view = MemberView(archive, member)
        return read_library(view, member, device_code=device_code, look_for=look_for)

    with collector_paused(), ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return tuple(sorted(pool.map(one, binaries), key=lambda library: library.member))


def read_library(
    view: MemberView,
    member: Member,
    *,
    device_code: bool = True,
    look_for: frozenset[str] = frozenset(),
    checker: Checker | None = None,
) -> Library:
    """One binary, the content of its bundles looked at by `checker`.

    Raises:
        WheelError: it is malformed; the message names it.
    """
    try:
        parsed = elf.read_view(view, sections=device_code, look_for=look_for)
        code = _device_code(view, parsed, checker) if device_code else ()
    except WheelError as error:
        raise WheelError(f"{member.name}: {error}", tip=error.tip) from error
    return Library(member=member.name, size=member.size, elf=parsed, code_objects=code)


def _device_code(view: MemberView, parsed: Elf, checker: Checker | None) -> tuple[CodeObject, ...]:
    # Loaded here because what it takes to unpack bundles takes longer to load than many a wheel to read.
    from cairn.formats.offload import code_object  # noqa: PLC0415

    return code_object.of_view(view, parsed, checker)


def elf_members(archive: Archive) -> Iterator[Member]:
    """The members that are ELF files by their first bytes."""
    for member in archive.members:
        if member.size >= _SMALLEST and not _is_text(member.name) and elf.is_elf(_head(archive, member)):
            yield member


def _is_text(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in _TEXT  # noqa: PTH122 - pathlib takes ten times as long


def _head(archive: Archive, member: Member) -> bytes:
    """The first bytes of a member, without unpacking more than they take."""
    packed = archive.raw.at(member.data_offset, min(_PEEK, member.compressed_size))
    if member.method == layout.STORED:
        return packed
    try:
        head = zlib.decompressobj(-15).decompress(packed, len(elf.MAGIC))
    except zlib.error as error:
        raise WheelError(f"the compressed data of {member.name} is broken") from error
    if len(head) == len(elf.MAGIC):
        return head
    # Any number of empty blocks may stand before them.
    return MemberView(archive, member).read(0, len(elf.MAGIC))


def targets_of(wheel: Path) -> tuple[str, ...]:
    """The targets that a wheel has device code for, sorted; none when it has no device code.

    Raises:
        WheelError: the archive or a binary is malformed.
    """
    with Archive.open(wheel) as archive:
        return all_targets(archive, (*read_libraries(archive), *windows_dlls.read_libraries(archive)))


def all_targets(archive: Archive, libraries: Iterable[Library | PeLibrary]) -> tuple[str, ...]:
    """The targets of a wheel whose binaries have been read: theirs and those of containers.

    Raises:
        WheelError: a container is malformed.
    """
    found = {target for library in libraries for target in library.targets}
    for member in archive.members:
        if member.name.endswith(offload_container.SUFFIX):
            view = MemberView(archive, member)
            container = offload_container.parse(ViewReader(view, 0, view.size), member.name)
            ids = (code.id for part in container.parts for code in part.codes)
            found |= {str(code_object.target_of_entry(name)) for name in ids}
    return in_order(found)
