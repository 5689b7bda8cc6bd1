"""What the dynamic loader reads of an ELF file, and its sections, by a struct reader of our own.

Only the headers that are asked for are touched, so that a compressed library of 400 MB costs one pass.

Source: System V ABI, chapters 4 and 5; the GNU version sections as in the Linux Standard Base, part
"Symbol Versioning".
"""

from __future__ import annotations

import functools
import mmap
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cairn.errors import WheelError
from cairn.formats.view import BytesView, View

MAGIC = b"\x7fELF"
# e_ident[EI_CLASS] at byte 4, e_ident[EI_DATA] at byte 5, e_type, e_machine (chapter 4, "ELF Header").
_BITS = {1: 32, 2: 64}
_ORDERS = {1: "<", 2: ">"}
_TYPES = {1: "relocatable", 2: "executable", 3: "shared", 4: "core"}
_S390 = 22
_MACHINES = {3: "i686", 21: "ppc64le", _S390: "s390x", 40: "armv7l", 62: "x86_64", 183: "aarch64"}
_MACHINES |= {224: "amdgpu", 243: "riscv64", 258: "loongarch64"}
# p_type of a segment and d_tag of a dynamic entry (chapter 5; from 0x6ffffe00 on GNU's, as in glibc's elf.h).
_PT_LOAD, _PT_DYNAMIC, _PT_INTERP, _PT_GNU_STACK = 1, 2, 3, 0x6474E551
_RUNS = 1  # p_flags: PF_X
_NEEDED, _STRTAB, _STRSZ, _SONAME, _RPATH, _RUNPATH = 1, 5, 10, 14, 15, 29
_HASH, _SYMTAB = 4, 6
_FLAGS_1, _PIE = 0x6FFFFFFB, 0x08000000  # DF_1_PIE: a program, although its type is "shared"
_VERNEED, _GNU_HASH = 0x6FFFFFFE, 0x6FFFFEF5
_RELA, _REL, _JMPREL, _VERSYM = 7, 17, 23, 0x6FFFFFF0
_TABLES = frozenset((_HASH, _STRTAB, _RELA, _REL, _JMPREL, _VERSYM, _VERNEED, _GNU_HASH))
_SYMBOL_SIZE = {32: 16, 64: 24}  # bytes of an Elf32_Sym, Elf64_Sym
_UNDEFINED = 0  # st_shndx: SHN_UNDEF
_LOCAL, _WEAK = 0, 2  # st_info >> 4: STB_LOCAL, STB_WEAK
_SEEN_OUTSIDE = (0, 3)  # st_other & 3: STV_DEFAULT, STV_PROTECTED
_VERSION_WEAK = 2  # VER_FLG_WEAK: the loader goes on without that version
_NOBITS = 8  # SHT_NOBITS: a section such as .bss, which takes room in memory alone
# Limits. What is real stays far below; what is above would cost time or memory out of proportion to the file,
# since tables may overlap and names may share their bytes.
_LONGEST_NAME = 1 << 20  # run paths made by bazel are longer than any path may be
_MOST_SECTIONS = 200_000
_MOST_DYNAMIC = 1 << 20  # bytes
_MOST_VERSIONS = 100_000
_MOST_NAMES = 64 << 20  # bytes of all names that are read
_MOST_STRINGS = 64 << 20  # bytes
_MOST_SYMBOLS = 1 << 22
_LONGEST_OF_PYTHON = 512
_FIRST_STEP = 256  # bytes read at first of a name whose end is not known


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section.

    Attributes:
        name: its name.
        offset: where it begins in the file.
        size: its bytes in the file; 0 where it takes room in memory alone.
    """

    name: str
    offset: int
    size: int


@dataclass(frozen=True, kw_only=True)
class Elf:
    """An ELF file.

    Attributes:
        bits: 32 or 64.
        machine: as platform tags have it (`x86_64`), `amdgpu`, or the bare number.
        type: `shared`, `executable` (also when position independent: `shared`), `relocatable` or `core`.
        soname: the name that others find it by, or None.
        needed: the libraries it needs, in order.
        rpath: folders of DT_RPATH.
        runpath: folders of DT_RUNPATH.
        version_needs: library to the symbol versions wanted of it.
        wants: those of the symbols looked for that it does not load without: undefined, and not weak.
        interpreter: whether it names a dynamic loader, as programs do and libraries do not.
        pie: whether it says that it is a program, although it can be loaded anywhere as a library can.
        executable_stack: whether it asks for a stack that code can be run from.
        python_defined: the symbols that begin as Python's do and that it has for others, when asked for.
        python_wanted: those that it does not load without.
        sections: all sections, when they were asked for.
    """

    bits: int
    machine: str
    type: str
    soname: str | None = None
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    version_needs: Mapping[str, tuple[str, ...]]
    wants: frozenset[str] = frozenset()
    interpreter: bool = False
    pie: bool = False
    executable_stack: bool = False
    python_defined: frozenset[str] = frozenset()
    python_wanted: frozenset[str] = frozenset()
    sections: tuple[Section, ...] = ()

    @property
    def is_program(self) -> bool:
        """Whether it is run, not loaded: a static program has no interpreter."""
        return self.type == "executable" or self.pie or (self.interpreter and not self.soname)

    def section(self, name: str) -> Section | None:
        """The first section of that name."""
        return next((section for section in self.sections if section.name == name), None)


def is_elf(head: bytes) -> bool:
    """Whether a file that begins so is an ELF file."""
    return head.startswith(MAGIC)


def read(data: bytes | mmap.mmap) -> Elf:
    """Read an ELF file in memory.

    Raises:
        WheelError: it is none, or its headers are broken.
    """
    return read_view(BytesView(data))


def read_file(path: Path) -> Elf:
    """Read an ELF file on disk; see `read`."""
    if not path.stat().st_size:
        raise WheelError(f"{path} is empty")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return read(data)


def read_view(
    view: View, *, sections: bool = True, look_for: frozenset[str] = frozenset(), python: bool = False
) -> Elf:
    """Read an ELF file.

    Args:
        view: its bytes.
        sections: whether to read the section table too, which stands at the end.
        look_for: symbols to look for among those that it wants of other libraries.
        python: whether to look for symbols that begin as those of Python's C API do.

    Raises:
        WheelError: it is none, or its headers are broken.
    """
    image = _Image(view)
    defined, undefined = image.python_symbols() if python else (frozenset(), frozenset())
    return Elf(
        bits=image.bits,
        machine=_MACHINES.get(image.machine, str(image.machine)),
        type=_TYPES.get(image.type, str(image.type)),
        soname=next(iter(image.strings(_SONAME)), None),
        needed=image.strings(_NEEDED),
        rpath=image.folders(_RPATH),
        runpath=image.folders(_RUNPATH),
        version_needs=image.version_needs(),
        wants=image.wanted(look_for) if look_for else frozenset(),
        interpreter=image.interpreter,
        pie=image.pie,
        executable_stack=image.executable_stack,
        python_defined=defined,
        python_wanted=undefined,
        sections=tuple(image.sections()) if sections else (),
    )


def imports(path: Path) -> frozenset[bytes]:
    """The symbols that an ELF file does not load without: undefined in its dynamic table, and not weak.

    Raises:
        WheelError: it is none, or its headers are broken.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return _Image(BytesView(data)).wants()


