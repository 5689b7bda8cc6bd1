"""A reader of PE files: what the loader of Windows uses.

Only the headers and the tables that are asked for are touched, so that a DLL in a wheel costs no more than
unpacking it as far as they stand.

Source: Microsoft's "PE Format" page, sections on the headers, the import, delay-load and export tables.
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from cairn.errors import WheelError
from cairn.formats import view as formats_view
from cairn.formats.image import Image, Section, Symbol
from cairn.formats.view import BytesView, View

# A PE file begins with a program for DOS, whose header has at 0x3c where the signature `PE` stands; then come
# the COFF file header, the optional header with the data directories, and the section table.
MAGIC = b"MZ"
_SIGNATURE = b"PE\0\0"
_SIGNATURE_AT = struct.Struct("<I")  # at 0x3c
# Machine, number of sections, time, symbol table, number of symbols, size of the optional header,
# characteristics.
_FILE_HEADER = struct.Struct("<HHIIIHH")
# Name, size in memory, address, size in the file, place in the file, relocations and line numbers, their
# counts, characteristics.
_SECTION = struct.Struct("<8sIIIIIIHHI")
_IMPORT = struct.Struct("<IIIII")  # look-up table, time, forwarders, name, address table; zeros end the table
_DELAYED = struct.Struct("<IIIIIIII")  # attributes, name, module handle, tables; zeros end the table
_EXPORT = struct.Struct("<IIHHIIIIIII")  # flags, time, version, name, ordinals and tables
_I386 = 0x14C
_DLL = 0x2000  # IMAGE_FILE_DLL
_MACHINES = {_I386: "win32", 0x8664: "win_amd64", 0xAA64: "win_arm64"}
_BITS = {0x10B: 32, 0x20B: 64}  # the magic number of the optional header: PE32, PE32+
_TABLES_AT = {32: 96, 64: 112}  # where in it the data directories begin; their number stands before them
_BASE_AT = {32: (28, "<I"), 64: (24, "<Q")}  # ImageBase, the address that the image prefers
_EXPORTS, _IMPORTS, _DELAYED_IMPORTS, _DOTNET = 0, 1, 13, 14  # data directories
# ECMA-335, II.25.3.3: size, version, place of the metadata, flags.
_DOTNET_HEADER = struct.Struct("<IHHIII")
_IL_ONLY, _NEEDS_32_BITS = 1, 2
ANY_MACHINE = "any"
"""The machine of a .NET assembly without machine code (AnyCPU)."""
_MOST_TABLES = 16
_LONGEST_NAME = 1 << 14  # templates of C++ have long names: clang cuts none, and cl.exe at 4096
_MOST_IMPORTS = 4096
# Names may share their bytes, and tables their rows: of all that are read, these are the most.
_MOST_NAMES = 1 << 20
_MOST_TEXT = 256 << 20  # bytes
_LARGEST_SECTION = 128 << 20  # what a table points to beyond that is refused
_MOST_HELD = 512 << 20  # bytes of the sections that tables point to, which may share theirs in the file


class _Section(NamedTuple):
    """A section as its header has it: its name, and its places and sizes in memory and in the file."""

    name: bytes
    memory_size: int
    address: int
    size: int
    offset: int


def is_pe(head: bytes) -> bool:
    """Whether a file that begins so may be a PE file: programs for DOS begin alike."""
    return head.startswith(MAGIC)


def read(data: bytes) -> Image:
    """Read a PE file in memory; see `read_view`."""
    return read_view(BytesView(data))


def read_file(path: Path) -> Image:
    """Read a PE file on disk; see `read_view`."""
    with formats_view.opening(path) as view:
        return read_view(view)


def read_view(view: View, *, python: bool = False, symbols: bool = False) -> Image:
    """Read a PE file.

    Args:
        view: its bytes.
        python: whether to look for symbols of Python's C API among what it exports and imports.
        symbols: whether to read every name that it exports, and imports when it is loaded.

    Raises:
        WheelError: it is none, or its headers are broken.
    """
    reader = _Reader(view)
    # What has no machine code needs no DLL either: such a file begins with a jump into .NET for old systems.
    anywhere = reader.machine == _I386 and reader.is_il_only()
    machine = _MACHINES.get(reader.machine, hex(reader.machine))
    needed = () if anywhere else (*reader.imports(), *reader.delay_imports())
    if not anywhere:
        reader.check_exports()
    sections = tuple(
        # On disk a section is padded to the alignment of the file; its size in memory is the true one.
        Section(
            name=section.name.rstrip(b"\0").decode("utf-8", "backslashreplace"),
            offset=section.offset,
            size=min(section.size, section.memory_size),
        )
        for section in reader.sections
    )
    return Image(
        format="pe",
        machine=ANY_MACHINE if anywhere else machine,
        needed=tuple(dict.fromkeys(name.lower() for name in needed)),
        refusal=_refusal(sections, view.size, is_dll=bool(reader.flags & _DLL)),
        python_defined=frozenset(reader.exported(b"Py") if python and not anywhere else ()),
        python_wanted=frozenset(
            name for _, name in (reader.imported("python3") if python and not anywhere else ())
        ),
        exports=frozenset(map(Symbol, reader.exported() if symbols and not anywhere else ())),
        imports=frozenset(
            Symbol(name, library=dll.lower())
            for dll, name in (reader.imported() if symbols and not anywhere else ())
        ),
        sections=sections,
    )


def _refusal(sections: Sequence[Section], size: int, *, is_dll: bool) -> str:
    """Why Windows loads no such DLL; empty where nothing is known.

    A file may end within the padding of a section, which no loader misses (Wine, `map_image_into_view`).
    """
    if not is_dll:
        return "to Windows it is a program, not a DLL"
    for section in sections:
        if (lacks := min(section.offset + section.size - size, section.size)) > 0:
            return f"{lacks} bytes of its section {section.name} are not in the file"
    return ""


class _Reader:
    """The headers of a PE file and ways to follow them."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._contents: dict[int, bytes] = {}
        self._held = self._names = self._text = 0
        if not is_pe(view.read(0, min(2, view.size))):
            raise WheelError("not a PE file")
        (at,) = _SIGNATURE_AT.unpack(view.read(0x3C, 4))
        if view.read(at, len(_SIGNATURE)) != _SIGNATURE:
            raise WheelError("not a PE file but a program for DOS")
        header = at + len(_SIGNATURE)
        self.machine, count, _, _, _, size, self.flags = _FILE_HEADER.unpack(
            view.read(header, _FILE_HEADER.size)
        )
        optional = header + _FILE_HEADER.size
        self._read_optional(view.read(optional, size))
        table = view.read(optional + size, count * _SECTION.size)
        self.sections = [_Section(*fields[:5]) for fields in _SECTION.iter_unpack(table)]
        # The loader takes them in the order of their addresses, none over another.
        self._placed = sorted((s for s in self.sections if s.size), key=lambda section: section.address)
        self._starts = [section.address for section in self._placed]

    def imports(self) -> Iterator[str]:
        """The DLLs of the import table."""
        for row in self._rows(_IMPORTS, _IMPORT):
            if not row[3]:
                return
            yield self._name(row[3])

    def delay_imports(self) -> Iterator[str]:
        """The DLLs of the delay-load table."""
        for row in self._rows(_DELAYED_IMPORTS, _DELAYED):
            if not row[1]:
                return
            # Bit 0 of the attributes says "relative to the base"; compilers before 2002 wrote full addresses.
            yield self._name(row[1] if row[0] & 1 else row[1] - self._base)

    def check_exports(self) -> None:
        """Refuse an export table that leads nowhere: with the name in it others find what is exported."""
        fields = self._export_table()
        if fields and fields[4]:
            self._name(fields[4])

    def exported(self, prefix: bytes = b"") -> Iterator[str]:
        """The names in the export table that begin so."""
        fields = self._export_table()
        if not fields:
            return
        count, names = fields[7], fields[9]
        if count > _MOST_NAMES:
            raise WheelError(f"a PE file that exports {count} names")
        for (name,) in struct.iter_unpack("<I", self._read(names, 4 * count) if count else b""):
            content, start = self._section_at(name)  # names of C++ may be longer than any that counts here
            if content.startswith(prefix, name - start):
                yield self._name(name)

    def _export_table(self) -> tuple[int, ...]:
        address, size = self._tables.get(_EXPORTS, (0, 0))
        return _EXPORT.unpack(self._read(address, _EXPORT.size)) if address and size >= _EXPORT.size else ()

    def imported(self, prefix: str = "") -> Iterator[tuple[str, str]]:
        """The names that it imports from DLLs whose own names begin so, each behind that of its DLL."""
        entry = struct.Struct("<Q" if self.bits == 64 else "<I")  # noqa: PLR2004 - bits
        by_number = 1 << (self.bits - 1)
        for row in self._rows(_IMPORTS, _IMPORT):
            if not row[3]:
                return
            # The look-up table; old linkers wrote the address table alone, which is the same before loading.
            at = row[0] or row[4]
            dll = self._name(row[3])
            while dll.lower().startswith(prefix):
                self._count()
                (value,) = entry.unpack(self._read(at, entry.size))
                if not value:
                    break
                if not value & by_number:
                    yield dll, self._name(value + 2)  # behind a hint, where in the DLL's table to look first
                at += entry.size

    def is_il_only(self) -> bool:
        """Whether it is a .NET assembly without machine code that does not ask for 32 bits."""
        address, size = self._tables.get(_DOTNET, (0, 0))
        if not address or size < _DOTNET_HEADER.size:
            return False
        flags = _DOTNET_HEADER.unpack(self._read(address, _DOTNET_HEADER.size))[-1]
        return bool(flags & _IL_ONLY and not flags & _NEEDS_32_BITS)

    def _rows(self, table: int, layout: struct.Struct) -> Iterator[tuple[int, ...]]:
        address, _ = self._tables.get(table, (0, 0))
        if not address:
            return
        for _ in range(_MOST_IMPORTS):
            yield layout.unpack(self._read(address, layout.size))
            address += layout.size
        raise WheelError(f"a PE file with more than {_MOST_IMPORTS} imported DLLs")

    def _read_optional(self, data: bytes) -> None:
        magic = int.from_bytes(data[:2], "little")
        if magic not in _BITS:
            raise WheelError("a PE file without the header of a program or DLL")
        self.bits = _BITS[magic]
        begin = _TABLES_AT[self.bits]
        if len(data) < begin:
            raise WheelError("a PE file with a truncated header")
        at, layout = _BASE_AT[self.bits]
        (self._base,) = struct.unpack_from(layout, data, at)
        (count,) = struct.unpack_from("<I", data, begin - 4)
        room = min(count, _MOST_TABLES, (len(data) - begin) // 8)
        self._tables = {i: struct.unpack_from("<II", data, begin + 8 * i) for i in range(room)}

    def _read(self, address: int, size: int) -> bytes:
        """Bytes by their address in memory."""
        content, start = self._section_at(address)
        data = content[address - start : address - start + size]
        if len(data) < size:
            raise WheelError(f"a table at address {address:#x} leads out of its section")
        return data

    def _section_at(self, address: int) -> tuple[bytes, int]:
        """The section that an address lies in, and its own address."""
        number = bisect.bisect_right(self._starts, address) - 1
        if number < 0 or address >= self._starts[number] + self._placed[number].size:
            raise WheelError(f"address {address:#x} lies outside of every section")
        section = self._placed[number]
        # Whole, and once: tables point to and fro, and a member of a wheel can only be read forwards.
        if section.address not in self._contents:
            room = min(section.size, _LARGEST_SECTION, max(self._view.size - section.offset, 0))
            self._held += room
            if self._held > _MOST_HELD:
                raise WheelError("a PE file whose tables take far more room than they should need")
            self._contents[section.address] = self._view.read(section.offset, room)
        return self._contents[section.address], section.address

    def _name(self, address: int) -> str:
        content, start = self._section_at(address)
        end = content.find(b"\0", address - start, address - start + _LONGEST_NAME)
        if end < 0:
            raise WheelError("a PE file with a name that does not end")
        self._count(end - (address - start))
        return content[address - start : end].decode("utf-8", "backslashreplace")

    def _count(self, text: int = 0) -> None:
        """Count a name, or a row that leads to one, and refuse more than any file has."""
        self._names += 1
        self._text += text
        if self._names > _MOST_NAMES or self._text > _MOST_TEXT:
            raise WheelError(f"a PE file with more than {_MOST_NAMES} names or {_MOST_TEXT} bytes of them")
