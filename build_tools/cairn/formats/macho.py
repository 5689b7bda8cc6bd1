"""A reader of Mach-O files: what the loader of macOS uses.

macholib, the reader in Python that is used most, holds the content of every section in memory and goes to and
fro in the file, which a member of a wheel can only be unpacked for again and again.

Source: Apple's `mach-o/loader.h`, `mach-o/fat.h` and `mach-o/nlist.h`, and the man page dyld(1).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator

from cairn.errors import WheelError
from cairn.formats.image import Image, Section, Symbol
from cairn.formats.view import HELD, View

_THIN = {b"\xcf\xfa\xed\xfe": ("<", 64), b"\xce\xfa\xed\xfe": ("<", 32)}
_THIN |= {b"\xfe\xed\xfa\xcf": (">", 64), b"\xfe\xed\xfa\xce": (">", 32)}  # of PowerPC
_FAT = {b"\xca\xfe\xba\xbe": 32, b"\xca\xfe\xba\xbf": 64}
_FAT_ARCHES = {32: struct.Struct(">IIIII"), 64: struct.Struct(">IIQQII")}  # CPU, its kind, offset, size, …
# CPU_TYPE_*, as platform tags of macOS have them.
_MACHINES = {7: "i386", 0x01000007: "x86_64", 12: "arm", 0x0100000C: "arm64", 18: "ppc", 0x01000012: "ppc64"}
_ARM64 = 0x0100000C
_PROGRAM = 2
_TYPES = {1: "object", _PROGRAM: "program", 6: "library", 8: "bundle", 9: "stub", 10: "symbols"}
# LC_*: what begins with LC_REQ_DYLD in Apple's header has bit 31 set.
_LOAD, _LOAD_WEAK, _REEXPORT, _LAZY, _UPWARD = 0xC, 0x80000018, 0x8000001F, 0x20, 0x80000023
_ID, _RPATH, _SYMTAB = 0xD, 0x8000001C, 0x2
_SEGMENT, _SEGMENT_SIZE, _SECTION = 0x19, 72, "16s16sQQI28x"  # LC_SEGMENT_64, and a section_64 behind it
_VERSION_MIN, _BUILD_VERSION = 0x24, 0x32
_MACOS = 1  # PLATFORM_MACOS
_SYSTEMS = {_MACOS: "macOS", 2: "iOS", 6: "Mac Catalyst", 7: "the simulator of iOS"}
_SIGNATURE = 0x1D
# cs_blobs.h of XNU: an index of blobs; one has the hashes of pages. All numbers are big-endian.
_BLOBS, _CODE_DIRECTORY = b"\xfa\xde\x0c\xc0", b"\xfa\xde\x0c\x02"
_DIRECTORY = struct.Struct(">16x5I4B")  # …, place of hashes, _, _, their number, end, size, kind, _, page
_HASHES = {1: "sha1", 2: "sha256", 3: "sha256", 4: "sha384"}
_PAGES = range(12, 17)  # as powers of two
_AT_SIGNATURE = 16  # bytes of a linkedit_data_command
_STAB, _PRIVATE, _DEFINED_ELSEWHERE, _EXTERNAL, _TYPE = 0xE0, 0x10, 0, 0x01, 0x0E  # bits of n_type
_WEAK_REFERENCE = 0x40  # of n_desc: the loader goes on without it
_WEAK_DEFINITION = 0x80
# Limits, as those of `elf`.
_MOST_BLOBS = 16  # of a signature; there are five kinds of directories of hashes, and as many of other parts
_MOST_SLICES = 32  # a class file of Java begins as a fat file does, and has its version here: 45 and above
_MOST_COMMANDS = 16 << 20  # bytes
_MOST_SYMBOLS = 1 << 22
_MOST_STRINGS = 256 << 20  # bytes
_LONGEST_SYMBOL = 1 << 14  # templates of C++ have long names
_MOST_NAMES = 256 << 20  # bytes of all names that are read, which may share theirs


def is_macho(head: bytes) -> bool:
    """Whether a file with these first bytes (8 are enough) is a Mach-O file."""
    if head[:4] in _THIN:
        return True
    return head[:4] in _FAT and 0 < int.from_bytes(head[4:8], "big") <= _MOST_SLICES


def read_view(view: View, *, python: bool = False, symbols: bool = False) -> tuple[Image, ...]:
    """Read a Mach-O file: one for each machine that it is for.

    Args:
        view: its bytes.
        python: whether to look for symbols of Python's, in the table that stands at the end.
        symbols: whether to read every symbol of that table that others can bind to, or that it wants of them.

    Raises:
        WheelError: it is none, or its headers are broken.
    """
    magic = view.read(0, min(4, view.size))
    if magic in _THIN:
        return (_read(view, 0, view.size, python=python, symbols=symbols),)
    if magic not in _FAT:
        raise WheelError("not a Mach-O file")
    (count,) = struct.unpack(">I", view.read(4, 4))
    if not 0 < count <= _MOST_SLICES:
        raise WheelError(f"a universal Mach-O file for {count} machines")
    row = _FAT_ARCHES[_FAT[magic]]
    slices = sorted(fields[2:4] for fields in row.iter_unpack(view.read(8, count * row.size)))
    return tuple(_read(view, at, size, python=python, symbols=symbols) for at, size in slices)


def _read(view: View, begin: int, size: int, *, python: bool, symbols: bool) -> Image:
    """The part of a file that is for one machine."""
    magic = view.read(begin, 4)
    if magic not in _THIN:
        raise WheelError("a universal Mach-O file with a part that is none")
    order, bits = _THIN[magic]
    # mach_header: CPU and its kind, type, number and size of the load commands, flags; 64 bits add a word.
    cpu, _, kind, count, length, _ = struct.unpack(f"{order}6I", view.read(begin + 4, 24))
    at = 28 if bits == 32 else 32  # noqa: PLR2004 - bits
    if length > min(_MOST_COMMANDS, size - at):
        raise WheelError(f"a Mach-O file with {length} bytes of load commands")
    commands = list(_commands(view.read(begin + at, length), count, order))
    names: dict[int, list[str]] = {}
    for command, data in commands:
        if command in (_LOAD, _REEXPORT, _LAZY, _UPWARD, _ID, _RPATH):
            names.setdefault(command, []).append(_string(data, order))
    by_place: dict[bool, set[Symbol]] = {True: set(), False: set()}
    tables = [data for command, data in commands if command == _SYMTAB]
    if len(tables) > 1 or any(len(data) < 24 for data in tables):  # noqa: PLR2004 - symtab_command
        raise WheelError("a Mach-O file with a broken symbol table, or several")
    for data in tables if python or symbols else ():
        table = struct.unpack_from(f"{order}4I", data, 8)
        prefixes = (b"_",) if symbols else (b"_Py", b"__Py")
        for symbol, defined in _symbols(view, begin, table, f"{order}{bits}", prefixes):
            by_place[defined].add(symbol)
    of_python = {
        defined: frozenset(symbol.name for symbol in symbols_of_kind if symbol.name.startswith(("Py", "_Py")))
        for defined, symbols_of_kind in by_place.items()
    }
    is_signed = cpu == _ARM64 and any(command == _SIGNATURE for command, _ in commands)
    is_read = is_signed and not symbols and begin + size <= HELD
    changed = _changed(view, begin, commands, order) if is_read else None
    needed = [name for command in (_LOAD, _REEXPORT, _LAZY, _UPWARD) for name in names.get(command, ())]
    return Image(
        format="macho",
        machine=_MACHINES.get(cpu, str(cpu)),
        type=_TYPES.get(kind, str(kind)),
        is_program=kind == _PROGRAM,
        soname=next(iter(names.get(_ID, ())), None),
        needed=tuple(dict.fromkeys(needed)),
        rpath=tuple(names.get(_RPATH, ())),
        minimum_macos=_minimum(commands, order),
        systems=(systems := frozenset(_systems(commands, order))),
        refusal=_refusal(kind, cpu, {number for number, _ in commands}, systems) or (changed or ""),
        is_signature_unread=is_signed and changed is None,
        python_defined=of_python[True] if python else frozenset(),
        python_wanted=of_python[False] if python else frozenset(),
        exports=frozenset(by_place[True] if symbols else ()),
        imports=frozenset(by_place[False] if symbols else ()),
        sections=tuple(
            Section(name=name.rstrip(b"\0").decode("utf-8", "backslashreplace"), offset=begin + at, size=size)
            for command, data in commands
            for name, _, _, size, at in _sections_of(command, data, order)
        ),
    )


def _sections_of(command: int, data: bytes, order: str) -> Iterator[tuple[bytes, bytes, int, int, int]]:
    """The sections of a segment of 64 bits: name, segment, address, size, offset."""
    row = struct.Struct(f"{order}{_SECTION}")
    rows = data[_SEGMENT_SIZE:] if command == _SEGMENT else b""
    return row.iter_unpack(rows[: len(rows) // row.size * row.size])


def _commands(data: bytes, count: int, order: str) -> Iterator[tuple[int, bytes]]:
    at = 0
    for _ in range(count):
        if at + 8 > len(data):
            raise WheelError("a Mach-O file whose load commands are cut off")
        command, size = struct.unpack_from(f"{order}II", data, at)
        if size < 8 or at + size > len(data):  # noqa: PLR2004 - load_command
            raise WheelError(f"a Mach-O file with a load command of {size} bytes")
        yield command, data[at : at + size]
        at += size


def _string(data: bytes, order: str) -> str:
    """The string whose offset is the first field of a load command."""
    if len(data) < 12:  # noqa: PLR2004 - rpath_command, the shortest
        raise WheelError("a Mach-O file with a load command that is cut off")
    (at,) = struct.unpack_from(f"{order}I", data, 8)
    return data[at:].partition(b"\0")[0].decode("utf-8", "backslashreplace")


def _systems(commands: list[tuple[int, bytes]], order: str) -> Iterator[str]:
    for command, data in commands:
        if command == _BUILD_VERSION and len(data) >= 12:  # noqa: PLR2004 - with its platform
            (platform,) = struct.unpack_from(f"{order}I", data, 8)
            yield _SYSTEMS.get(platform, f"platform {platform}")


def _refusal(kind: int, cpu: int, commands: set[int], systems: frozenset[str]) -> str:
    """Why dyld, or the kernel on Apple silicon, takes no such library; empty where nothing is known."""
    if kind == _PROGRAM:
        return "it is a program, which cannot be loaded into another"
    loaded = _TYPES.get(kind) in ("library", "bundle") and "macOS" in systems
    unsigned = loaded and _MACHINES.get(cpu) == "arm64" and _SIGNATURE not in commands
    return "it has no signature, without which Apple silicon runs no code" if unsigned else ""


def _changed(view: View, begin: int, commands: list[tuple[int, bytes]], order: str) -> str | None:
    """Why the kernel of Apple silicon ends the process that runs it; None where no page was compared."""
    signatures = [data for command, data in commands if command == _SIGNATURE and len(data) >= _AT_SIGNATURE]
    if len(signatures) > 1:
        return f"it has {len(signatures)} signatures, where one is allowed"
    for data in signatures:
        at, size = struct.unpack_from(f"{order}II", data, 8)
        blob = view.read(begin + at, size)
        count = int.from_bytes(blob[8:12], "big") if blob.startswith(_BLOBS) else 0
        if count > _MOST_BLOBS:
            return f"its signature has {count} parts, where no tool writes more than {_MOST_BLOBS}"
        rows = struct.iter_unpack(">II", blob[12 : 12 + 8 * min(count, (len(blob) - 12) // 8)])
        places = dict.fromkeys(place for _, place in rows)
        answers = {_differs(view, begin, blob[place:]) for place in places}
        if True in answers:
            return "it was changed after it was signed"
        return "" if False in answers else None
    return None


def _differs(view: View, begin: int, directory: bytes) -> bool | None:
    """Whether a page is not what a directory of the hashes of pages says; None where it says nothing."""
    if not directory.startswith(_CODE_DIRECTORY) or len(directory) < _DIRECTORY.size:
        return None
    hashes, _, _, slots, end, length, kind, _, page = _DIRECTORY.unpack_from(directory)
    if kind not in _HASHES or page not in _PAGES or not length:
        return None
    # Hashes behind the last page are of nothing.
    for number in (pages := range(min(slots, -(-end >> page)))):
        start = number << page
        code = view.read(begin + start, max(min(1 << page, end - start), 0))
        digest = hashlib.new(_HASHES[kind], code).digest()[:length]
        if not directory.startswith(digest, hashes + number * length):
            return True
    return False if pages else None


def _minimum(commands: list[tuple[int, bytes]], order: str) -> tuple[int, int] | None:
    """The oldest macOS, whose version is written as 0xMMMMmmpp."""
    for command, data in commands:
        if command == _BUILD_VERSION and len(data) >= 16:  # noqa: PLR2004 - build_version_command
            platform, version = struct.unpack_from(f"{order}II", data, 8)
        elif command == _VERSION_MIN and len(data) >= 12:  # noqa: PLR2004 - version_min_command
            platform, version = _MACOS, *struct.unpack_from(f"{order}I", data, 8)
        else:
            continue
        if platform == _MACOS:
            return version >> 16, version >> 8 & 0xFF
    return None


def _symbols(
    view: View, begin: int, table: tuple[int, ...], layout: str, prefixes: tuple[bytes, ...]
) -> Iterator[tuple[Symbol, bool]]:
    """The symbols that others see and whose names begin so, and whether each is defined here."""
    at, count, names_at, names_size = table
    if count > _MOST_SYMBOLS or names_size > _MOST_STRINGS:
        raise WheelError(f"a Mach-O file of {count} symbols with {names_size} bytes of names")
    # nlist: name, type, section, description, value.
    row = struct.Struct(f"{layout[0]}IBBH{'Q' if layout.endswith('64') else 'I'}")
    rows = view.read(begin + at, count * row.size)
    names = view.read(begin + names_at, names_size)
    length = 0
    for name, kind, _, description, _ in row.iter_unpack(rows):
        # Each has an underscore before the name that C gives it. What is private to a file of several that
        # were linked together is not seen from outside.
        if kind & _EXTERNAL and not kind & (_STAB | _PRIVATE) and names.startswith(prefixes, name):
            end = names.find(b"\0", name, name + _LONGEST_SYMBOL)
            text = names[name + 1 : end if end >= 0 else name + _LONGEST_SYMBOL]
            length += len(text)
            if length > _MOST_NAMES:
                raise WheelError(f"a Mach-O file with more than {_MOST_NAMES} bytes of names")
            defined = kind & _TYPE != _DEFINED_ELSEWHERE
            if defined or not description & _WEAK_REFERENCE:
                weak = bool(description & _WEAK_DEFINITION) and defined
                yield Symbol(text.decode("utf-8", "backslashreplace"), weak=weak), defined