def exports(path: Path, among: frozenset[bytes]) -> frozenset[bytes]:
    """Those of some symbols that an ELF file defines for others.

    Raises:
        WheelError: it is none, or its headers are broken.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return _Image(BytesView(data)).gives(among)


class _Image:
    """The headers of an ELF file and ways to follow them."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._names = self._versions = 0  # how much was read so far
        ident = view.read(0, min(16, view.size))
        if not is_elf(ident) or len(ident) < 16:  # noqa: PLR2004 - e_ident
            raise WheelError("not an ELF file")
        if ident[4] not in _BITS or ident[5] not in _ORDERS:
            raise WheelError("an ELF file of unknown class or byte order")
        self.bits, self._order = _BITS[ident[4]], _ORDERS[ident[5]]
        wide = self.bits == 64  # noqa: PLR2004 - bits
        # Elf64_Ehdr and Elf32_Ehdr differ in the width of e_entry, e_phoff and e_shoff alone.
        self._word = word = "Q" if wide else "I"
        fields = self._unpack(f"HHI{word}{word}{word}IHHHHHH", 16)
        self.type, self.machine = fields[0], fields[1]
        self._segments_at, self._sections_at = fields[4], fields[5]
        self._segment_size, self._segment_count = fields[8], fields[9]
        self._section_size, self._section_count, self._names_index = fields[10:]
        # Headers of a size that they do not have: loaders refuse them (glibc: e_phentsize), tools skip them.
        segment, section = (56, 64) if wide else (32, 40)
        odd = self._segment_count and self._segment_size != segment
        if odd or (self._sections_at and self._section_size != section):
            raise WheelError("an ELF file whose headers have an impossible size")
        self._loads: list[tuple[int, int, int]] = []
        self._dynamic: tuple[tuple[int, int], ...] = ()
        self.interpreter = self.executable_stack = False
        self._read_segments()
        self._strings_at = self._address(_STRTAB)
        self.pie = bool((self._value(_FLAGS_1) or 0) & _PIE)

    def strings(self, tag: int) -> tuple[str, ...]:
        """The strings that the dynamic entries of that tag name."""
        return tuple(self._string(value) for kind, value in self._dynamic if kind == tag)

    def folders(self, tag: int) -> tuple[str, ...]:
        """The folders of a run path, which are joined by colons."""
        return tuple(folder for text in self.strings(tag) for folder in text.split(":"))

    def version_needs(self) -> dict[str, tuple[str, ...]]:
        """The symbol versions wanted of each library."""
        at = self._address(_VERNEED)
        versions: dict[str, tuple[str, ...]] = {}
        # A chain of Elf_Verneed: version, count, name of the library, distance to its first Elf_Vernaux and
        # to the next Elf_Verneed. To its end whatever the counts say, as in glibc (elf/dl-version.c).
        while at is not None:
            _, _, file, first, following = self._unpack("HHIII", at)
            name = self._string(file)
            versions[name] = (*versions.get(name, ()), *self._version_names(at + first))
            at = at + following if following else None
        return versions

    def wanted(self, symbols: frozenset[str]) -> frozenset[str]:
        """Those of the symbols that are undefined here and not weak: without a weak one it loads too."""
        names = {symbol.encode(): symbol for symbol in symbols}
        return frozenset(names[name] for name in self._names_at(self._undefined(), among=names.keys()))

    def wants(self) -> frozenset[bytes]:
        """Every symbol that is undefined here and not weak."""
        names: set[bytes] = set()
        length = 0
        for name in self._names_at(self._undefined()):
            length += len(name)
            if length > _MOST_NAMES:
                raise WheelError(f"an ELF file that wants more than {_MOST_NAMES} bytes of symbols")
            names.add(name)
        return frozenset(names)

    def gives(self, symbols: frozenset[bytes]) -> frozenset[bytes]:
        """Those of the symbols that are defined here, and that others may use."""
        places = (
            at
            for at, bind, other, section in self._symbols(self._listed_symbols())
            if section != _UNDEFINED and bind != _LOCAL and other & 3 in _SEEN_OUTSIDE
        )
        return frozenset(self._names_at(places, among=symbols))

    def python_symbols(self) -> tuple[frozenset[str], frozenset[str]]:
        """The symbols of Python's C API, by how their names begin: those defined here, and those wanted."""
        symbols: dict[bool, set[str]] = {True: set(), False: set()}
        if self._value(_SYMTAB) is not None:
            count = max(self._listed_symbols(), self._symbol_count(_SYMBOL_SIZE[self.bits]))
            for at, bind, _, section in self._symbols(count):
                defined = section != _UNDEFINED
                counts = bind != _LOCAL and (defined or bind != _WEAK)
                if counts and self._strings.startswith((b"Py", b"_Py"), at):
                    name = self._strings[at : at + _LONGEST_OF_PYTHON].partition(b"\0")[0]
                    symbols[defined].add(self._decoded(name))
        return frozenset(symbols[True]), frozenset(symbols[False])

    def _names_at(self, places: Iterable[int], among: Collection[bytes] | None = None) -> Iterator[bytes]:
        # Cut off at the longest one looked for: names may share their bytes, so that many can each be as long
        # as the whole table.
        longest = max(map(len, among), default=0) + 1 if among is not None else _LONGEST_NAME
        for at in places:
            name = self._strings[at : at + longest].partition(b"\0")[0]
            if among is None or name in among:
                yield name

    def _undefined(self) -> Iterator[int]:
        """Where in the string table the names of symbols begin that are undefined and not weak."""
        if self._value(_SYMTAB) is None:
            return
        for at, bind, _, section in self._symbols(self._symbol_count(_SYMBOL_SIZE[self.bits])):
            if section == _UNDEFINED and bind not in (_LOCAL, _WEAK):
                yield at

    def _symbols(self, count: int) -> Iterator[tuple[int, int, int, int]]:
        """Name, binding, visibility and section of the first symbols of the dynamic table."""
        at = self._address(_SYMTAB)
        if at is None:
            return
        # The same fields in a different order.
        wide = self.bits == 64  # noqa: PLR2004 - bits
        layout, info, other, section = ("IBBHQQ", 1, 2, 3) if wide else ("IIIBBH", 3, 4, 5)
        entry = struct.Struct(self._order + layout)
        count = min(count, (self._view.size - at) // entry.size)
        for fields in entry.iter_unpack(self._view.read(at, count * entry.size)):
            yield fields[0], fields[info] >> 4, fields[other], fields[section]

    def _listed_symbols(self) -> int:
        """How many symbols there are up to the last one that others find by its name's hash."""
        chains, listed = self._address(_HASH), self._address(_GNU_HASH)
        if listed is None:
            count = self._unpack("II", chains)[1] if chains is not None else 0
        else:
            # Four words, a Bloom filter of addresses, a word a bucket with the first symbol of its chain,
            # then a word for each symbol from the first one listed, of which the last in a chain is odd. It
            # has no specification: glibc, elf/dl-lookup.c.
            buckets, first, filters, _ = self._unpack("IIII", listed)
            if max(buckets, filters) > _MOST_SYMBOLS:
                raise WheelError(f"an ELF file with a hash table of {buckets} buckets")
            at = listed + 16 + filters * self.bits // 8
            last = max(self._unpack(f"{buckets}I", at), default=0)
            at += 4 * buckets
            while first <= last <= _MOST_SYMBOLS and not self._unpack("I", at + 4 * (last - first))[0] & 1:
                last += 1
            count = last + 1 if last >= first else 0
        if count > _MOST_SYMBOLS:
            raise WheelError(f"an ELF file of {count} dynamic symbols")
        return count

    def _symbol_count(self, size: int) -> int:
        """How many symbols the dynamic table has, or at least those that are undefined.

        No entry says it. In DT_GNU_HASH the undefined ones stand before those that it lists; DT_HASH has a
        chain for each. Where neither helps, the symbols end at the next table: mostly that of strings, as
        glibc takes it too (elf/dl-addr.c), unless patchelf has moved it.
        """
        chains, listed = self._address(_HASH), self._address(_GNU_HASH)
        count = self._unpack("II", listed)[1] if listed is not None else 0
        if count <= 1:  # GNU ld writes 1 where nothing is listed, however many are undefined (bfd/elflink.c)
            count = 0
        if not count and chains is not None:
            wide = self.machine == _S390 and self.bits == 64  # noqa: PLR2004 - bits
            count = self._unpack("QQ" if wide else "II", chains)[1]
        if count > _MOST_SYMBOLS:
            raise WheelError(f"an ELF file of {count} dynamic symbols")
        begin = dict(self._dynamic)[_SYMTAB]
        behind = [place for kind, place in self._dynamic if kind in _TABLES and place > begin]
        return count or min((min(behind, default=begin) - begin) // size, _MOST_SYMBOLS)

    def sections(self) -> Iterator[Section]:
        """The section table."""
        if not self._sections_at:
            return
        table = list(self._section_headers())
        if not 0 < self._names_index < len(table):
            return
        names = table[self._names_index][4]
        for name, kind, _, _, offset, size, *_ in table:
            yield Section(
                name=self._c_string(names + name), offset=offset, size=0 if kind == _NOBITS else size
            )

    def _section_headers(self) -> Iterator[tuple[int, ...]]:
        # sh_name, sh_type, sh_flags, sh_addr, sh_offset, sh_size, sh_link, sh_info, sh_addralign, sh_entsize.
        layout = f"II{self._word * 4}II{self._word * 2}"
        # From SHN_LORESERVE (0xff00) sections on e_shnum is 0, and the first header's sh_size has the number.
        count = self._section_count or self._unpack(layout, self._sections_at)[5]
        if count > _MOST_SECTIONS:
            raise WheelError(f"an ELF file of {count} sections")
        for index in range(count):
            yield self._unpack(layout, self._sections_at + index * self._section_size)

    def _read_segments(self) -> None:
        wide = self.bits == 64  # noqa: PLR2004 - bits
        # Type, offset, virtual address, physical address, size in the file, size in memory, alignment; flags
        # are the second field of Elf64_Phdr and the last but one of Elf32_Phdr.
        layout = "IIQQQQQQ" if wide else "IIIIIIII"
        for index in range(self._segment_count):
            fields = self._unpack(layout, self._segments_at + index * self._segment_size)
            kind = fields[0]
            offset, address, _, size = fields[2:6] if wide else fields[1:5]
            if kind == _PT_LOAD:
                self._loads.append((address, offset, size))
            elif kind == _PT_DYNAMIC:
                self._dynamic = tuple(self._dynamic_entries(offset, size))
            elif kind == _PT_INTERP:
                self.interpreter = True
            elif kind == _PT_GNU_STACK:
                self.executable_stack = bool(fields[1 if wide else 6] & _RUNS)

    def _dynamic_entries(self, offset: int, size: int) -> Iterator[tuple[int, int]]:
        if size > _MOST_DYNAMIC:
            raise WheelError(f"an ELF file with {size} bytes of dynamic section")
        entry = struct.Struct(f"{self._order}{self._word * 2}")
        data = self._view.read(offset, size - size % entry.size)
        for tag, value in entry.iter_unpack(data):
            if not tag:  # DT_NULL ends the array, whatever its segment's size
                return
            yield tag, value

    def _value(self, tag: int) -> int | None:
        """What the first dynamic entry of that tag holds."""
        return next((value for kind, value in self._dynamic if kind == tag), None)

    def _address(self, tag: int) -> int | None:
        """Where in the file the address lies that the entry of that tag holds.

        Dynamic entries hold addresses in memory; the PT_LOAD segments say which bytes of the file go there.
        """
        address = self._value(tag)
        if address is None:
            return None
        for start, offset, size in self._loads:
            if start <= address < start + size:
                return offset + address - start
        raise WheelError(f"dynamic entry {tag:#x} points outside of every segment")

    def _version_names(self, at: int) -> Iterator[str]:
        following = 1
        while following:
            self._versions += 1
            if self._versions > _MOST_VERSIONS:
                raise WheelError(f"an ELF file that wants more than {_MOST_VERSIONS} symbol versions")
            # Elf_Vernaux: hash, flags, other (the index in DT_VERSYM), name, distance to the next.
            _, flags, _, name, following = self._unpack("IHHII", at)
            if not flags & _VERSION_WEAK:
                yield self._string(name)
            at += following

    @functools.cached_property
    def _strings(self) -> bytes:
        """The dynamic string table; empty where there is none, or one too large to hold."""
        size = self._value(_STRSZ) or 0
        if self._strings_at is None or size > _MOST_STRINGS:
            return b""
        return self._view.read(self._strings_at, size)

    def _string(self, offset: int) -> str:
        if self._strings_at is None:
            raise WheelError("an ELF file with dynamic entries but no string table")
        end = self._strings.find(b"\0", offset)
        if end < 0:  # the loader does not care how large the table is said to be
            return self._c_string(self._strings_at + offset)
        return self._decoded(self._strings[offset:end])

    def _c_string(self, at: int) -> str:
        text = b""
        step = _FIRST_STEP
        while len(text) < _LONGEST_NAME:
            part = self._view.read(at, min(step, max(self._view.size - at, 1)))
            head, end, _ = part.partition(b"\0")
            text += head
            if end:
                return self._decoded(text)
            at += len(part)
            step *= 2
        raise WheelError("an ELF file with a name that does not end")

    def _decoded(self, name: bytes) -> str:
        self._names += len(name)
        if self._names > _MOST_NAMES:
            raise WheelError(f"an ELF file with more than {_MOST_NAMES} bytes of names")
        return name.decode("utf-8", "backslashreplace")

    def _unpack(self, layout: str, offset: int) -> tuple[int, ...]:
        layout = self._order + layout
        return struct.unpack(layout, self._view.read(offset, struct.calcsize(layout)))
