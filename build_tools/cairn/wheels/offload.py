"""Device code inside host binaries (offload bundles) and beside them (code objects)."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass

from cairn.errors import UsageError, WheelError
from cairn.targets import TargetId, parse_target_id
from cairn.wheels import bundles, codeobject, elf
from cairn.wheels.bundles import Checker
from cairn.wheels.elf import Elf
from cairn.wheels.views import BytesView, View

SECTION = ".hip_fatbin"


@dataclass(frozen=True, kw_only=True)
class CodeObject:
    """The code of one target in one bundle, or in a file of its own.

    Attributes:
        target: what it was compiled for.
        size: bytes, unpacked.
        compressed: whether its bundle is.
        offset: where its bundle begins, counted from the start of what was read.
    """

    target: TargetId
    size: int
    compressed: bool
    offset: int


def read(data: bytes) -> tuple[CodeObject, ...]:
    """The code objects in the content of a `.hip_fatbin` section.

    Raises:
        WheelError: it is malformed.
    """
    return tuple(read_range(BytesView(data), 0, len(data)))


def of_elf(data: bytes | mmap.mmap) -> tuple[CodeObject, ...]:
    """The code objects of a whole ELF file; none when it has no device code.

    Raises:
        WheelError: it is no ELF file, or malformed.
    """
    view = BytesView(data)
    return of_view(view, elf.read_view(view))


def of_view(view: View, parsed: Elf, checker: Checker | None = None) -> tuple[CodeObject, ...]:
    """Like `of_elf`, when the file (with its sections) has been read already; see `bundles.read_range`."""
    if parsed.machine == codeobject.MACHINE:
        target = codeobject.target_of(view)
        return (CodeObject(target=target, size=view.size, compressed=False, offset=0),)
    return tuple(found for start, end in ranges(parsed) for found in read_range(view, start, end, checker))


def ranges(parsed: Elf) -> Iterator[tuple[int, int]]:
    """Where in an ELF file (read with its sections) bundles lie."""
    for section in parsed.sections:
        if section.name == SECTION:
            yield section.offset, section.offset + section.size


def read_range(view: View, start: int, end: int, checker: Checker | None = None) -> Iterator[CodeObject]:
    """The code objects of every bundle between two places.

    Raises:
        WheelError: there is something else than bundles and zeros between them.
    """
    for bundle in bundles.read_range(view, start, end, checker):
        for entry in bundle.device_entries:
            yield CodeObject(
                target=target_of(entry.id),
                size=entry.size,
                compressed=bundle.packing is not None,
                offset=bundle.at,
            )


def target_of(entry: str) -> TargetId:
    """The target of a bundle's entry such as `hipv4-amdgcn-amd-amdhsa--gfx90a:xnack+`.

    Raises:
        WheelError: it names none.
    """
    _, mark, rest = entry.partition("-gfx")
    try:
        return parse_target_id(mark[1:] + rest)
    except UsageError as error:
        raise WheelError(f"the offload bundle entry {entry!r} names no target") from error
