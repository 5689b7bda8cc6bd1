"""Libraries with device code and the wrappers that lead to it, put together byte by byte."""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping, Sequence
from typing import Literal

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import Section

from helpers.formats import add_text, version_needs

WRAPPER = struct.Struct("<IIQQ")
MAGIC = 0x48495046
DIRECT, GLOBAL_DATA, RELATIVE = 1, 6, 8


def in_row(bundles: Sequence[bytes], alignment: int = 4096) -> tuple[bytes, list[int]]:
    """Bundles as a linker lays them, and where each begins."""
    data, places = b"", []
    for bundle in bundles:
        data += bytes(-len(data) % alignment)
        places.append(len(data))
        data += bundle
    return data, places


def make_hip_library(
    bundles: Sequence[bytes],
    leads: Sequence[int] | None = None,
    *,
    relocations: Literal["rela", "rel", "relr", "symbols", "none"] = "rela",
    page: int = 4096,
    behind: bytes = b"read only data behind the code",
    trailing: bytes = b"",
    wrappers: bytes | None = None,
    more_relocations: Sequence[tuple[int, int, int]] = (),
    machine: int = 62,
    kind: int = 3,
    interpreter: bool = False,
    bss: int = 100,
    soname: str = "",
    needed: Sequence[str] = (),
    runpath: str = "",
    versions: Mapping[str, Sequence[str]] | None = None,
    dynamic_section: bool = False,
) -> bytes:
    """A shared library with one segment that is read and one that is written.

    Args:
        bundles: the content of `.hip_fatbin`, a page apart.
        leads: which bundle each wrapper leads to; by default each has one.
        relocations: what fills in the pointers of the wrappers: `symbols` has one of the code for each,
            numbered from 1; `none` leaves them as they are in the file.
        page: p_align of the segments.
        behind: what stands in the segment of the code, after it.
        trailing: what stands after everything that belongs to the library.
        wrappers: another content for their section.
        more_relocations: offset from the first wrapper, type and addend of further ones, of Elf64_Rela.
        machine: e_machine.
        kind: e_type.
        interpreter: whether it has PT_INTERP, as programs do.
        bss: bytes that the second segment has in memory alone.
        soname: DT_SONAME.
        needed: DT_NEEDED.
        runpath: DT_RUNPATH.
        dynamic_section: whether the table of sections has its dynamic entries too.
        versions: the symbol versions needed of each library.
    """
    code, places = in_row(bundles)
    count = 4 + interpreter
    tables_at = 64 + 56 * count
    linked_at = tables_at + 24 * (max(len(bundles), len(leads or ())) * 2 + len(more_relocations) + 1)
    linked, linked_entries = _linked(linked_at, soname, needed, runpath, versions or {})
    code_at = -(-(linked_at + len(linked)) // page) * page
    first_size = code_at + len(code) + len(behind)
    second_at = first_size + -first_size % 16
    # A page further in memory, as linkers leave it: the two share a page of the file.
    wrappers_at = second_at + page
    pointers = [code_at + places[n] for n in (range(len(bundles)) if leads is None else leads)]
    in_place = 0 if relocations == "rela" else 1  # GNU ld and lld differ; the loader does not care
    made = b"".join(WRAPPER.pack(MAGIC, 1, pointer * in_place, 0) for pointer in pointers)
    made = made if wrappers is None else wrappers
    slots = [wrappers_at + 24 * number + 8 for number in range(len(pointers))]
    tables, entries = _tables(slots, pointers, relocations, tables_at)
    if more_relocations:
        at = tables_at + len(tables)
        rows = [struct.pack("<QQq", wrappers_at + offset, *rest) for offset, *rest in more_relocations]
        old = tables if relocations in ("rela", "symbols") else b""
        tables += old + b"".join(rows)
        entries = [e for e in entries if e[0] not in (7, 8, 9)]
        entries += [(7, at), (8, len(old) + 24 * len(rows)), (9, 24)]
    symbols_at, symbols = tables_at + len(tables), b""
    if relocations == "symbols":
        symbols = b"".join(struct.pack("<IBBHQQ", 0, 0x11, 0, 1, pointer, 0) for pointer in pointers)
        symbols = bytes(24) + symbols
        tables += symbols
        entries += [(6, symbols_at), (11, 24)]
    dynamic = b"".join(struct.pack("<QQ", *entry) for entry in [*linked_entries, *entries, (0, 0)])
    second = made + dynamic
    segments = [
        (1, 4, 0, 0, first_size, first_size, page),
        (1, 6, second_at, wrappers_at, len(second), len(second) + bss, page),
        (2, 6, second_at + len(made), wrappers_at + len(made), len(dynamic), len(dynamic), 8),
        (6, 4, 64, 64, 56 * count, 56 * count, 8),
    ]
    segments += [(3, 4, 0, 0, 1, 1, 1)] if interpreter else []
    names = b"\0.hip_fatbin\0.hipFatBinSegment\0.bss\0.shstrtab\0.dynamic\0.dynsym\0"
    names_at = second_at + len(second)
    sections_at = names_at + len(names) + -(names_at + len(names)) % 8
    sections = [
        (0, 0, 0, 0, 0, 0, 0),
        (names.index(b".hip_fatbin"), 1, 2, code_at, code_at, len(code), 4096),
        (names.index(b".hipFatBinSegment"), 1, 3, wrappers_at, second_at, len(made), 8),
        (names.index(b".bss"), 8, 3, wrappers_at + len(second), names_at, bss, 1),
        (names.index(b".shstrtab"), 3, 0, 0, names_at, len(names), 1),
    ]
    if dynamic_section:
        place = wrappers_at + len(made), second_at + len(made)
        sections.append((names.index(b".dynamic"), 6, 3, *place, len(dynamic), 8))
    if symbols:
        sections.append((names.index(b".dynsym"), 11, 2, symbols_at, symbols_at, len(symbols), 8))
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack(
        "<HHIQQQIHHHHHH", kind, machine, 1, 0, 64, sections_at, 0, 64, 56, count, 64, len(sections), 4
    )
    header += b"".join(struct.pack("<IIQQQQQQ", k, f, o, a, a, s, m, p) for k, f, o, a, s, m, p in segments)
    data = ((header + tables).ljust(linked_at, b"\0") + linked).ljust(code_at, b"\0") + code + behind
    data = (data.ljust(second_at, b"\0") + second + names).ljust(sections_at, b"\0")
    data += b"".join(
        struct.pack("<IIQQQQIIQQ", n, k, f, a, o, s, 4 * (k == 11), 0, p, 24 * (k == 11))
        for n, k, f, a, o, s, p in sections
    )
    return data + trailing


def _linked(
    at: int, soname: str, needed: Sequence[str], runpath: str, versions: Mapping[str, Sequence[str]]
) -> tuple[bytes, list[tuple[int, int]]]:
    """Strings and versions, and the dynamic entries that lead to them."""
    strings = bytearray(b"\0")
    texts = [(1, name) for name in needed] + [(14, soname)] * bool(soname) + [(29, runpath)] * bool(runpath)
    entries = [(kind, add_text(strings, text)) for kind, text in texts]
    needs = version_needs(strings, versions)
    if not entries and not needs:
        return b"", []
    entries += [(0x6FFFFFFE, at), (0x6FFFFFFF, len(versions))] if needs else []
    return needs + strings, [*entries, (5, at + len(needs)), (10, len(strings))]


def _tables(
    slots: Sequence[int], pointers: Sequence[int], kind: str, at: int
) -> tuple[bytes, list[tuple[int, int]]]:
    """The relocations of the pointers, and the dynamic entries that lead to them."""
    if kind == "rela":
        rows = [
            struct.pack("<QQq", slot, RELATIVE, value) for slot, value in zip(slots, pointers, strict=True)
        ]
        return b"".join(rows), [(7, at), (8, 24 * len(rows)), (9, 24)]
    if kind == "symbols":
        rows = [struct.pack("<QQq", slot, DIRECT | n << 32, 0) for n, slot in enumerate(slots, start=1)]
        return b"".join(rows), [(7, at), (8, 24 * len(rows)), (9, 24)]
    if kind == "rel":
        return b"".join(struct.pack("<QQ", slot, RELATIVE) for slot in slots), [
            (17, at),
            (18, 16 * len(slots)),
            (19, 16),
        ]
    if kind == "relr":
        # An address, then bit maps of the 63 words behind each: a pointer is every third word.
        words, rest = [slots[0]], list(slots[1:])
        begin = slots[0] + 8
        while rest:
            bits = sum(1 << (slot - begin) // 8 for slot in rest if slot < begin + 63 * 8)
            rest = [slot for slot in rest if slot >= begin + 63 * 8]
            words.append(bits << 1 | 1)
            begin += 63 * 8
        return struct.pack(f"<{len(words)}Q", *words), [(36, at), (35, 8 * len(words)), (37, 8)]
    return b"", []


def section_of(file: ELFFile, name: str) -> Section:
    """The section of this name."""
    found = file.get_section_by_name(name)
    assert found is not None
    return found


def in_memory(data: bytes) -> dict[int, int]:
    """What a loader maps, byte by byte, without what is not zero; relocations done at the address 0."""
    file = ELFFile(io.BytesIO(data))
    memory: dict[int, int] = {}
    for segment in file.iter_segments("PT_LOAD"):
        head = segment.header
        assert (head.p_vaddr - head.p_offset) % head.p_align == 0
        for page in range(head.p_vaddr // 4096 * 4096, head.p_vaddr + head.p_memsz, 4096):
            for at in range(max(page, head.p_vaddr), min(page + 4096, head.p_vaddr + head.p_memsz)):
                memory.pop(at, None)
        memory.update((head.p_vaddr + at, byte) for at, byte in enumerate(segment.data()) if byte)
    return memory


def word(memory: dict[int, int], at: int, size: int) -> int:
    """The number of so many bytes at an address of `in_memory`."""
    return sum(memory.get(at + number, 0) << 8 * number for number in range(size))
