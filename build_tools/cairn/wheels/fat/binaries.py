"""Libraries of Linux and of Windows, seen alike by who makes a wheel fat."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from cairn.errors import WheelError
from cairn.formats import elf, pe
from cairn.formats.offload import code_object
from cairn.formats.offload.code_object import CodeObject
from cairn.formats.view import BytesView
from cairn.formats.zip.reader import Archive
from cairn.wheels.contents import binaries, manylinux, windows_dlls
from cairn.wheels.contents.binaries import Library

_RUNTIME = re.compile(r"(?:concrt|msvcp|vccorlib|vcomp|vcruntime)140[0-9a-z_]*\.dll", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Binary:
    """A program or library of the wheel or of the ROCm tree.

    Attributes:
        name: what others find it by: its SONAME, or else its file name.
        path: in the wheel, or where it lies in the tree.
        size: bytes.
        needed: the libraries it needs, as it writes their names.
        codes: its device code.
        trimmed: device code that is to be taken out of it.
        library: what is known of it as an ELF file; None for DLLs.
    """

    name: str
    path: str
    size: int
    needed: tuple[str, ...]
    codes: tuple[CodeObject, ...] = ()
    trimmed: tuple[CodeObject, ...] = ()
    library: Library | None = None

    @property
    def sizes(self) -> dict[str, int]:
        """Target to bytes of the code it has for it."""
        return sizes(self.codes)


class Platform(Protocol):
    """What differs between Linux and Windows."""

    name: Literal["linux", "windows"]

    def of_wheel(self, archive: Archive) -> tuple[Binary, ...]:
        """The binaries in a wheel."""

    def of_tree(self, path: Path) -> Binary:
        """A library of the tree."""

    def on_system(self, name: str) -> bool:
        """Whether every system that the wheel is for has that library."""


class Linux:
    """ELF files."""

    name: Literal["linux", "windows"] = "linux"

    def __init__(self, machine: str, *, judge: bool) -> None:
        """Take note of what the wheel is for.

        Args:
            machine: the architecture, such as `x86_64`.
            judge: whether to read of the wheel's binaries too what a manylinux tag takes to justify.
        """
        self.machine = machine
        self.judge = judge

    def of_wheel(self, archive: Archive) -> tuple[Binary, ...]:
        """See `Platform.of_wheel`."""
        watched = manylinux.watched_symbols() if self.judge else frozenset[str]()
        found = binaries.read_libraries(archive, device_code=False, look_for=watched)
        return tuple(_of_elf(library, library.member) for library in found if library.elf.machine != "amdgpu")

    def of_tree(self, path: Path) -> Binary:
        """See `Platform.of_tree`.

        Raises:
            WheelError: it is malformed, or for another machine.
        """
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            view = BytesView(data)
            parsed = elf.read_view(view, look_for=manylinux.watched_symbols())
            if parsed.machine != self.machine:
                raise WheelError(f"it is for {parsed.machine}, the wheel for {self.machine}")
            code = code_object.of_view(view, parsed)
            size = len(data)
        return _of_elf(Library(member=path.name, size=size, elf=parsed, code_objects=code), str(path))

    def on_system(self, name: str) -> bool:
        """See `Platform.on_system`."""
        return manylinux.newest().has(name)


class Windows:
    """PE files."""

    name: Literal["linux", "windows"] = "windows"

    def __init__(self, machine: str) -> None:
        self.machine = machine

    def of_wheel(self, archive: Archive) -> tuple[Binary, ...]:
        """See `Platform.of_wheel`."""
        found = windows_dlls.read_libraries(archive)
        return tuple(
            Binary(
                name=library.member.rpartition("/")[2].lower(),
                path=library.member,
                size=library.size,
                needed=library.needed,
                codes=library.code_objects,
            )
            for library in found
        )

    def of_tree(self, path: Path) -> Binary:
        """See `Platform.of_tree`.

        Raises:
            WheelError: it is malformed, or for another machine.
        """
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            view = BytesView(data)
            parsed = pe.read_view(view)
            if parsed.machine != self.machine:
                raise WheelError(f"it is for {parsed.machine}, the wheel for {self.machine}")
            code = windows_dlls.device_code(view, parsed)
            size = len(data)
        needed = tuple(dict.fromkeys(name.lower() for name in (*parsed.imports, *parsed.delay_imports)))
        return Binary(name=path.name, path=str(path), size=size, needed=needed, codes=code)

    def on_system(self, name: str) -> bool:
        """See `Platform.on_system`.

        Microsoft's redistributable runtime counts as there: torch for Windows asks people to install it.
        """
        return bool(_RUNTIME.fullmatch(name)) or windows_dlls.on_system(name, self.machine)


def _of_elf(library: Library, path: str) -> Binary:
    return Binary(
        name=library.elf.soname or path.rpartition("/")[2],
        path=path,
        size=library.size,
        needed=library.elf.needed,
        codes=library.code_objects,
        library=library,
    )


def sizes(codes: Iterable[CodeObject]) -> dict[str, int]:
    """Target to bytes of its code."""
    found: dict[str, int] = {}
    for code in codes:
        found[str(code.target)] = found.get(str(code.target), 0) + code.size
    return found
