"""Where everything stands in a 64-bit little-endian ELF file: its header, segments, sections, relocations.

`elf` says what a loader makes of a file of any class; this is for those who change one byte by byte.

Source: System V ABI, chapters 4 and 5; x86-64 psABI, "Relocation Types"; the generic ABI's proposal for
SHT_RELR, which glibc has had since 2.36.
"""

from __future__ import annotations

import functools
import itertools
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from cairn.errors import WheelError
from cairn.formats.elf import MAGIC
from cairn.formats.view import View

# Elf64_Ehdr, from e_type on: type, machine, version, entry, phoff, shoff, flags, ehsize, phentsize, phnum,
# shentsize, shnum, shstrndx.
_EHDR = struct.Struct("<16xHHIQQQIHHHHHH")
PHDR = struct.Struct("<IIQQQQQQ")
SHDR = struct.Struct("<IIQQQQIIQQ")
_DYN = struct.Struct("<QQ")  # Elf64_Dyn: tag, value
_RELA = struct.Struct("<QQq")  # Elf64_Rela: offset, info, addend
_REL = struct.Struct("<QQ")
WORD = struct.Struct("<Q")
PHOFF_AT, SHOFF_AT, PHNUM_AT, SHNUM_AT = 32, 40, 56, 60  # places in the header
X86_64 = 62
EXECUTABLE, SHARED = 2, 3  # e_type
PT_LOAD, PT_DYNAMIC, PT_INTERP, PT_PHDR = 1, 2, 3, 6
SHT_PROGBITS, SHT_NOBITS = 1, 8
SHF_ALLOC = 2
RELATIVE = 8  # R_X86_64_RELATIVE: the base address and the addend
# d_tag: where tables of relocations begin, and how many bytes they have.
_DT_RELA, _DT_RELASZ, _DT_REL, _DT_RELSZ, _DT_RELRSZ, _DT_RELR = 7, 8, 17, 18, 35, 36
_DT_ANDROID = range(0x6000000F, 0x60000013)  # packed tables, which glibc does not read either
_MOST_SECTIONS = 0xFF00  # SHN_LORESERVE: from here on the count stands elsewhere
_MOST_DYNAMIC = 1 << 20  # bytes
_MOST_RELOCATIONS = 1 << 28  # bytes of a table: 11 million of the largest kind
_STEP = 24 << 16  # bytes of relocations that are read at a time; whole ones of each kind
_LAST_ADDRESS = 1 << 57  # of x86-64 with five levels of page tables; far beyond it sums leave 64 bits
_LARGEST_PAGE = 1 << 30


class Segment(NamedTuple):
    """Elf64_Phdr."""

    kind: int
    flags: int
    offset: int
    address: int
    physical: int
    file_size: int
    memory_size: int
    alignment: int

    @property
    def end(self) -> int:
        """Where its bytes end in the file."""
        return self.offset + self.file_size


