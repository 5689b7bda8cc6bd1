"""Reading the wrappers in a library, through which HIP's runtime finds its device code.

Each object file with kernels brings one, in the section `.hipFatBinSegment`; a constructor hands its address
to `__hipRegisterFatBinary`. 24 bytes, little-endian:

    0 u32 magic 0x48495046, 4 u32 version 1, 8 u64 address of a bundle, 16 u64 unused (0)

The address is filled in when the library is loaded, so that a relocation has it too: as a number, or, in a
library compiled with `-fgpu-rdc` such as librccl, by an exported symbol `__hip_fatbin_<hash>` of each object
file, which all lie at the one bundle. In a library whose code is in an archive the magic is 0x4b504948, the
address is that of what leads to the archive, and the u32 at 16 is the wrapper's ordinal: how many wrappers
stand before it.

Source: clang/lib/CodeGen/CGCUDANV.cpp, `makeModuleCtorFunction`; for relocations the x86-64 psABI,
"Relocation Types", and the generic ABI's proposal for SHT_RELR, which glibc has had since 2.36.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from cairn.errors import WheelError
from cairn.formats.elf_layout import EXECUTABLE, SHT_DYNSYM, SHT_NOBITS, WORD, Layout, Section
from cairn.formats.view import Patch

SECTION = ".hipFatBinSegment"
LAYOUT = struct.Struct("<IIQIxxxx")
IN_PLACE, IN_ARCHIVE = 0x48495046, 0x4B504948
POINTER_AT, ORDINAL_AT = 8, 16
_VERSION = 1
_UNUSED = struct.Struct("<Q")
_LARGEST = 24 << 20  # bytes of the section: a million wrappers
_RELA = struct.Struct("<QQq")  # Elf64_Rela: offset, info, addend
_REL = struct.Struct("<QQ")
_INFO_BEFORE_ADDEND = 8
_SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym: name, info, other, section, value, size
_VALUE_AT = 8  # in a symbol
_LARGEST_TABLE = 24 << 22  # bytes of the table of symbols: four million
_DIRECT = 1  # R_X86_64_64: the address of a symbol and the addend
_RELATIVE = 8  # R_X86_64_RELATIVE: the base address and the addend
# d_tag: where tables of relocations begin, and how many bytes they have.
_DT_RELA, _DT_RELASZ, _DT_REL, _DT_RELSZ, _DT_RELRSZ, _DT_RELR = 7, 8, 17, 18, 35, 36
_DT_ANDROID = range(0x6000000F, 0x60000013)  # packed tables, which glibc does not read either
_MOST_RELOCATIONS = 1 << 28  # bytes of a table: 11 million of the largest kind
_STEP = 24 << 16  # bytes of relocations that are read at a time; whole ones of each kind


class Relocation(NamedTuple):
    """One relocation.

    Attributes:
        address: of the word that it changes.
        info: type and symbol, as Elf64_Rela has them.
        value: its addend: what it has itself (DT_RELA), or what stands in the word; of one that names a
            symbol of the device code the address that comes of both.
        addend_at: where in the file that addend is.
    """

    address: int
    info: int
    value: int
    addend_at: int


class Wrapper(msgspec.Struct, frozen=True, kw_only=True):
    """One wrapper.

    Attributes:
        at: where it begins in the file.
        magic: which kind it is.
        pointer: the address that it leads to.
        ordinal: the u32 at 16; 0 in one whose code is in place.
        addend_at: where in the file the address must be changed, besides the wrapper itself: the addend of
            its relocation; None where there is none.
        symbolic: whether its relocation names a symbol, which must be changed as well.
    """

    at: int
    magic: int
    pointer: int
    ordinal: int
    addend_at: int | None
    symbolic: bool = False

    def led_to(self, address: int) -> Iterator[Patch]:
        """The changes outside the wrapper that lead it to another address, by places in the file as read."""
        if self.addend_at is None or self.at <= self.addend_at < self.at + LAYOUT.size:
            return
        if self.symbolic:
            yield Patch(at=self.addend_at - _INFO_BEFORE_ADDEND, data=WORD.pack(_RELATIVE))
        yield Patch(at=self.addend_at, data=WORD.pack(address))


def section_of(layout: Layout) -> Section | None:
    """The section that has the wrappers.

    Raises:
        WheelError: there are several.
    """
    section = layout.sections_named(SECTION)
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
            symbolic=relocation is not None and relocation.info != _RELATIVE,
        )
    if relocations:
        raise WheelError(f"a relocation changes its wrappers at {min(relocations):#x}, which is no pointer")


def _by_address(layout: Layout, section: Section, code: range) -> dict[int, Relocation]:
    """The relocations of the wrappers."""
    relocations: dict[int, Relocation] = {}
    # A word that begins up to seven bytes before them changes their first.
    changing = range(section.address - 7, section.address + section.size)
    symbols = {number: value for number, _, value in symbols_of(layout, code)}
    for relocation in _relocations(layout, changing, code, symbols):
        of_code = relocation.info >> 32 in symbols
        if relocation.address not in changing:
            if of_code or (relocation.info == _RELATIVE and relocation.value in code):
                raise WheelError(f"the word at {relocation.address:#x} leads to its device code too")
            continue
        if relocation.info != _RELATIVE and not (of_code and relocation.info & 0xFFFFFFFF == _DIRECT):
            raise WheelError(f"its wrappers are relocated by type {relocation.info & 0xFFFFFFFF}")
        if relocation.address in relocations:
            raise WheelError(f"two relocations change its wrapper at {relocation.address:#x}")
        relocations[relocation.address] = relocation
    return relocations


def symbols_of(layout: Layout, code: range) -> Iterator[tuple[int, int, int]]:
    """The exported symbols that lie in the device code: number, place of the value in the file, and value.

    Raises:
        WheelError: the table of symbols is malformed.
    """
    for table in (section for section in layout.sections if section.kind == SHT_DYNSYM):
        if table.size % _SYMBOL.size or table.size > _LARGEST_TABLE:
            raise WheelError(f"an ELF file with {table.size} bytes of dynamic symbols")
        rows = _SYMBOL.iter_unpack(layout.view.read(table.offset, table.size))
        for number, (_, _, _, section, value, _) in enumerate(rows):
            if section and value in code:
                yield number, table.offset + number * _SYMBOL.size + _VALUE_AT, value


def _relocations(
    layout: Layout, changing: range, to: range, symbols: Mapping[int, int]
) -> Iterator[Relocation]:
    """The relocations that change a word in one range of addresses, or make any word lead into another.

    Those of calls are left out, which are for other libraries. A library can have a million of them all.

    Args:
        layout: the library.
        changing: the range of addresses.
        to: the other one.
        symbols: the addresses of the exported symbols that lie in the other one, by their numbers.

    Raises:
        WheelError: a table is malformed, or packed in a way that is not known here.
    """
    dynamic = dict(layout.dynamic)
    if any(tag in dynamic for tag in _DT_ANDROID):
        raise WheelError("an ELF file whose relocations are packed as Android's are")
    table = _table(layout, dynamic.get(_DT_RELA), dynamic.get(_DT_RELASZ, 0), _RELA.size)
    for place, chunk in table:
        for number, (address, info, addend) in enumerate(_RELA.iter_unpack(chunk)):
            of_code = symbols.get(info >> 32) if info >> 32 else None
            if address in changing or addend in to or of_code is not None:
                yield Relocation(address, info, addend + (of_code or 0), place + number * _RELA.size + 16)
    in_place = _without_addend(layout, dynamic.get(_DT_REL), dynamic.get(_DT_RELSZ, 0))
    packed = _packed(layout, dynamic.get(_DT_RELR), dynamic.get(_DT_RELRSZ, 0))
    for relocation in itertools.chain(in_place, packed):
        if relocation.address in changing or relocation.value in to:
            yield relocation


def _without_addend(layout: Layout, address: int | None, size: int) -> Iterator[Relocation]:
    """Relocations of DT_REL, whose addend is the word that they change."""
    for _, chunk in _table(layout, address, size, _REL.size):
        for place, info in _REL.iter_unpack(chunk):
            at = layout.offset_of(place, WORD.size)
            yield Relocation(place, info, WORD.unpack(layout.view.read(at, WORD.size))[0], at)


def _packed(layout: Layout, address: int | None, size: int) -> Iterator[Relocation]:
    """Relocations of DT_RELR: an even word is an address, an odd one a bitmap of the next 63 words."""
    following = 0
    for _, chunk in _table(layout, address, size, WORD.size):
        for (word,) in WORD.iter_unpack(chunk):
            bits = word >> 1 if word & 1 else 1
            begin = following if word & 1 else word
            count = bits.bit_length()
            at = layout.offset_of(begin, count * WORD.size) if count else 0
            for number, (value,) in enumerate(WORD.iter_unpack(layout.view.read(at, count * WORD.size))):
                if bits >> number & 1:
                    place = WORD.size * number
                    yield Relocation(begin + place, _RELATIVE, value, at + place)
            following = begin + WORD.size * (63 if word & 1 else 1)


def _table(layout: Layout, address: int | None, size: int, entry: int) -> Iterator[tuple[int, bytes]]:
    """A table in pieces, each with its place in the file."""
    if address is None or not size:
        return
    if size % entry or size > _MOST_RELOCATIONS:
        raise WheelError(f"an ELF file with {size} bytes of relocations")
    at = layout.offset_of(address, size)
    for start in range(at, at + size, _STEP):
        yield start, layout.view.read(start, min(_STEP, at + size - start))
