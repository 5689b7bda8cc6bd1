"""The values that describe what a wheel offers to others, and what it wants of them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from cairn.formats.image import Symbol
from cairn.formats.offload.kernels import Kernel
from cairn.targets import in_order
from cairn.wheels.contents.binaries import Binary
from cairn.wheels.contents.code_archives import CodeArchive, named_targets
from cairn.wheels.interface.operators import Operator
from cairn.wheels.interface.python_api import PythonApi
from cairn.wheels.metadata.wheel_info import WheelInfo

__all__ = ["FileState", "Interface", "Kernel", "Library", "Operator", "PythonApi", "Symbol"]


class FileState(NamedTuple):
    """A file of a wheel, as far as its headers tell; equal content has equal size and CRC.

    `stamp` is its time, as ZIP packs it; `digest` the hash that RECORD claims, as `sha256=…`, or empty.
    """

    size: int
    crc: int
    executable: bool
    stamp: int
    digest: str = ""


@dataclass(frozen=True, kw_only=True)
class Library(Binary):
    """A binary with its symbols (`exports`, `imports`) and what it holds for PyTorch and for GPUs.

    Attributes:
        compilers: what made its parts, as `.comment` says: `GCC: (GNU) 13.3.1 20240611`.
        operators: those whose schemas it holds; for how sure that is see `interface.operators`.
        kernels: those of its code objects, once for each bundle that has them.
    """

    compilers: tuple[str, ...] = ()
    operators: frozenset[Operator] = field(default=frozenset(), repr=False)
    kernels: tuple[Kernel, ...] = field(default=(), repr=False)


@dataclass(frozen=True, kw_only=True)
class Interface(WheelInfo):
    """What a wheel offers to others and wants of them.

    Attributes:
        files: its members by path, in the order of the archive.
        libraries: those of Linux, Windows and macOS that can be read, by path.
        archives: the kpack archives of a device wheel.
        archived_kernels: path of an archive to the kernels in it.
        python: its public Python names; None where they were not asked for, or griffe is not installed.
        licences: License-Expression, or License and the classifiers of licences, and the License-Files.
        unread: what could not be read and why, as `member: reason`.
        is_listing: neither its libraries nor its archives were read.
    """

    files: Mapping[str, FileState] = field(repr=False)
    libraries: tuple[Library, ...] = field(repr=False)
    archives: tuple[CodeArchive, ...] = ()
    archived_kernels: Mapping[str, tuple[Kernel, ...]] = field(default_factory=dict, repr=False)
    python: PythonApi | None = None
    licences: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    is_listing: bool = False

    @property
    def unpacked_size(self) -> int:
        """Bytes of its members, unpacked."""
        return sum(file.size for file in self.files.values())

    @functools.cached_property
    def targets(self) -> tuple[str, ...]:
        """The targets that it has device code for, sorted; of a listing those that file names tell."""
        if self.is_listing:
            return named_targets(self.files)
        of_libraries = (target for library in self.libraries for target in library.targets)
        return in_order({*of_libraries, *(target for archive in self.archives for target in archive.targets)})

    @functools.cached_property
    def exported(self) -> frozenset[str]:
        """The names of all symbols that its libraries have for others."""
        libraries = (library for library in self.libraries if not library.is_program)
        return frozenset(symbol.name for library in libraries for symbol in library.exports)

    @functools.cached_property
    def imported(self) -> frozenset[Symbol]:
        """The symbols that its libraries do not load without and that no library of its own has."""
        return frozenset(
            symbol
            for library in self.libraries
            for symbol in library.imports
            if not symbol.weak and symbol.name not in self.exported
        )

    @functools.cached_property
    def operators(self) -> frozenset[Operator]:
        """The operators that its libraries register."""
        return frozenset(operator for library in self.libraries for operator in library.operators)

    @functools.cached_property
    def kernels(self) -> frozenset[Kernel]:
        """The kernels of its libraries and archives."""
        of_libraries = (kernel for library in self.libraries for kernel in library.kernels)
        return frozenset(
            {*of_libraries, *(kernel for group in self.archived_kernels.values() for kernel in group)}
        )