class Section(NamedTuple):
    """Elf64_Shdr."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


RelocationKind: TypeAlias = Literal["rela", "rel", "relr"]


class Relocation(NamedTuple):
    """One relocation.

    Attributes:
        kind: of the table that it is in.
        address: of the word that it changes.
        info: type and symbol, as Elf64_Rela has them.
        value: its addend: what it has itself (`rela`), or what stands in the word.
        addend_at: where in the file that addend is.
    """

    kind: RelocationKind
    address: int
    info: int
    value: int
    addend_at: int


@dataclass(frozen=True)
class Layout:
    """An ELF file as it lies there.

    Attributes:
        view: its bytes.
        machine: e_machine.
        type: e_type.
        segments_at: where the program headers are.
        segments: them.
        sections_at: where the section table is; 0 where there is none.
        sections: it.
        names_index: which section has the names of sections.
    """

    view: View
    machine: int
    type: int
    segments_at: int
    segments: tuple[Segment, ...]
    sections_at: int
    sections: tuple[Section, ...]
    names_index: int

    @functools.cached_property
    def names(self) -> bytes:
        """The table of the sections' names."""
        if not 0 < self.names_index < len(self.sections):
            return b""
        return self.view.read(self.sections[self.names_index].offset, self.sections[self.names_index].size)

    def named(self, name: str) -> tuple[Section, ...]:
        """The sections of that name."""
        terminated = name.encode() + b"\0"
        return tuple(s for s in self.sections if self.names[s.name : s.name + len(terminated)] == terminated)

    @functools.cached_property
    def loads(self) -> tuple[Segment, ...]:
        """The segments that are mapped."""
        return tuple(segment for segment in self.segments if segment.kind == PT_LOAD)

    @property
    def is_program(self) -> bool:
        """Whether it is started by the kernel, which finds its program headers in a way of its own."""
        return self.type == EXECUTABLE or any(segment.kind == PT_INTERP for segment in self.segments)

    def offset_of(self, address: int, size: int = 1) -> int:
        """Where in the file the bytes at an address are.

        Raises:
            WheelError: they are in no segment.
        """
        for segment in self.loads:
            at = address - segment.address
            if 0 <= at <= segment.file_size - size:
                return segment.offset + at
        raise WheelError(f"address {address:#x} lies outside of every segment")

    def relocations(self, changing: range, to: range) -> Iterator[Relocation]:
        """The relocations that change a word in one range of addresses, or make any word lead into another.

        Those of calls are left out, which are for other libraries. A library can have a million of them all.

        Raises:
            WheelError: a table is malformed, or packed in a way that is not known here.
        """
        dynamic = dict(self._dynamic())
        if any(tag in dynamic for tag in _DT_ANDROID):
            raise WheelError("an ELF file whose relocations are packed as Android's are")
        for place, chunk in self._table(dynamic.get(_DT_RELA), dynamic.get(_DT_RELASZ, 0), _RELA.size):
            for number, (address, info, addend) in enumerate(_RELA.iter_unpack(chunk)):
                if address in changing or addend in to:
                    yield Relocation("rela", address, info, addend, place + number * _RELA.size + 16)
        in_place = self._without_addend(dynamic.get(_DT_REL), dynamic.get(_DT_RELSZ, 0))
        packed = self._packed(dynamic.get(_DT_RELR), dynamic.get(_DT_RELRSZ, 0))
        for relocation in itertools.chain(in_place, packed):
            if relocation.address in changing or relocation.value in to:
                yield relocation

    def _without_addend(self, address: int | None, size: int) -> Iterator[Relocation]:
        """Those of DT_REL: the word that is changed has the value."""
        for _, chunk in self._table(address, size, _REL.size):
            for place, info in _REL.iter_unpack(chunk):
                at = self.offset_of(place, WORD.size)
                yield Relocation("rel", place, info, WORD.unpack(self.view.read(at, WORD.size))[0], at)

    def _packed(self, address: int | None, size: int) -> Iterator[Relocation]:
        """Those of DT_RELR: an even word is an address, an odd one a bit for each of the 63 words behind."""
        following = 0
        for _, chunk in self._table(address, size, WORD.size):
            for (word,) in WORD.iter_unpack(chunk):
                bits = word >> 1 if word & 1 else 1
                begin = following if word & 1 else word
                count = bits.bit_length()
                at = self.offset_of(begin, count * WORD.size) if count else 0
                values = WORD.iter_unpack(self.view.read(at, count * WORD.size))
                for number, (value,) in enumerate(values):
                    if bits >> number & 1:
                        place = WORD.size * number
                        yield Relocation("relr", begin + place, RELATIVE, value, at + place)
                following = begin + WORD.size * (63 if word & 1 else 1)

    def _table(self, address: int | None, size: int, entry: int) -> Iterator[tuple[int, bytes]]:
        """A table in pieces, each with its place in the file."""
        if address is None or not size:
            return
        if size % entry or size > _MOST_RELOCATIONS:
            raise WheelError(f"an ELF file with {size} bytes of relocations")
        at = self.offset_of(address, size)
        for start in range(at, at + size, _STEP):
            yield start, self.view.read(start, min(_STEP, at + size - start))

    def _dynamic(self) -> Iterator[tuple[int, int]]:
        for segment in self.segments:
            if segment.kind == PT_DYNAMIC:
                if segment.file_size > _MOST_DYNAMIC:
                    raise WheelError(f"an ELF file with {segment.file_size} bytes of dynamic section")
                size = segment.file_size - segment.file_size % _DYN.size
                for tag, value in _DYN.iter_unpack(self.view.read(segment.offset, size)):
                    if not tag:
                        return
                    yield tag, value


def read(view: View) -> Layout:
    """Read the headers of a file.

    Raises:
        WheelError: it is not a 64-bit little-endian ELF file, or its headers are broken.
    """
    ident = view.read(0, min(6, view.size))
    if ident != MAGIC + b"\x02\x01":
        raise WheelError("not a 64-bit little-endian ELF file")
    kind, machine, _, _, segments_at, sections_at, _, _, *sizes = _EHDR.unpack(view.read(0, _EHDR.size))
    segment_size, segment_count, section_size, section_count, names_index = sizes
    if segment_size != PHDR.size or (sections_at and section_size != SHDR.size):
        raise WheelError("an ELF file whose headers have an impossible size")
    if section_count >= _MOST_SECTIONS:
        raise WheelError(f"an ELF file of {section_count} sections")
    segments = view.read(segments_at, segment_count * PHDR.size)
    sections = view.read(sections_at, section_count * SHDR.size if sections_at else 0)
    layout = Layout(
        view=view,
        machine=machine,
        type=kind,
        segments_at=segments_at,
        segments=tuple(Segment(*fields) for fields in PHDR.iter_unpack(segments)),
        sections_at=sections_at,
        sections=tuple(Section(*fields) for fields in SHDR.iter_unpack(sections)),
        names_index=names_index,
    )
    for segment in layout.loads:
        page = segment.alignment
        if (
            segment.address + segment.memory_size > _LAST_ADDRESS
            or segment.file_size > segment.memory_size
            or segment.end > view.size
            or page > _LARGEST_PAGE
            or page & (page - 1)
            or (page and (segment.address - segment.offset) % page)
        ):
            raise WheelError("an ELF file with a segment that no system can load")
    return layout
