"""The layout of an ELF file: header, segments, sections and dynamic entries.

`elf` says what a loader makes of it; those who change a file byte by byte read it by `read_to_change`.

Source: System V ABI, chapters 4 and 5.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from cairn.errors import WheelError
from cairn.formats.view import View

MAGIC = b"\x7fELF"
# e_ident[EI_CLASS] at byte 4, e_ident[EI_DATA] at byte 5 (chapter 4, "ELF Header").
_IDENT_SIZE = 16
_WIDE = 64
_BITS = {1: 32, 2: _WIDE}
_ORDERS = {1: "<", 2: ">"}
# Of a 64-bit little-endian file: Elf64_Ehdr from e_type on (type, machine, version, entry, phoff, shoff,
# flags, ehsize, phentsize, phnum, shentsize, shnum, shstrndx), Elf64_Phdr, Elf64_Shdr and Elf64_Dyn.
EHDR = struct.Struct("<16xHHIQQQIHHHHHH")
PHDR = struct.Struct("<IIQQQQQQ")
SHDR = struct.Struct("<IIQQQQIIQQ")
DYN = struct.Struct("<QQ")
WORD = struct.Struct("<Q")
PHOFF_AT, SHOFF_AT, PHNUM_AT, SHNUM_AT = 32, 40, 56, 60  # places in that header
X86_64 = 62
EXECUTABLE = 2  # e_type
PT_LOAD, PT_DYNAMIC, PT_INTERP, PT_PHDR, PT_GNU_STACK = 1, 2, 3, 6, 0x6474E551
PT_GNU_PROPERTY = 0x6474E553
RUNS = 1  # p_flags: PF_X
_FLAGS_1 = 0x6FFFFFFB
_NOT_OPENED = 0x40  # DF_1_NOOPEN
_SYSTEMS = (0, 3)  # ELFOSABI_SYSV, ELFOSABI_GNU
_PAGE = 4096  # the smallest of those that Linux has
SHT_PROGBITS, SHT_STRTAB, SHT_DYNAMIC, SHT_NOBITS = 1, 3, 6, 8  # NOBITS: room in memory alone, as .bss
SHT_DYNSYM = 11
SHF_ALLOC = 2
# Limits. What is real stays far below; what is above would cost time or memory out of proportion to the file.
_MOST_SECTIONS = 200_000
_MOST_DYNAMIC = 1 << 20  # bytes
_LONGEST_NAME = 1 << 20  # run paths made by bazel are longer than any path may be
_MOST_NAMES = 64 << 20  # bytes of the names of all sections, which may share theirs
_FIRST_STEP = 256  # bytes read at first of a name whose end is not known
_RESERVED = 0xFF00  # SHN_LORESERVE: from so many sections on their count stands elsewhere
_LAST_ADDRESS = 1 << 57  # of x86-64 with five levels of page tables; far beyond it sums leave 64 bits
_LARGEST_PAGE = 1 << 30


class Segment(NamedTuple):
    """Elf64_Phdr, or Elf32_Phdr in its order."""

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
        """The file offset behind its last byte."""
        return self.offset + self.file_size


class Section(NamedTuple):
    """Elf64_Shdr, or Elf32_Shdr."""

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


class Dynamic(NamedTuple):
    """An entry of the dynamic section."""

    tag: int
    value: int


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The headers of an ELF file, as they are stored.

    Attributes:
        view: its bytes.
        bits: 32 or 64.
        order: of its bytes, as `struct` has it.
        type: e_type.
        machine: e_machine.
        system: e_ident[EI_OSABI] and e_ident[EI_ABIVERSION].
        segments_at: where the program headers are.
        segments: them.
        sections_at: where the section table is; 0 where there is none.
        section_count: how many sections the header says there are.
        names_index: which section has the names of sections.
    """

    view: View
    bits: int
    order: str
    type: int
    machine: int
    system: tuple[int, int]
    segments_at: int
    segments: tuple[Segment, ...]
    sections_at: int
    section_count: int
    names_index: int

    @property
    def wide(self) -> bool:
        """Whether its addresses have 64 bits."""
        return self.bits == _WIDE

    @property
    def word(self) -> str:
        """The `struct` code of an address."""
        return "Q" if self.wide else "I"

    @functools.cached_property
    def sections(self) -> tuple[Section, ...]:
        """The section table, which stands at the end of nearly all files."""
        if not self.sections_at:
            return ()
        row = f"II{self.word * 4}II{self.word * 2}"
        header = struct.Struct(self.order + row)
        # From SHN_LORESERVE sections on e_shnum is 0, and the first header's sh_size has the number.
        count = self.section_count or self.unpack(row, self.sections_at)[5]
        if count > _MOST_SECTIONS:
            raise WheelError(f"an ELF file of {count} sections")
        table = self.view.read(self.sections_at, count * header.size)
        return tuple(Section(*fields) for fields in header.iter_unpack(table))

    @property
    def names_section(self) -> Section | None:
        """The section with the names of all sections."""
        return self.sections[self.names_index] if 0 < self.names_index < len(self.sections) else None

    def named_sections(self) -> Iterator[tuple[bytes, Section]]:
        """The sections with their names; none if the file has no section names."""
        names = self.names_section
        length = 0
        for section in self.sections if names else ():
            name = self.text(names.offset + section.name if names else 0)
            length += len(name)
            if length > _MOST_NAMES:
                raise WheelError(f"an ELF file with more than {_MOST_NAMES} bytes of names of sections")
            yield name, section

    def sections_named(self, name: str) -> tuple[Section, ...]:
        """The sections of that name."""
        return tuple(section for text, section in self.named_sections() if text == name.encode())

    @functools.cached_property
    def loads(self) -> tuple[Segment, ...]:
        """The segments that are mapped."""
        return tuple(segment for segment in self.segments if segment.kind == PT_LOAD)

    @property
    def page(self) -> int:
        """The largest alignment of its segments."""
        return max((1, *(segment.alignment for segment in self.loads)))

    @functools.cached_property
    def dynamic_segment(self) -> Segment | None:
        """The segment with the dynamic entries: of several the last, as glibc has it (elf/dl-load.c)."""
        return next((s for s in reversed(self.segments) if s.kind == PT_DYNAMIC), None)

    @functools.cached_property
    def dynamic(self) -> tuple[Dynamic, ...]:
        """The dynamic entries up to DT_NULL, which ends them whatever their segment's size."""
        segment = self.dynamic_segment
        if segment is None:
            return ()
        if segment.file_size > _MOST_DYNAMIC:
            raise WheelError(f"an ELF file with {segment.file_size} bytes of dynamic section")
        entry = struct.Struct(f"{self.order}{self.word * 2}")
        data = self.view.read(segment.offset, segment.file_size - segment.file_size % entry.size)
        entries = [Dynamic(*fields) for fields in entry.iter_unpack(data)]
        end = next((number for number, entry in enumerate(entries) if not entry.tag), len(entries))
        return tuple(entries[:end])

    @property
    def refusal(self) -> str:
        """Why glibc loads no such library (elf/dl-load.c); empty where nothing is known."""
        if self.system[0] not in _SYSTEMS or self.system[1]:
            return "it is for OS ABI {} of version {}, which no Linux has".format(*self.system)
        # `strip` behind patchelf leaves such ones (NixOS/patchelf#10).
        if any((segment.address - segment.offset) % _PAGE for segment in self.loads):
            return "its segments do not begin where pages of memory may"
        if (self.value(_FLAGS_1) or 0) & _NOT_OPENED:
            return "it says that no running program may open it (DF_1_NOOPEN)"
        return ""

    def value(self, tag: int) -> int | None:
        """The value of the first dynamic entry with that tag."""
        return next((entry.value for entry in self.dynamic if entry.tag == tag), None)

    def offset_of(self, address: int, size: int = 1) -> int:
        """The file offset of an address.

        Raises:
            WheelError: they are in no segment.
        """
        for segment in self.loads:
            at = address - segment.address
            if 0 <= at <= segment.file_size - size:
                return segment.offset + at
        raise WheelError(f"address {address:#x} lies outside of every segment")

    def place_of(self, tag: int) -> int | None:
        """The file offset that the first dynamic entry with that tag points to."""
        address = self.value(tag)
        return None if address is None else self.offset_of(address)

    def free_address(self, offset: int) -> int:
        """An address behind all others, for a place in the file.

        Both must be the same modulo the page size (chapter 5, p_align), since whole pages are mapped.
        """
        end = max(segment.address + segment.memory_size for segment in self.loads)
        return end + -end % self.page + offset % self.page

    def text(self, at: int) -> bytes:
        """The bytes of the file from a place up to the next zero.

        Raises:
            WheelError: there is none for a long way.
        """
        text = b""
        step = _FIRST_STEP
        while len(text) < _LONGEST_NAME:
            part = self.view.read(at, min(step, max(self.view.size - at, 1)))
            head, end, _ = part.partition(b"\0")
            text += head
            if end:
                return text
            at += len(part)
            step *= 2
        raise WheelError("an ELF file with a name that does not end")

    def unpack(self, layout: str, offset: int) -> tuple[int, ...]:
        """Unpack numbers at an offset of the file, in its byte order."""
        layout = self.order + layout
        return struct.unpack(layout, self.view.read(offset, struct.calcsize(layout)))


