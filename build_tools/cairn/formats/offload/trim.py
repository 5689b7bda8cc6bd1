"""Removing the device code for all but some processors from a library.

The bundles are written again one after the other from the beginning of `.hip_fatbin`, with fewer entries, the
code in them byte for byte as it was; wrappers lead to their new places. The pages of the file behind them go,
as `detach` takes them out, and the section ends where the last bundle does.
"""

from __future__ import annotations

import shutil
import struct
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import IO

from msgspec import structs

from cairn.errors import WheelError
from cairn.formats.elf_layout import SHDR, SHNUM_AT, WORD
from cairn.formats.offload import bundle as offload_bundle
from cairn.formats.offload import code_object, wrappers
from cairn.formats.offload.bundle import HOST, PLAIN_MAGIC, Entry, Packing
from cairn.formats.offload.detach import Cut, Library
from cairn.formats.offload.record import UnpackedBundle, unpacking
from cairn.formats.offload.wrappers import POINTER_AT
from cairn.formats.view import Patch, apply_patches, pieces

_PAGE = 4096  # what clang aligns bundles for HIP to, and the code in them
_ENTRY = struct.Struct("<QQQ")


def trim(library: Library, processors: Collection[str], target: Path) -> int:
    """Write a library with device code for these processors only; return how many bytes were removed.

    Args:
        library: what `detach.read` found; its view is read again.
        processors: such as `gfx1100`; code for features of one, `gfx90a:xnack+`, stays too.
        target: the file to write.

    Raises:
        WheelError: its code cannot be taken out faithfully.
    """
    view, code = library.layout.view, library.code
    if all(_stays(entry, processors) for bundle in library.bundles for entry in bundle.entries):
        with target.open("wb") as out:
            out.writelines(pieces(view, 0, view.size))
        return 0
    with tempfile.TemporaryFile(dir=target.parent) as trimmed:
        places = [
            _write(library, number, processors, trimmed, target.parent)
            for number in range(len(library.bundles))
        ]
        size = trimmed.seek(0, 2)
        if size > code.size:  # what is aligned by less than its place says
            raise WheelError("its code would take more room without the other code than with it")
        cut = Cut(library, 0, keep=size)
        if cut.inside:
            raise WheelError("it is a program, of which no code can be taken out")
        with target.open("wb") as out:
            out.writelines(pieces(view, 0, code.offset))
            trimmed.seek(0)
            shutil.copyfileobj(trimmed, out, 1 << 20)
            out.seek(cut.moved(code.offset + code.size))
            out.writelines(pieces(view, code.offset + code.size, view.size))
            out.seek(cut.block_at)
            headers = cut.program_headers()
            out.write(headers)
            sections_at = out.tell() + -out.tell() % WORD.size
            out.seek(sections_at)
            for section in library.layout.sections:
                new = {"size": size} if section is code else {"offset": cut.moved(section.offset)}
                out.write(SHDR.pack(*section._replace(**new)))
    # Unlike `detach`, this adds no section.
    count = Patch(at=SHNUM_AT, data=len(library.layout.sections).to_bytes(2, "little"))
    apply_patches(target, [*cut.header(sections_at), count, *_wrappers(library, cut, places)])
    return cut.size


def _write(
    library: Library, number: int, processors: Collection[str], trimmed: IO[bytes], folder: Path
) -> int:
    """Append one bundle, with less code in it, to `trimmed`, and return its offset there."""
    bundle = library.bundles[number]
    with unpacking(library.layout.view, bundle, folder) as content:
        entries = [entry for entry in bundle.entries if _stays(entry, processors)]
        begin = trimmed.seek(0, 2)
        begin += -begin % _alignment(library.code.address + bundle.at - library.code.offset)
        if bundle.packing is None:
            trimmed.seek(begin)
            _write_plain(content, entries, trimmed)
            return begin
        with tempfile.TemporaryFile(dir=folder) as plain, tempfile.TemporaryFile(dir=folder) as packed:
            _write_plain(content, entries, plain)
            how = bundle.packing
            form = Packing(version=how.version, method=how.method, plain_size=plain.seek(0, 2))
            if not offload_bundle.pack_into(plain, form, packed, room=bundle.size):
                raise WheelError("its code cannot be compressed into its room")
            packed.seek(0)
            trimmed.seek(begin)
            shutil.copyfileobj(packed, trimmed)
    return begin


def _alignment(place: int) -> int:
    """The alignment that a place shows: the largest power of two that divides it, at most a page."""
    return min(place & -place, _PAGE) or _PAGE


def _stays(entry: Entry, processors: Collection[str]) -> bool:
    return entry.id.startswith(HOST) or code_object.target_of_entry(entry.id).processor in processors


def _write_plain(content: UnpackedBundle, entries: list[Entry], out: IO[bytes]) -> None:
    begin = out.tell()
    names = [entry.id.encode() for entry in entries]
    at = len(PLAIN_MAGIC) + WORD.size + sum(_ENTRY.size + len(name) for name in names)
    table = [PLAIN_MAGIC, WORD.pack(len(entries))]
    places = []
    for entry, name in zip(entries, names, strict=True):
        at += -at % _alignment(entry.offset)
        places.append(at)
        table.append(_ENTRY.pack(at, entry.size, len(name)) + name)
        at += entry.size
    out.write(b"".join(table))
    for entry, place in zip(entries, places, strict=True):
        out.seek(begin + place)
        out.writelines(content.code(entry))
    out.truncate(max(out.tell(), begin + at))


def _wrappers(library: Library, cut: Cut, places: list[int]) -> list[Patch]:
    """The changes to the wrappers, to the relocations of their pointers, and to symbols of the code."""
    code = library.code
    new_places = {
        code.address + bundle.at - code.offset: code.address + place
        for bundle, place in zip(library.bundles, places, strict=True)
    }
    patches = []
    for wrapper in library.wrappers:
        pointer = new_places[wrapper.pointer]
        patches.append(Patch(at=cut.moved(wrapper.at + POINTER_AT), data=WORD.pack(pointer)))
        patches += [structs.replace(patch, at=cut.moved(patch.at)) for patch in wrapper.led_to(pointer)]
    for _, at, value in wrappers.symbols_of(library.layout, range(code.address, code.address + code.size)):
        if value not in new_places:
            raise WheelError(f"a symbol of it leads into its device code, to {value:#x}")
        patches.append(Patch(at=cut.moved(at), data=WORD.pack(new_places[value])))
    return patches
