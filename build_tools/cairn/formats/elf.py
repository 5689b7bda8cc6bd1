"""A reader of ELF files: what the dynamic loader uses, and the sections.

Only the headers that are asked for are touched, so that a compressed library of 400 MB costs one pass.

Source: System V ABI, chapters 4 and 5; the GNU version sections as in the Linux Standard Base, part
"Symbol Versioning".
"""

from __future__ import annotations

import functools
import itertools
import struct
import sys
from array import array
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from cairn.errors import WheelError
from cairn.formats import elf_layout
from cairn.formats import view as formats_view
from cairn.formats.elf_layout import (
    EXECUTABLE,
    MAGIC,
    PT_GNU_PROPERTY,
    PT_GNU_STACK,
    PT_INTERP,
    RUNS,
    SHT_NOBITS,
    X86_64,
)
from cairn.formats.image import DEVICE, Image, Names, Section, Symbol
from cairn.formats.view import BytesView, View

__all__ = ["MAGIC", "exports", "imports", "is_elf", "read", "read_file", "read_view"]

_TYPES = {1: "relocatable", EXECUTABLE: "executable", 3: "shared", 4: "core"}
_S390 = 22
_MACHINES = {3: "i686", 21: "ppc64le", _S390: "s390x", 40: "armv7l", 62: "x86_64", 183: "aarch64"}
_MACHINES |= {224: DEVICE, 243: "riscv64", 258: "loongarch64"}
# d_tag of a dynamic entry (chapter 5; from 0x6ffffe00 on GNU's, as in glibc's elf.h).
_NEEDED, _HASH, _STRTAB, _SYMTAB, _STRSZ, _SONAME, _RPATH, _RUNPATH = 1, 4, 5, 6, 10, 14, 15, 29
_FLAGS_1, _PIE = 0x6FFFFFFB, 0x08000000  # DF_1_PIE: a program, although its type is "shared"
_VERNEED, _GNU_HASH = 0x6FFFFFFE, 0x6FFFFEF5
_RELA, _REL, _JMPREL, _VERSYM = 7, 17, 23, 0x6FFFFFF0
_TABLES = frozenset((_HASH, _STRTAB, _RELA, _REL, _JMPREL, _VERSYM, _VERNEED, _GNU_HASH))
_SYMBOL_SIZE = {32: 16, 64: 24}  # bytes of an Elf32_Sym, Elf64_Sym
_UNDEFINED = 0  # st_shndx: SHN_UNDEF
_LOCAL, _WEAK = 0, 2  # st_info >> 4: STB_LOCAL, STB_WEAK
_SEEN_OUTSIDE = (0, 3)  # st_other & 3: STV_DEFAULT, STV_PROTECTED
_VERDEF = 0x6FFFFFFC
_VERSION_INDEX = 0x7FFF  # of an entry of DT_VERSYM; the bit above is set where the version is not the default
# GNU_PROPERTY_X86_ISA_1_NEEDED, and its bits from the highest (x86-64 psABI, "Program Property"): glibc loads
# no file that asks for more than its processor has (sysdeps/x86/dl-prop.h).
_ISA_NEEDED, _LEVELS = 0xC0008002, {8: "x86-64-v4", 4: "x86-64-v3", 2: "x86-64-v2"}
_LONGEST_PROPERTIES = 1 << 16
_VERSION_WEAK = 2  # VER_FLG_WEAK: the loader goes on without that version
# Limits, as those of `elf_layout`: tables may overlap, and names may share their bytes.
_LONGEST_NAME = 1 << 20
_MOST_VERSIONS = 100_000
_MOST_NAMES = 128 << 20  # bytes of all names that are read
_MOST_STRINGS = 128 << 20  # bytes; as many as TensorFlow has, 82 MB, take 330 MB of memory
_CUT_AT_ONCE = 16 << 20  # bytes of a table of strings of which each is held: three times as much memory
_MOST_SYMBOLS = 1 << 22
_WORDS = 64  # of a chain of a hash table, which are read at once
# What a byte of a symbol says, 1 or 0 for each value it may have: a column of a table is judged at once.
_GLOBAL = bytes(value >> 4 != _LOCAL for value in range(256))  # of st_info
_STRONG = bytes(value >> 4 not in (_LOCAL, _WEAK) for value in range(256))
_VISIBLE = bytes(value & 3 in _SEEN_OUTSIDE for value in range(256))  # of st_other
_NOT_ZERO = bytes(value != 0 for value in range(256))  # of either half of st_shndx


