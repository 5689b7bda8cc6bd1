"""What the PE files of a wheel need, and whether Windows will find it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cairn.errors import WheelError
from cairn.formats.zip.reader import Archive
from cairn.output import wording
from cairn.wheels.contents import foreign, manylinux, windows_dlls
from cairn.wheels.contents.windows_dlls import PeLibrary
from cairn.wheels.metadata.wheel_info import FileName
from cairn.wheels.verify import elf, extension_modules
from cairn.wheels.verify.device_code import Checker
from cairn.wheels.verify.findings import Expectation, Finding

_ANY = "any"
_ADDS_FOLDERS = (b"add_dll_directory", b"AddDllDirectory", b"WinDLL")
_PACKAGE_DEPTH = 2


def read(archive: Archive) -> tuple[tuple[PeLibrary, ...], tuple[Finding, ...]]:
    """The PE files of a wheel, and a finding for each that cannot be read."""
    libraries: list[PeLibrary] = []
    findings: list[Finding] = []
    for member in windows_dlls.candidates(archive):
        try:
            if windows_dlls.is_pe(archive, member):
                checker = Checker(member.name)
                libraries.append(windows_dlls.read_library(archive, member, checker))
                findings += checker.findings
        except WheelError as error:
            finding = Finding(
                code="binary-malformed", member=member.name, reason=str(error), fix="build it again"
            )
            findings.append(finding)
    return tuple(libraries), tuple(findings)


def check(
    archive: Archive, libraries: Sequence[PeLibrary], name: FileName, expected: Expectation
) -> Iterator[Finding]:
    """Breaches by PE file."""
    platforms = {tag.split("-")[2] for tag in name.tags}
    own = windows_dlls.shipped(libraries)
    at_home = [library for library in libraries if {_ANY, library.pe.machine} & platforms]
    needed = frozenset(dll for library in at_home for dll in library.needed)
    for library in libraries:
        fits = {_ANY, library.pe.machine} & platforms
        # A DLL's name counts as Windows reads it, in any case.
        meant = at_home and foreign.is_meant(library.member.lower(), library.pe.machine, needed)
        if not fits and not meant:
            yield Finding(
                code="machine",
                member=library.member,
                reason=f"it is for {library.pe.machine}, the wheel for {', '.join(sorted(platforms))}",
                fix="build it for the machine that the tag names",
            )
        yield from extension_modules.check_dll(library.member, library.needed, name)
        yield from _check_needed(library, own, expected)
    yield from _check_folders(archive, libraries)


def _check_needed(library: PeLibrary, own: frozenset[str], expected: Expectation) -> Iterator[Finding]:
    provided = tuple(pattern.lower() for pattern in expected.provided_libraries)
    missing = [
        name
        for name in library.needed
        if name not in own
        and not manylinux.matches(name, provided)
        and not windows_dlls.on_system(name, library.pe.machine)
    ]
    if missing:
        yield Finding(
            code="needed",
            member=library.member,
            reason=f"it needs {wording.some(missing)}: not in the wheel, not a part of Windows or of Python, "
            f"not in {elf.beside(expected)}",
            fix=elf.SUPPLY,
        )


def _check_folders(archive: Archive, libraries: Sequence[PeLibrary]) -> Iterator[Finding]:
    """Windows looks in the folder of what is loaded, and where Python code tells it to, and nowhere else."""
    folders: dict[str, set[str]] = {}
    for library in libraries:
        folder, _, name = library.member.rpartition("/")
        folders.setdefault(name.lower(), set()).add(folder)
    far: dict[str, str] = {}
    for library in libraries:
        here = library.member.rpartition("/")[0]
        away = [name for name in library.needed if name in folders and here not in folders[name]]
        if away:
            far[library.member] = away[0]
    if not far or _adds_folders(archive):
        return
    for member, name in far.items():
        yield Finding(
            code="dll-folder",
            member=member,
            reason=f"it needs {name} of another folder, which no Python code makes known to Windows",
            fix="call os.add_dll_directory() before it is loaded, as delvewheel's patch does",
        )


def _adds_folders(archive: Archive) -> bool:
    """Whether Python code near the top of a package tells Windows of a folder."""
    sources = (
        member.name
        for member in archive.members
        if member.name.endswith(".py") and member.name.count("/") <= _PACKAGE_DEPTH
    )
    return any(mark in archive.read(name) for name in sources for mark in _ADDS_FOLDERS)