def read(view: View) -> Layout:
    """Read the headers of a file but for its section table.

    Raises:
        WheelError: it is not an ELF file, or its headers are broken.
    """
    ident = view.read(0, min(_IDENT_SIZE, view.size))
    if not ident.startswith(MAGIC) or len(ident) < _IDENT_SIZE:
        raise WheelError("not an ELF file")
    if ident[4] not in _BITS or ident[5] not in _ORDERS:
        raise WheelError("an ELF file of unknown class or byte order")
    bits, order = _BITS[ident[4]], _ORDERS[ident[5]]
    wide = bits == _WIDE
    # Elf64_Ehdr and Elf32_Ehdr differ in the width of e_entry, e_phoff and e_shoff alone.
    header = struct.Struct(f"{order}HHI{'QQQ' if wide else 'III'}IHHHHHH")
    fields = header.unpack(view.read(_IDENT_SIZE, header.size))
    kind, machine, version, _, segments_at, sections_at, _, _, *sizes = fields
    if version != 1:
        raise WheelError(f"an ELF file of version {version}")
    segment_size, segment_count, section_size, section_count, names_index = sizes
    # Headers of a size that they do not have: loaders refuse them (glibc: e_phentsize), tools skip them.
    odd = segment_count and segment_size != (56 if wide else 32)
    if odd or (sections_at and section_size != (64 if wide else 40)):
        raise WheelError("an ELF file whose headers have an impossible size")
    row = struct.Struct(order + ("IIQQQQQQ" if wide else "IIIIIIII"))
    rows = row.iter_unpack(view.read(segments_at, segment_count * row.size) if segment_count else b"")
    return Layout(
        view=view,
        bits=bits,
        order=order,
        type=kind,
        machine=machine,
        system=(ident[7], ident[8]),
        segments_at=segments_at,
        # In an Elf32_Phdr the flags are the last field but one.
        segments=tuple(Segment(*(r if wide else (r[0], r[6], *r[1:6], r[7]))) for r in rows),
        sections_at=sections_at,
        section_count=section_count,
        names_index=names_index,
    )


def read_to_change(view: View) -> Layout:
    """Read the headers of a file to be changed, and check that every loader accepts them.

    Raises:
        WheelError: it is not a 64-bit little-endian ELF file, or its headers are broken.
    """
    layout = read(view)
    if not layout.wide or layout.order != "<":
        raise WheelError("not a 64-bit little-endian ELF file")
    if layout.section_count >= _RESERVED:
        raise WheelError(f"an ELF file of {layout.section_count} sections")
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
