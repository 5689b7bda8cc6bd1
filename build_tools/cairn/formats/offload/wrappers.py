"""The wrappers in a library, by which HIP's runtime finds its device code.

Each object file with kernels brings one, in the section `.hipFatBinSegment`; a constructor hands its address
to `__hipRegisterFatBinary`. 24 bytes, little-endian:

    0 u32 magic 0x48495046, 4 u32 version 1, 8 u64 address of a bundle, 16 u64 unused (0)

The address is filled in when the library is loaded, so that a relocation has it too. In a library whose
code is in an archive the magic is 0x4b504948, the address is that of what leads to the archive, and the u32
at 16 is the wrapper's ordinal: how many wrappers stand before it.

Source: clang/lib/CodeGen/CGCUDANV.cpp, `makeModuleCtorFunction`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from cairn.errors import WheelError
from cairn.formats.elf_layout import EXECUTABLE, RELATIVE, SHT_NOBITS, Layout, Relocation, Section

SECTION = ".hipFatBinSegment"
LAYOUT = struct.Struct("<IIQIxxxx")
IN_PLACE, IN_ARCHIVE = 0x48495046, 0x4B504948
POINTER_AT, ORDINAL_AT = 8, 16
_VERSION = 1
_UNUSED = struct.Struct("<Q")
_LARGEST = 24 << 20  # bytes of the section: a million wrappers


@dataclass(frozen=True, kw_only=True)
class Wrapper:
    """One wrapper.

    Attributes:
        at: where it begins in the file.
        magic: which kind it is.
        pointer: the address that it leads to.
        ordinal: the u32 at 16; 0 in one whose code is in place.
        addend_at: where in the file the address must be changed, besides the wrapper itself: the addend of
            its relocation; None where there is none.
    """

    at: int
    magic: int
    pointer: int
    ordinal: int
    addend_at: int | None


def section_of(layout: Layout) -> Section | None:
    """The section that has the wrappers.

    Raises:
        WheelError: there are several.
    """
    section = layout.named(SECTION)
    if len(section) > 1:
        raise WheelError(f"it has {len(section)} sections {SECTION}")
    return section[0] if section else None


def read(layout: Layout, code: range) -> tuple[Wrapper, ...]:
    """Every wrapper of a library, in the order of their addresses.

    Args:
        layout: the library.
        code: the addresses of its device code, which nothing else may lead to.

    Raises:
        WheelError: one is not what a compiler writes, or there are relocations that cannot be explained.
    """
    section = section_of(layout)
    if section is None:
        return ()
    if section.kind == SHT_NOBITS or section.size % LAYOUT.size or section.size > _LARGEST:
        raise WheelError(f"its section {SECTION} of {section.size} bytes is not a row of wrappers")
    if layout.offset_of(section.address, section.size) != section.offset:
        raise WheelError(f"its section {SECTION} is loaded from a different place of the file")
    data = layout.view.read(section.offset, section.size)
    relocations = _by_address(layout, section, code)
    return tuple(_wrappers(data, section, relocations, fixed=layout.type == EXECUTABLE))


def _wrappers(
    data: bytes, section: Section, relocations: dict[int, Relocation], *, fixed: bool
) -> Iterator[Wrapper]:
    for start in range(0, len(data), LAYOUT.size):
        magic, version, pointer, ordinal = LAYOUT.unpack_from(data, start)
        unused = _UNUSED.unpack_from(data, start + ORDINAL_AT)[0]
        if magic not in (IN_PLACE, IN_ARCHIVE) or version != _VERSION:
            raise WheelError(f"its wrapper {start // LAYOUT.size} is of an unknown kind or version")
        if unused != (ordinal if magic == IN_ARCHIVE else 0):
            raise WheelError(f"its wrapper {start // LAYOUT.size} has something where there is nothing")
        slot = section.address + start + POINTER_AT
        relocation = relocations.pop(slot, None)
        if relocation is None and not fixed:
            raise WheelError(f"nothing relocates its wrapper {start // LAYOUT.size}")
        yield Wrapper(
            at=section.offset + start,
            magic=magic,
            pointer=relocation.value if relocation else pointer,
            ordinal=ordinal,
            addend_at=relocation.addend_at if relocation else None,
        )
    if relocations:
        raise WheelError(f"a relocation changes its wrappers at {min(relocations):#x}, which is no pointer")


def _by_address(layout: Layout, section: Section, code: range) -> dict[int, Relocation]:
    """The relocations of the wrappers."""
    relocations: dict[int, Relocation] = {}
    # A word that begins up to seven bytes before them changes their first.
    changing = range(section.address - 7, section.address + section.size)
    for relocation in layout.relocations(changing, code):
        if relocation.address not in changing:
            if relocation.info == RELATIVE and relocation.value in code:
                raise WheelError(f"the word at {relocation.address:#x} leads to its device code too")
            continue
        if relocation.info != RELATIVE:
            raise WheelError(f"its wrappers are relocated by type {relocation.info & 0xFFFFFFFF}")
        if relocation.address in relocations:
            raise WheelError(f"two relocations change its wrapper at {relocation.address:#x}")
        relocations[relocation.address] = relocation
    return relocations