_new = tuple.__new__  # of a named tuple: half the time of its own constructor


def is_elf(head: bytes) -> bool:
    """Whether a file with these first bytes is an ELF file."""
    return head.startswith(MAGIC)


def read(data: bytes) -> Image:
    """Read an ELF file in memory; see `read_view`."""
    return read_view(BytesView(data))


def read_file(path: Path) -> Image:
    """Read an ELF file on disk; see `read_view`."""
    with formats_view.opening(path) as view:
        return read_view(view)


def read_view(
    view: View,
    *,
    sections: bool = True,
    look_for: frozenset[str] = frozenset(),
    python: bool = False,
    symbols: bool = False,
    linkage: bool = False,
) -> Image:
    """Read an ELF file.

    Args:
        view: its bytes.
        sections: whether to read the section table too, which stands at the end.
        look_for: symbols to look for among those that it wants of other libraries.
        python: whether to look for symbols that begin as those of Python's C API do.
        symbols: whether to read every dynamic symbol; of a program only those that it wants.
        linkage: whether to read their names alone, by version, which takes half the time.

    Raises:
        WheelError: it is none, or its headers are broken.
    """
    reader = _Reader(view)
    layout = reader.layout
    kind = _TYPES.get(layout.type, str(layout.type))
    soname = next(iter(reader.strings(_SONAME)), None)
    interpreter = any(segment.kind == PT_INTERP for segment in layout.segments)
    pie = bool((layout.value(_FLAGS_1) or 0) & _PIE)
    stack = [segment for segment in layout.segments if segment.kind == PT_GNU_STACK]
    # A static program has no interpreter, and a library that can be run has a name too.
    is_program = kind == "executable" or pie or (interpreter and not soname)
    exports, imports = reader.all_symbols(defined=not is_program) if symbols else (frozenset(), frozenset())
    defines, wants = reader.linkage(defined=not is_program) if linkage or python else (None, {})
    among = {symbol.encode(): symbol for symbol in look_for}
    # Where all names have been read, they are among these.
    lists = [reader.wants(among)] if defines is None and among else wants.values()
    return Image(
        format="elf",
        machine=_MACHINES.get(layout.machine, str(layout.machine)),
        type=kind,
        interpreter=interpreter,
        is_program=is_program,
        soname=soname,
        needed=reader.strings(_NEEDED),
        rpath=reader.folders(_RPATH),
        runpath=reader.folders(_RUNPATH),
        version_needs=reader.version_needs(),
        undefined=frozenset(among[name] for names in lists for name in names.intersection(among)),
        instruction_set=reader.instruction_set(),
        refusal="" if is_program or _MACHINES.get(layout.machine) == DEVICE else layout.refusal,
        executable_stack=bool(stack and stack[-1].flags & RUNS),
        python_defined=_of_python(defines) if python else frozenset(),
        python_wanted=_of_python(wants) if python else frozenset(),
        sections=tuple(reader.sections()) if sections else (),
        exports=exports,
        imports=imports,
        defines=defines if linkage or python else {},
        wants=wants,
    )


def _of_python(names: Names | None) -> frozenset[str]:
    """The names that begin as those of Python's C API."""
    return frozenset(
        name.decode("utf-8", "backslashreplace")
        for names_of_version in (names or {}).values()
        for name in names_of_version
        if name.startswith((b"Py", b"_Py"))
    )


def imports(path: Path) -> frozenset[bytes]:
    """The symbols that an ELF file does not load without: undefined in its dynamic table, and not weak.

    Raises:
        WheelError: it is none, or its headers are broken.
    """
    with formats_view.opening(path) as view:
        return _Reader(view).wants()


