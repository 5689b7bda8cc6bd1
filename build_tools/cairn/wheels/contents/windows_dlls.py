"""The PE files in a wheel, what they need, and what Windows has of it."""

from __future__ import annotations

import functools
import importlib
import os
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from cairn.errors import PrerequisiteError, WheelError
from cairn.formats import pe
from cairn.formats.offload import code_object
from cairn.formats.offload.bundle import Checker
from cairn.formats.offload.code_object import CodeObject
from cairn.formats.pe import Pe
from cairn.formats.view import MemberView, View
from cairn.formats.zip.layout import Member
from cairn.formats.zip.reader import Archive
from cairn.targets import in_order

"""The section with the offload bundles: `.hip_fatbin` in the eight characters that a name may have."""

SUFFIXES = (".dll", ".pyd", ".exe")
_PYTHON = re.compile(r"(?:python|libpypy|vcruntime)[0-9].*\.dll")
_SMALLEST = 64
# What delvewheel's lists lack: API sets, which are Windows' own and may be absent by design
# (learn.microsoft.com, "Windows API sets"), and what has come with Windows since 8.1 and 10.
_API_SETS = ("api-ms-win-", "ext-ms-win-", "ext-ms-onecore-")
_LATER = frozenset(("d3dcompiler_47.dll", "icu.dll", "icuin.dll", "icuuc.dll"))


@dataclass(frozen=True, kw_only=True)
class PeLibrary:
    """A PE file in a wheel.

    Attributes:
        member: its path.
        size: bytes unpacked.
        pe: what the loader reads of it.
        code_objects: its device code.
    """

    member: str
    size: int
    pe: Pe
    code_objects: tuple[CodeObject, ...] = ()

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets it has code for, sorted."""
        return in_order(str(code.target) for code in self.code_objects)

    @property
    def needed(self) -> tuple[str, ...]:
        """The DLLs it needs at once or later, in lower case."""
        return tuple(dict.fromkeys(name.lower() for name in (*self.pe.imports, *self.pe.delay_imports)))


def read_libraries(archive: Archive) -> tuple[PeLibrary, ...]:
    """Every PE file in a wheel, by path, on all cores.

    Raises:
        WheelError: one of them is malformed; the message names it.
    """
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        members = [member for member in candidates(archive) if is_pe(archive, member)]
        found = pool.map(lambda member: read_library(archive, member), members)
        return tuple(sorted(found, key=lambda library: library.member))


def candidates(archive: Archive) -> Iterator[Member]:
    """The members that a loader of Windows would open by their names."""
    return (m for m in archive.members if m.size >= _SMALLEST and m.name.lower().endswith(SUFFIXES))


def is_pe(archive: Archive, member: Member) -> bool:
    """Whether a member begins like a PE file.

    Raises:
        WheelError: it cannot be unpacked.
    """
    return pe.is_pe(MemberView(archive, member).read(0, len(pe.MAGIC)))


def read_library(archive: Archive, member: Member, checker: Checker | None = None) -> PeLibrary:
    """One PE file, the content of its bundles looked at by `checker`.

    Raises:
        WheelError: it is malformed; the message names it.
    """
    try:
        view = MemberView(archive, member)
        parsed = pe.read_view(view)
        return PeLibrary(
            member=member.name, size=member.size, pe=parsed, code_objects=device_code(view, parsed, checker)
        )
    except WheelError as error:
        raise WheelError(f"{member.name}: {error}", tip=error.tip) from error


def device_code(view: View, parsed: Pe, checker: Checker | None = None) -> tuple[CodeObject, ...]:
    """The code objects of a PE file.

    Raises:
        WheelError: they are malformed.
    """
    return tuple(
        found
        for start, end in code_object.pe_ranges(parsed)
        for found in code_object.read_range(view, start, end, checker)
    )


def shipped(libraries: Iterable[PeLibrary]) -> frozenset[str]:
    """The names by which the files of a wheel are found, in lower case."""
    return frozenset(library.member.rpartition("/")[2].lower() for library in libraries)


def on_system(name: str, machine: str) -> bool:
    """Whether every Windows, or every Python on it, has a DLL of that name.

    Args:
        name: the DLL.
        machine: as platform tags have it, such as `win_amd64`.

    Raises:
        PrerequisiteError: delvewheel, whose list this is, is not installed.
    """
    name = name.lower()
    if name.startswith(_API_SETS) or name in _LATER:
        return True
    names, patterns = _known(machine)
    return name in names or bool(_PYTHON.fullmatch(name)) or any(p.fullmatch(name) for p in patterns)


@functools.cache
def _known(machine: str) -> tuple[frozenset[str], tuple[re.Pattern[str], ...]]:
    try:
        lists = importlib.import_module("delvewheel._dll_list")
    except ModuleNotFoundError as error:
        raise PrerequisiteError("delvewheel is not installed", tip="pip install delvewheel") from error
    kind = lists.MachineType.platform_tag_to_type(machine)
    return frozenset(lists.ignore_names.get(kind, ())), tuple(lists.ignore_regexes)
