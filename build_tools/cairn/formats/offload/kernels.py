"""The kernels of code objects, and the resources that each takes.

Source: LLVM's docs/AMDGPUUsage.rst, "Code Object V3 Metadata" and what later versions change in it: a note of
the owner `AMDGPU` and the type NT_AMDGPU_METADATA holds a map in MessagePack.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cairn.errors import WheelError
from cairn.formats import elf_layout, msgpack
from cairn.formats.compression import Forward, exactly
from cairn.formats.elf_layout import Layout
from cairn.formats.offload import code_object
from cairn.formats.offload.bundle import HOST, Entry
from cairn.formats.view import BytesView, View

_PT_NOTE = 4
_METADATA = 32  # NT_AMDGPU_METADATA
_OWNER = b"AMDGPU\0"
_FUNCTION = 2  # STT_FUNC
_SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym: name, info, other, section, value, size
_SYMTAB, _STRTAB = b".dynsym", b".dynstr"
_LONGEST_NAME = 1 << 16
_MOST_NAMES = 256 << 20  # bytes of the names of all functions, which may share theirs
_LARGEST = 512 << 20  # bytes of a code object that is held in memory
_LARGEST_NOTES = 64 << 20


class Kernel(NamedTuple):
    """A kernel of one code object; counts are 0 where the metadata says nothing.

    Attributes:
        name: as the linker has it: mangled.
        target: what it was compiled for.
        vgprs: vector registers of a work-item.
        agprs: accumulation registers of a work-item.
        sgprs: scalar registers of a wavefront.
        vgpr_spills, sgpr_spills: registers for which there was no room, so that memory stands in for them.
        lds: bytes of LDS of a work-group, as far as they are known when compiling.
        scratch: bytes of private memory of a work-item.
        wavefront: its size.
        size: bytes of machine code.
    """

    name: str
    target: str
    vgprs: int = 0
    agprs: int = 0
    sgprs: int = 0
    vgpr_spills: int = 0
    sgpr_spills: int = 0
    lds: int = 0
    scratch: int = 0
    wavefront: int = 0
    size: int = 0


# The keys of a kernel's map, in the order of the fields of `Kernel` behind `target`.
_KEYS = (
    *(".vgpr_count", ".agpr_count", ".sgpr_count", ".vgpr_spill_count", ".sgpr_spill_count"),
    *(".group_segment_fixed_size", ".private_segment_fixed_size", ".wavefront_size"),
)


class KernelReader:
    """Reads the kernels of the code objects of one file while it is unpacked; see `bundle.Checker`.

    Attributes:
        kernels: those so far.
        problems: what could not be read.
    """

    def __init__(self) -> None:
        self.kernels: list[Kernel] = []
        self.problems: list[str] = []

    def look(self, entries: Sequence[Entry], content: Forward) -> None:
        """See `bundle.Checker.look`."""
        for entry in sorted(entries, key=lambda entry: (entry.offset, entry.size)):
            if entry.id.startswith(HOST) or not entry.size or entry.offset < content.at:
                continue
            if entry.size > _LARGEST:
                self.complain(f"a code object of {entry.size} bytes")
                continue
            content.skip_to(entry.offset)
            self.look_at(exactly(content, entry.size))

    def look_at(self, code: bytes) -> None:
        """Read the kernels of one code object."""
        try:
            self.kernels += kernels_of(BytesView(code))
        except WheelError as error:
            self.complain(str(error))

    def complain(self, reason: str) -> None:
        """See `bundle.Checker.complain`."""
        self.problems.append(reason)


def kernels_of(view: View) -> tuple[Kernel, ...]:
    """The kernels of a code object, as its metadata list them; none in one without metadata.

    Raises:
        WheelError: it is not an ELF file, or its headers or metadata are broken.
    """
    layout = elf_layout.read(view)
    target = str(code_object.target_of(view))
    sizes: dict[str, int] | None = None
    kernels: list[Kernel] = []
    for data in _metadata(layout):
        root = msgpack.loads(data, padded=True)
        entries = root.get("amdhsa.kernels") if isinstance(root, dict) else None
        for entry in entries if isinstance(entries, list) else ():
            name = entry.get(".name") if isinstance(entry, dict) else None
            if not isinstance(entry, dict) or not isinstance(name, str):
                raise WheelError("device code whose metadata list a kernel without a name")
            if sizes is None:
                sizes = _code_sizes(layout)
            values = (value if isinstance(value := entry.get(key), int) else 0 for key in _KEYS)
            kernels.append(Kernel._make((name, target, *values, sizes.get(name, 0))))
    return tuple(kernels)


def _metadata(layout: Layout) -> Iterator[bytes]:
    seen: set[int] = set()
    for segment in layout.segments:
        if segment.kind == _PT_NOTE:
            if segment.file_size > _LARGEST_NOTES:
                raise WheelError(f"device code with notes of {segment.file_size} bytes")
            yield from _notes(layout, segment.offset, segment.end, seen)


def _notes(layout: Layout, at: int, end: int, seen: set[int]) -> Iterator[bytes]:
    # Elf64_Nhdr: size of the owner, size of the content, type; then the two, each padded to 4 bytes.
    while at + 12 <= end and at not in seen:  # segments may share their notes
        seen.add(at)
        owner_size, size, kind = layout.unpack("III", at)
        content = at + 12 + owner_size + -owner_size % 4
        if content + size > end:
            raise WheelError("device code with a note that is cut off")
        if kind == _METADATA and layout.view.read(at + 12, owner_size) == _OWNER:
            yield layout.view.read(content, size)
        at = content + size + -size % 4


def _code_sizes(layout: Layout) -> dict[str, int]:
    """The bytes of machine code of each function."""
    sections = dict(layout.named_sections()) if layout.wide else {}
    if _SYMTAB not in sections or _STRTAB not in sections:
        return {}
    table, strings = sections[_SYMTAB], sections[_STRTAB]
    names = layout.view.read(strings.offset, strings.size)
    rows = layout.view.read(table.offset, table.size - table.size % _SYMBOL.size)
    sizes: dict[str, int] = {}
    length = 0
    for at, info, _, _, _, size in _SYMBOL.iter_unpack(rows):
        if info & 0xF == _FUNCTION:
            end = names.find(b"\0", at, at + _LONGEST_NAME)
            name = names[at : end if end >= 0 else at + _LONGEST_NAME]
            length += len(name)
            if length > _MOST_NAMES:
                raise WheelError(f"device code with more than {_MOST_NAMES} bytes of names")
            sizes[name.decode("utf-8", "backslashreplace")] = size
    return sizes