def exports(path: Path, among: frozenset[bytes]) -> frozenset[bytes]:
    """The subset of `among` that an ELF file exports.

    Raises:
        WheelError: it is none, or its headers are broken.
    """
    with formats_view.opening(path) as view:
        return _Reader(view).gives(among)


def _mask(column: bytes) -> int:
    """A column of ones and zeros as a number, so that columns can be combined."""
    return int.from_bytes(column, "little")


class _Reader:
    """The dynamic entries of an ELF file and ways to follow them.

    Attributes:
        layout: where everything stands.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._names = self._versions = 0  # how much was read so far
        self.layout = elf_layout.read(view)
        self._strings_at = self.layout.place_of(_STRTAB)

    def strings(self, tag: int) -> tuple[str, ...]:
        """The strings that the dynamic entries of that tag name."""
        return tuple(self._string(value) for kind, value in self.layout.dynamic if kind == tag)

    def folders(self, tag: int) -> tuple[str, ...]:
        """The folders of a run path, which are joined by colons; none of an empty one.

        Source: glibc's elf/dl-load.c, `decompose_rpath`: an empty text is no run path, but an empty element
        of a longer one is the current folder.
        """
        return tuple(folder for text in self.strings(tag) if text for folder in text.split(":"))

    def instruction_set(self) -> str:
        """The level of x86-64 that this file asks for; empty for none beyond the first."""
        note = next((s for s in self.layout.segments if s.kind == PT_GNU_PROPERTY), None)
        if self.layout.machine != X86_64 or note is None or note.end > self._view.size:
            return ""
        data = self._view.read(note.offset, min(note.file_size, _LONGEST_PROPERTIES))
        at = 16  # behind the note's header and its name, "GNU"
        while at + 12 <= len(data):  # type, size of the data, the data, filled up to a multiple of 8 bytes
            kind, size, bits = struct.unpack_from(f"{self.layout.order}III", data, at)
            if kind == _ISA_NEEDED and size == 4:  # noqa: PLR2004 - a word
                return next((level for bit, level in _LEVELS.items() if bits & bit), "")
            at += 8 + size + -size % (self.layout.bits // 8)
        return ""

    def version_needs(self) -> dict[str, tuple[str, ...]]:
        """The symbol versions that this file needs of each library."""
        at = self.layout.place_of(_VERNEED)
        versions: dict[str, list[str]] = {}
        # A chain of Elf_Verneed: version, count, name of the library, distance to its first Elf_Vernaux and
        # to the next Elf_Verneed. To its end whatever the counts say, as in glibc (elf/dl-version.c).
        while at is not None:
            _, _, file, first, following = self.layout.unpack("HHIII", at)
            versions.setdefault(self._string(file), []).extend(self._version_names(at + first))
            at = at + following if following else None
        return {name: tuple(names) for name, names in versions.items()}

    def wants(self, among: Collection[bytes] | None = None) -> frozenset[bytes]:
        """The undefined symbols that are not weak (a file loads without weak ones), or those in `among`."""
        names: set[bytes] = set()
        length = 0
        for name in self._names_at(self._undefined(), among):
            length += len(name)
            if among is None and length > _MOST_NAMES:
                raise WheelError(f"an ELF file that wants more than {_MOST_NAMES} bytes of symbols")
            names.add(name)
        return frozenset(names)

    def gives(self, symbols: frozenset[bytes]) -> frozenset[bytes]:
        """The subset of `symbols` that this file exports."""
        places = (
            at
            for at, bind, visibility, section in self._symbols(self._listed_symbols())
            if section != _UNDEFINED and bind != _LOCAL and visibility & 3 in _SEEN_OUTSIDE
        )
        return frozenset(self._names_at(places, symbols))

    def all_symbols(self, *, defined: bool) -> tuple[frozenset[Symbol], frozenset[Symbol]]:
        """The symbols that others can bind to, and those that are wanted of others, with their versions.

        Args:
            defined: whether to read the former too.
        """
        exports: list[Symbol] = []
        imports: list[Symbol] = []
        if self.layout.value(_SYMTAB) is None:
            return frozenset(), frozenset()
        count = max(self._listed_symbols(), self._symbol_count(_SYMBOL_SIZE[self.layout.bits]))
        # One for each symbol, whatever the table of versions has.
        versions = itertools.chain(self._symbol_versions(count), itertools.repeat(0))
        names = self._version_index()
        # libtorch_cpu has 75,000, so the table is cut into its strings once; latin-1 has a character a byte.
        *strings, _ = self._strings.decode("latin-1").split("\0") if defined else ("",)
        begins = itertools.accumulate(map((1).__add__, map(len, strings)), initial=0)
        whole = dict(zip(begins, strings, strict=False))
        ascii_only = self._strings.isascii()
        for (at, bind, visibility, section), index in zip(self._symbols(count), versions, strict=False):
            if bind == _LOCAL or (section and not (defined and visibility & 3 in _SEEN_OUTSIDE)):
                continue
            name = whole.get(at)
            # It may be the end of another one (GNU ld shares them).
            if name is None or not (ascii_only or name.isascii()):
                name = self._decoded(self._strings[at : max(self._strings.find(b"\0", at), at)])
            library, version = names.get(index & _VERSION_INDEX, ("", ""))
            # A version's own name stands among the symbols, at an absolute place (GNU ld).
            if name and not (section and name == version):
                (exports if section else imports).append(
                    _new(Symbol, (name, version, library, bind == _WEAK))
                )
        return frozenset(exports), frozenset(imports)

    def linkage(self, *, defined: bool) -> tuple[Names | None, Names]:
        """The names that others can bind to, and those that this file does not load without, by version.

        The former are None where the table is too large to hold.

        Args:
            defined: whether to read the former too.
        """
        at, wide = self.layout.place_of(_SYMTAB), self.layout.wide
        if (self.layout.value(_STRSZ) or 0) > _MOST_STRINGS:
            return None, {}
        if at is None:
            return {}, {}
        size = _SYMBOL_SIZE[self.layout.bits]
        count = max(self._listed_symbols(), self._symbol_count(size))
        count = min(count, (self._view.size - at) // size)
        data = self._view.read(at, count * size)
        info, shown, low, high = (data[byte::size] for byte in ((4, 5, 6, 7) if wide else (12, 13, 14, 15)))
        inside = _mask(low.translate(_NOT_ZERO)) | _mask(high.translate(_NOT_ZERO))
        outward = _mask(info.translate(_GLOBAL)) & _mask(shown.translate(_VISIBLE)) & inside if defined else 0
        strong = _mask(info.translate(_STRONG)) & ~inside
        places = array("I", data)
        if self.layout.order != ("<" if sys.byteorder == "little" else ">"):
            places.byteswap()
        # libtorch_cpu has 75,000, so the table of strings is cut once, and no symbol is looked at by itself.
        strings = self._strings.split(b"\0") if len(self._strings) <= _CUT_AT_ONCE else ()
        begins = itertools.accumulate(map((1).__add__, map(len, strings)), initial=0)
        whole = dict(zip(begins, strings, strict=False))
        versions = self._symbol_versions(count)
        defines, wants = (
            self._names_by_version(places[:: size // 4], versions, mask.to_bytes(count, "little"), whole)
            for mask in (outward, strong)
        )
        return defines, wants

    def _names_by_version(
        self, places: Iterable[int], versions: Iterable[int], mask: bytes, whole: dict[int, bytes]
    ) -> Names:
        """The names at those of `places` that the mask leaves, each under its version."""
        chosen = list(itertools.compress(places, mask))
        # A name may be the end of another one (GNU ld shares them).
        names = [whole[at] if at in whole else self._shared_name(at) for at in chosen]
        indexes = list(itertools.compress(versions, mask))
        version_names = self._version_index() if indexes else {}
        if not version_names.keys() & {index & _VERSION_INDEX for index in set(indexes)}:
            return {"": frozenset(names)} if names else {}
        by_version: dict[str, set[bytes]] = {}
        for name, index in zip(names, indexes, strict=False):
            by_version.setdefault(version_names.get(index & _VERSION_INDEX, ("", ""))[1], set()).add(name)
        return {version: frozenset(those) for version, those in by_version.items()}

    def _shared_name(self, at: int) -> bytes:
        name = self._strings[at : max(self._strings.find(b"\0", at), at)]
        self._names += len(name)
        if self._names > _MOST_NAMES:
            raise WheelError(f"an ELF file with more than {_MOST_NAMES} bytes of names")
        return name

    def _symbol_versions(self, count: int) -> tuple[int, ...]:
        """For each dynamic symbol the index of its version."""
        at = self.layout.place_of(_VERSYM)
        return self.layout.unpack(f"{min(count, (self._view.size - at) // 2)}H", at) if at is not None else ()

    def _version_index(self) -> dict[int, tuple[str, str]]:
        """Index to library and version: of those that are defined here, the library is empty."""
        names: dict[int, tuple[str, str]] = {}
        at = self.layout.place_of(_VERDEF)
        # A chain of Elf_Verdef: version, flags, index, count, hash, distance to the first Elf_Verdaux (name,
        # next) and to the next Elf_Verdef. The one with flag 1 (VER_FLG_BASE) is the library itself.
        while at is not None:
            self._count_version()
            _, flags, index, _, _, first, following = self.layout.unpack("HHHHIII", at)
            if not flags & 1:
                names[index] = ("", self._string(self.layout.unpack("I", at + first)[0]))
            at = at + following if following else None
        at = self.layout.place_of(_VERNEED)
        while at is not None:
            _, _, file, first, following = self.layout.unpack("HHIII", at)
            place, step = at + first, 1
            while step:
                self._count_version()
                _, _, index, name, step = self.layout.unpack("IHHII", place)
                names[index & _VERSION_INDEX] = (self._string(file), self._string(name))
                place += step
            at = at + following if following else None
        return names

    def _count_version(self) -> None:
        self._versions += 1
        if self._versions > _MOST_VERSIONS:
            raise WheelError(f"an ELF file with more than {_MOST_VERSIONS} symbol versions")

    def _names_at(self, places: Iterable[int], among: Collection[bytes] | None = None) -> Iterator[bytes]:
        # Cut off at the longest one looked for: names may share their bytes, so that many can each be as long
        # as the whole table.
        longest = max(map(len, among), default=0) + 1 if among is not None else _LONGEST_NAME
        for at in places:
            end = self._strings.find(b"\0", at, at + longest)
            name = self._strings[at : end if end >= 0 else at + longest]
            if among is None or name in among:
                yield name

    def _undefined(self) -> Iterator[int]:
        """Offsets, in the string table, of the names of undefined symbols that are not weak."""
        if self.layout.value(_SYMTAB) is None:
            return
        for at, bind, _, section in self._symbols(self._symbol_count(_SYMBOL_SIZE[self.layout.bits])):
            if section == _UNDEFINED and bind not in (_LOCAL, _WEAK):
                yield at

    def _symbols(self, count: int) -> Iterator[tuple[int, int, int, int]]:
        """Name, binding, visibility and section of the first symbols of the dynamic table."""
        at = self.layout.place_of(_SYMTAB)
        if at is None:
            return
        # The same fields in a different order.
        wide = self.layout.wide
        layout, info, visibility, section = ("IBBHQQ", 1, 2, 3) if wide else ("IIIBBH", 3, 4, 5)
        entry = struct.Struct(self.layout.order + layout)
        count = min(count, (self._view.size - at) // entry.size)
        for fields in entry.iter_unpack(self._view.read(at, count * entry.size)):
            yield fields[0], fields[info] >> 4, fields[visibility], fields[section]

    def _listed_symbols(self) -> int:
        """The number of symbols up to the last one in the hash table."""
        unpack, place_of = self.layout.unpack, self.layout.place_of
        chains, gnu_hash = place_of(_HASH), place_of(_GNU_HASH)
        if gnu_hash is None:
            count = unpack("II", chains)[1] if chains is not None else 0
        else:
            # Four words, a Bloom filter of addresses, a word a bucket with the first symbol of its chain,
            # then a word for each symbol from the first one listed, of which the last in a chain is odd. It
            # has no specification: glibc, elf/dl-lookup.c.
            buckets, first, filters, _ = unpack("IIII", gnu_hash)
            if max(buckets, filters) > _MOST_SYMBOLS:
                raise WheelError(f"an ELF file with a hash table of {buckets} buckets")
            at = gnu_hash + 16 + filters * self.layout.bits // 8
            last = max(unpack(f"{buckets}I", at), default=0)
            at += 4 * buckets
            while first <= last <= _MOST_SYMBOLS:
                place = at + 4 * (last - first)
                words = unpack(f"{max(min((self._view.size - place) // 4, _WORDS), 1)}I", place)
                ends = next((number for number, word in enumerate(words) if word & 1), None)
                last += len(words) if ends is None else ends
                if ends is not None:
                    break
            count = last + 1 if last >= first else 0
        if count > _MOST_SYMBOLS:
            raise WheelError(f"an ELF file of {count} dynamic symbols")
        return count

    def _symbol_count(self, size: int) -> int:
        """The number of dynamic symbols, or at least of the undefined ones.

        No entry says it. In DT_GNU_HASH the undefined ones stand before those that it lists; DT_HASH has a
        chain for each. Where neither helps, the symbols end at the next table: mostly that of strings, as
        glibc takes it too (elf/dl-addr.c), unless patchelf has moved it.
        """
        chains, gnu_hash = self.layout.place_of(_HASH), self.layout.place_of(_GNU_HASH)
        count = self.layout.unpack("II", gnu_hash)[1] if gnu_hash is not None else 0
        if count <= 1:  # GNU ld writes 1 where nothing is listed, however many are undefined (bfd/elflink.c)
            count = 0
        if not count and chains is not None:
            wide = self.layout.machine == _S390 and self.layout.wide
            count = self.layout.unpack("QQ" if wide else "II", chains)[1]
        if count > _MOST_SYMBOLS:
            raise WheelError(f"an ELF file of {count} dynamic symbols")
        begin = self.layout.value(_SYMTAB) or 0
        behind = [place for kind, place in self.layout.dynamic if kind in _TABLES and place > begin]
        return count or min((min(behind, default=begin) - begin) // size, _MOST_SYMBOLS)

    def sections(self) -> Iterator[Section]:
        """The section table."""
        for name, section in self.layout.named_sections():
            size = 0 if section.kind == SHT_NOBITS else section.size
            yield Section(name=self._decoded(name), offset=section.offset, size=size)

    def _version_names(self, at: int) -> Iterator[str]:
        following = 1
        while following:
            self._count_version()
            # Elf_Vernaux: hash, flags, other (the index in DT_VERSYM), name, distance to the next.
            _, flags, _, name, following = self.layout.unpack("IHHII", at)
            if not flags & _VERSION_WEAK:
                yield self._string(name)
            at += following

    @functools.cached_property
    def _strings(self) -> bytes:
        """The dynamic string table; empty where there is none, or one too large to hold."""
        size = self.layout.value(_STRSZ) or 0
        if self._strings_at is None or size > _MOST_STRINGS:
            return b""
        return self._view.read(self._strings_at, size)

    def _string(self, offset: int) -> str:
        if self._strings_at is None:
            raise WheelError("an ELF file with dynamic entries but no string table")
        end = self._strings.find(b"\0", offset)
        if end < 0:  # the loader does not care how large the table is said to be
            return self._decoded(self.layout.text(self._strings_at + offset))
        return self._decoded(self._strings[offset:end])

    def _decoded(self, name: bytes) -> str:
        self._names += len(name)
        if self._names > _MOST_NAMES:
            raise WheelError(f"an ELF file with more than {_MOST_NAMES} bytes of names")
        return name.decode("utf-8", "backslashreplace")
