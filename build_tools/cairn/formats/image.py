"""The model of a program or library as its loader sees it, common to ELF, PE and Mach-O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

import msgspec

Format: TypeAlias = Literal["elf", "pe", "macho"]
Names: TypeAlias = Mapping[str, frozenset[bytes]]
"""Names of symbols by their version, of which the empty one is of symbols without any."""

DEVICE = "amdgpu"
"""The machine of a code object, which no loader of the host ever opens."""


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A section.

    Attributes:
        name: its name.
        offset: where it begins in the file.
        size: its bytes in the file; 0 where it takes room in memory alone.
    """

    name: str
    offset: int
    size: int


class Symbol(NamedTuple):
    """A symbol that a binary has for others, or wants of them.

    Attributes:
        name: as the linker has it: mangled. Those of Mach-O are without the underscore that C's names get.
        version: such as `GLIBCXX_3.4.29`; only ELF has any.
        library: which one it is wanted of, where the file says so: with a version, or in a PE file.
        weak: wanted, and missed by nobody; or defined in more than one file, of which the loader takes one.
    """

    name: str
    version: str = ""
    library: str = ""
    weak: bool = False


@dataclass(frozen=True, kw_only=True)
class Image:
    """A program, library or code object. Words are those of ELF where formats have different ones.

    Attributes:
        format: which loader reads it: that of Linux (`elf`), of Windows (`pe`) or of macOS (`macho`).
        machine: what it runs on, as platform tags have it (`x86_64`, `win_amd64`), `amdgpu` for a code object
            that is a file of its own, `any` for a .NET assembly without machine code, or the bare number.
        type: `shared`, `executable`, `relocatable` or `core`; of Mach-O `program`, `library` (which others
            are linked with), `bundle` (which is loaded while a program runs), `object`, or the bare number.
            A program that can be loaded anywhere is `shared` too.
        interpreter: whether it names a dynamic loader, as programs of Linux do.
        is_program: whether it is started, not loaded.
        soname: the name that others find it by (DT_SONAME, LC_ID_DYLIB), or None where that is its file name.
        needed: the libraries it needs (DT_NEEDED; the import and delay-load tables), in order. Those of a PE
            file are in lower case, since Windows ignores case.
        rpath: folders of DT_RPATH, which are searched before LD_LIBRARY_PATH, and of LC_RPATH.
        runpath: folders of DT_RUNPATH, which are searched after it.
        version_needs: library to the symbol versions wanted of it (`GLIBC_2.28`); only ELF has any.
        undefined: those of the symbols looked for that it does not load without: undefined, and not weak.
        python_defined: the symbols that begin as Python's do and that it has for others, where asked for.
        python_wanted: those that it does not load without; of a PE file those of a DLL of Python's.
        instruction_set: the level of x86-64 that it asks of its processor, such as `x86-64-v3`.
        executable_stack: whether it asks for a stack that code can be run from.
        minimum_macos: the oldest macOS that it says it runs on; None where it does not say, or is for another
            system of Apple's.
        systems: the systems of Apple's that it says it is for, such as `macOS`.
        refusal: why a loader refuses it whatever the machine has; empty where nothing is known.
        is_signature_unread: whether it has a signature for Apple silicon whose hashes were not compared.
        sections: all sections, where they were asked for.
        exports: the symbols that others can bind to, where they were asked for; none of a program for Linux.
        imports: those that it wants of others, where they were asked for.
        defines: the names of those that others can bind to, where they were asked for; only ELF has any. None
            where there are too many to read.
        wants: the names of those that it does not load without, in the same way.
    """

    format: Format
    machine: str
    type: str = "shared"
    interpreter: bool = False
    is_program: bool = False
    soname: str | None = None
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    version_needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    undefined: frozenset[str] = frozenset()
    python_defined: frozenset[str] = frozenset()
    python_wanted: frozenset[str] = frozenset()
    instruction_set: str = ""
    executable_stack: bool = False
    minimum_macos: tuple[int, int] | None = None
    systems: frozenset[str] = frozenset()
    refusal: str = ""
    is_signature_unread: bool = False
    sections: tuple[Section, ...] = ()
    exports: frozenset[Symbol] = field(default=frozenset(), repr=False)
    imports: frozenset[Symbol] = field(default=frozenset(), repr=False)
    defines: Names | None = field(default_factory=dict, repr=False)
    wants: Names = field(default_factory=dict, repr=False)

    @property
    def run_paths(self) -> tuple[str, ...]:
        """The folders of DT_RPATH and DT_RUNPATH."""
        return self.rpath + self.runpath

    @property
    def is_device_code(self) -> bool:
        """Whether it is a code object itself."""
        return self.machine == DEVICE

    def section(self, name: str) -> Section | None:
        """The first section of that name."""
        return next((section for section in self.sections if section.name == name), None)
