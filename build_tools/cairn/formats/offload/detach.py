"""Removing the device code from a library, so that ROCm's runtime reads it from an archive instead.

What the loader maps stays where it is in memory; of the file whole pages go:

    before  [headers … code before] [.hip_fatbin                    ] [code behind … section table]
    after   [headers … code before] [rest of a page] [rest of a page] [code behind … old section table]
            [program headers, two more] [.rocm_kpack_ref] [names of sections] [section table, one more]

The segment with `.hip_fatbin` becomes two: the first reaches in memory over the pages that are gone, as it
does over .bss, and the second goes on behind them. The last line is a segment of its own with new addresses;
in a program its first two parts take the first page of the code. Each wrapper leads there; see `wrappers`.
The number of bytes that go is a multiple of every alignment behind them, so that places in the file stay
congruent to addresses.

`attach` undoes it but for the code itself, which `restore` puts back.

Source: System V ABI, chapter 5, "Program Loading"; glibc's elf/dl-map-segments.h for what it makes of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from cairn import datafile
from cairn.errors import WheelError
from cairn.formats import elf_layout, kpack
from cairn.formats.elf_layout import (
    EXECUTABLE,
    PHDR,
    PHNUM_AT,
    PHOFF_AT,
    PT_INTERP,
    PT_LOAD,
    PT_PHDR,
    SHDR,
    SHF_ALLOC,
    SHNUM_AT,
    SHOFF_AT,
    SHT_NOBITS,
    SHT_PROGBITS,
    WORD,
    Layout,
    Section,
    Segment,
)
from cairn.formats.kpack import Reference
from cairn.formats.offload import bundle as offload_bundle
from cairn.formats.offload import code_object, wrappers
from cairn.formats.offload.bundle import Bundle
from cairn.formats.offload.wrappers import IN_ARCHIVE, IN_PLACE, LAYOUT, Wrapper
from cairn.formats.view import FileView, Patch, View, apply_patches, pieces

_PAGE = 4096  # of x86-64, the only machine that ROCm's libraries are for
_READ = 4  # PF_R
_NO_FIT = "keep this wheel whole, or build it for one target each"


class Undo(datafile.Value):
    """How to restore a library, except the content of its `.hip_fatbin`.

    Attributes:
        size: bytes of the library before.
        removed_at: where in the file the pages were that are gone.
        removed: how many bytes they are.
        patches: bytes that were different, in hex, by their places in the file as it is now.
    """

    size: int
    removed_at: int
    removed: int
    patches: tuple[tuple[int, str], ...]


class Library(msgspec.Struct, frozen=True, kw_only=True):
    """A library whose code can be taken out.

    Attributes:
        layout: where everything is.
        code: its `.hip_fatbin`.
        bundles: what is in there.
        wrappers: what leads there, in the order of their ordinals.
        leads: for each wrapper which bundle it leads to.
    """

    layout: Layout
    code: Section
    bundles: tuple[Bundle, ...]
    wrappers: tuple[Wrapper, ...]
    leads: tuple[int, ...]

    def wrappers_of(self, bundle: int) -> tuple[int, ...]:
        """The ordinals of the wrappers that lead to a bundle."""
        return tuple(ordinal for ordinal, lead in enumerate(self.leads) if lead == bundle)


def read(view: View) -> Library | None:
    """Read a library with device code; None where it has none.

    Raises:
        WheelError: its code cannot be taken out faithfully: a wrapper leads to no bundle, a bundle has none,
            or something else about the library cannot be explained.
    """
    layout = elf_layout.read_to_change(view)
    sections = layout.sections_named(code_object.SECTION)
    if not sections or sections[0].kind == SHT_NOBITS:
        return None
    if len(sections) > 1 or layout.machine != elf_layout.X86_64:
        raise WheelError(f"it is for machine {layout.machine}, or has two sections {code_object.SECTION}")
    (code,) = sections
    if any(segment.alignment < _PAGE for segment in layout.loads):
        raise WheelError("its segments are not aligned to pages")
    if not code.flags & SHF_ALLOC or layout.offset_of(code.address, max(code.size, 1)) != code.offset:
        raise WheelError(f"its section {code_object.SECTION} is not loaded")
    bundles = tuple(offload_bundle.read_range(view, code.offset, code.offset + code.size))
    wrapper_list = wrappers.read(layout, range(code.address, code.address + code.size))
    places = {code.address + bundle.at - code.offset: number for number, bundle in enumerate(bundles)}
    for number, wrapper in enumerate(wrapper_list):
        if wrapper.magic != IN_PLACE or wrapper.pointer not in places:
            raise WheelError(f"its wrapper {number} does not lead to the beginning of a bundle")
    leads = tuple(places[wrapper.pointer] for wrapper in wrapper_list)
    alone = set(range(len(bundles))) - set(leads)
    if alone:
        raise WheelError(
            f"{len(alone)} of its {len(bundles)} bundles have no wrapper, the first at byte"
            f" {bundles[min(alone)].at}"
        )
    return Library(layout=layout, code=code, bundles=bundles, wrappers=wrapper_list, leads=leads)


def read_host(view: View) -> tuple[Reference, int]:
    """The reference in a library whose code was taken out, and the number of its wrappers.

    Raises:
        WheelError: it is not as `detach` leaves a library: a wrapper leads elsewhere, or is not numbered.
    """
    layout = elf_layout.read_to_change(view)
    sections = [layout.sections_named(name) for name in (code_object.SECTION, kpack.REFERENCE_SECTION)]
    if any(len(wrapper_list) != 1 for wrapper_list in sections):
        raise WheelError(f"it has no section {code_object.SECTION} or {kpack.REFERENCE_SECTION}, or several")
    (code,), (place,) = sections
    wrapper_list = wrappers.read(layout, range(code.address, code.address + code.size))
    for number, wrapper in enumerate(wrapper_list):
        if (wrapper.magic, wrapper.pointer, wrapper.ordinal) != (IN_ARCHIVE, place.address, number):
            raise WheelError(f"its wrapper {number} does not lead to an archive")
    if place.kind == SHT_NOBITS or layout.offset_of(place.address, place.size) != place.offset:
        raise WheelError(f"its section {kpack.REFERENCE_SECTION} is not loaded")
    return kpack.load_reference(view.read(place.offset, min(place.size, kpack.LARGEST_REFERENCE + 1))), len(
        wrapper_list
    )


def detach(library: Library, reference: bytes, target: Path) -> Undo:
    """Write the library without its code to `target`.

    Args:
        library: what `read` found; its view is read again.
        reference: what its wrappers shall lead to: the content of `.rocm_kpack_ref`.
        target: the file to write.

    Raises:
        WheelError: its headers have no room for the change, or parts of the file overlap.
    """
    cut = Cut(library, len(reference))
    code, view = library.code, library.layout.view
    block = cut.program_headers() + reference
    with target.open("wb") as out:
        out.writelines(pieces(view, 0, code.offset))
        out.seek(cut.moved(code.offset + code.size))
        out.writelines(pieces(view, code.offset + code.size, view.size))
        if not cut.inside:
            out.seek(cut.block_at)
            out.write(block)
        names_at = out.tell() + -out.tell() % WORD.size
        names = b"\0".join((cut.names, kpack.REFERENCE_SECTION.encode(), b""))
        sections_at = names_at + len(names) + -len(names) % WORD.size
        out.seek(names_at)
        out.write(names)
        out.seek(sections_at)
        out.write(cut.section_headers(names_at, len(names)))
    changes = [*cut.header(sections_at), *cut.wrappers()]
    changes += [Patch(at=cut.block_at, data=block)] if cut.inside else []
    with target.open("rb") as file:
        new = FileView(file)
        before = tuple((change.at, new.read(change.at, len(change.data)).hex()) for change in changes)
    apply_patches(target, changes)
    return Undo(size=view.size, removed_at=cut.begin, removed=cut.size, patches=before)


def attach(library: Path, undo: Undo, target: Path) -> None:
    """Write the library as it was before `detach` to `target`, with zeros in place of its code.

    Raises:
        WheelError: `undo` is of a different library.
    """
    now = undo.size - undo.removed
    try:
        places = [(at, bytes.fromhex(data)) for at, data in undo.patches]
    except ValueError:
        places = [(-1, b"")]
    inside = all(0 <= at <= now - len(data) for at, data in places)
    if not (inside and undo.removed >= 0 and 0 <= undo.removed_at <= now <= library.stat().st_size):
        raise WheelError(f"{library.name} is not the library that the device code was split from")
    with library.open("rb") as file, target.open("wb") as out:
        view = FileView(file)
        out.writelines(pieces(view, 0, undo.removed_at))
        out.seek(undo.removed, 1)
        out.writelines(pieces(view, undo.removed_at, now))
        out.truncate(undo.size)
    moved = (Patch(at=at if at < undo.removed_at else at + undo.removed, data=data) for at, data in places)
    apply_patches(target, moved)


class Cut:
    """The changes to one library, of whose section of code the first `keep` bytes stay.

    Attributes:
        names: the names of the sections.
        begin: where in the file the pages begin that go.
        size: how many bytes they are.
        inside: whether what is new stands before them, in the first pages of the code, as in a program.
        block_at: where in the new file that is.
    """

    def __init__(self, library: Library, reference_size: int, *, keep: int = 0) -> None:
        self._library = library
        self._layout = layout = library.layout
        section = layout.names_section
        self.names = layout.view.read(section.offset, section.size) if section else b""
        code = library.code
        self._segment = next(
            s for s in layout.loads if s.offset <= code.offset and code.offset + code.size <= s.end
        )
        self._check_overlaps()
        self._page = layout.page
        self._reference_size = reference_size
        # What is started by the kernel, which finds the program headers in a way of its own.
        self.inside = layout.type == EXECUTABLE or any(s.kind == PT_INTERP for s in layout.segments)
        # Whole pages of it, as addresses have them, and as many as keep all behind them aligned.
        first = code.address + keep
        first += -first % _PAGE
        last = (code.address + code.size) // _PAGE * _PAGE
        if self.inside:
            self._block_address = first
            first += self._room()
        step = max(_PAGE, self._page)
        self.size = max(last - first, 0) // step * step
        self.begin = code.offset + (first - code.address if self.size or self.inside else code.size)
        new_segments = self._splits + (not self.inside)
        self._headers_size = PHDR.size * (len(layout.segments) + new_segments)
        if self.inside:
            self.block_at = code.offset + self._block_address - code.address
        else:
            # On a page of its own: glibc takes the program headers for a part of the segment whose last page
            # has them, be it that this page is .bss behind the segment's end (elf/dl-map-segments.h, l_phdr).
            end = layout.view.size - self.size
            self.block_at = end + -end % _PAGE
            self._block_address = layout.free_address(self.block_at)
        self._reference_address = self._block_address + self._headers_size

    def _room(self) -> int:
        """The bytes of code, in whole pages, that make room for the program headers of a program.

        Kernels before 5.18 tell it that they are where they are in the file, from the address of its first
        segment on (fs/binfmt_elf.c, AT_PHDR), so that they cannot get new addresses behind all others.
        """
        size = PHDR.size * (len(self._layout.segments) + 1) + self._reference_size
        room = size + -size % _PAGE
        code, first = self._library.code, self._layout.loads[0]
        same = self._segment.address - self._segment.offset == first.address - first.offset
        if not same or code.size < room + 2 * _PAGE:
            raise WheelError("it is a program, and its program headers have nowhere to go", tip=_NO_FIT)
        return room

    @property
    def _end(self) -> int:
        return self.begin + self.size

    @property
    def _splits(self) -> bool:
        """Whether any part of the segment follows the removed pages."""
        return bool(self.size) and self._segment.end > self._end

    def moved(self, offset: int) -> int:
        """The offset in the new file of an offset in the old one."""
        return offset - self.size if offset >= self._end else offset

    def program_headers(self) -> bytes:
        """The new table, in a segment of its own with what follows it."""
        size = self._headers_size + self._reference_size
        block = Segment(
            PT_LOAD, _READ, self.block_at, self._block_address, self._block_address, size, size, self._page
        )
        last = self._layout.loads[-1]
        segments: list[Segment] = []
        for segment in self._layout.segments:
            if segment.kind == PT_PHDR:
                address, length = self._block_address, self._headers_size
                table = segment._replace(offset=self.block_at, address=address, physical=address)
                segments.append(table._replace(file_size=length, memory_size=length))
            elif segment is self._segment and self.size:
                segments += self._halves()
            else:
                segments.append(segment._replace(offset=self.moved(segment.offset)))
            if segment is last and not self.inside:  # they stand in the order of their addresses
                segments.append(block)
        return b"".join(PHDR.pack(*segment) for segment in segments)

    def _halves(self) -> Iterator[Segment]:
        old = self._segment
        before, behind = self.begin - old.offset, self._end - old.offset
        if not self._splits:
            yield old._replace(file_size=before)
            return
        yield old._replace(file_size=before, memory_size=behind)
        yield old._replace(
            offset=self.begin,
            address=old.address + behind,
            physical=old.physical + behind,
            file_size=old.file_size - behind,
            memory_size=old.memory_size - behind,
        )

    def section_headers(self, names_at: int, names_size: int) -> bytes:
        """The new table: `.hip_fatbin` takes room in memory alone, and one more section is at the end."""
        layout, edits = self._layout, []
        for number, section in enumerate(layout.sections):
            if number == layout.names_index:
                new = section._replace(offset=names_at, size=names_size)
            elif section is self._library.code:
                new = section._replace(kind=SHT_NOBITS)
                if self.inside:  # it begins behind what is new there
                    moved = self.begin - section.offset
                    address, size = section.address + moved, section.size - moved
                    new = new._replace(address=address, offset=self.begin, size=size)
            else:
                new = section._replace(offset=self.moved(section.offset))
            edits.append(new)
        added = Section(
            name=len(self.names) + 1,
            kind=SHT_PROGBITS,
            flags=SHF_ALLOC,
            address=self._reference_address,
            offset=self.block_at + self._headers_size,
            size=self._reference_size,
            link=0,
            info=0,
            alignment=WORD.size,
            entry_size=0,
        )
        return b"".join(SHDR.pack(*section) for section in (*edits, added))

    def header(self, sections_at: int) -> Iterator[Patch]:
        """The changes to the ELF header."""
        count = self._headers_size // PHDR.size
        yield Patch(at=PHOFF_AT, data=WORD.pack(self.block_at))
        yield Patch(at=SHOFF_AT, data=WORD.pack(sections_at))
        yield Patch(at=PHNUM_AT, data=count.to_bytes(2, "little"))
        yield Patch(at=SHNUM_AT, data=(len(self._layout.sections) + 1).to_bytes(2, "little"))

    def wrappers(self) -> Iterator[Patch]:
        """The changes to the wrappers and their relocations."""
        pointer = self._reference_address
        for ordinal, wrapper in enumerate(self._library.wrappers):
            data = LAYOUT.pack(IN_ARCHIVE, 1, pointer, ordinal)
            yield Patch(at=self.moved(wrapper.at), data=data[: wrappers.ORDINAL_AT + 4])
            for patch in wrapper.led_to(pointer):
                yield Patch(at=self.moved(patch.at), data=patch.data)

    def _check_overlaps(self) -> None:
        """Check that the removed bytes hold nothing but zeros and the code itself."""
        code = self._library.code
        begin, end = code.offset, code.offset + code.size
        layout = self._layout
        parts = [
            (segment.offset, segment.end)
            for segment in layout.segments
            if segment is not self._segment and segment.file_size
        ]
        parts += [
            (section.offset, section.offset + section.size)
            for section in layout.sections
            if section is not code and section.kind != SHT_NOBITS and section.size
        ]
        parts.append((layout.segments_at, layout.segments_at + PHDR.size * len(layout.segments)))
        parts.append((layout.sections_at, layout.sections_at + SHDR.size * len(layout.sections)))
        if any(start < end and begin < stop for start, stop in parts):
            raise WheelError("something else is where its device code is", tip=_NO_FIT)
