"""What `cairn wheel show` tells about a wheel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cairn.formats.zip.reader import Archive, Limits, Member
from cairn.wheels.contents import binaries, windows_dlls
from cairn.wheels.contents.binaries import Library
from cairn.wheels.contents.windows_dlls import PeLibrary
from cairn.wheels.metadata import wheel_info

_LONGEST_LINK = 4096


@dataclass(frozen=True, kw_only=True)
class LibrarySummary:
    """One binary.

    Attributes:
        member: its path in the wheel.
        machine: what it runs on, as platform tags have it: `x86_64`, `win_amd64`; or `amdgpu`.
        size: bytes unpacked.
        soname: the name others find it by, or None where that is its file name.
        needed: the libraries it needs; DLLs in lower case, since Windows does not tell one from the other.
        run_paths: where it looks for them.
        targets: the targets it has code for.
        device_code_size: bytes of that code, unpacked.
    """

    member: str
    machine: str
    size: int
    soname: str | None
    needed: tuple[str, ...]
    run_paths: tuple[str, ...]
    targets: tuple[str, ...]
    device_code_size: int


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A wheel.

    Attributes:
        file_name: its file name.
        distribution: its project's canonical name.
        version: its version.
        build: its build number, or None.
        tags: the tags it is good for.
        requires_python: the Python versions it supports, or None.
        requires_dist: its requirements.
        extras: its extras.
        entry_points: group to name to object reference.
        size: bytes of the file.
        unpacked_size: bytes of its members.
        members: how many there are.
        metadata_sha256: of METADATA.
        targets: every target it has device code for.
        libraries: its binaries, those of Linux and those of Windows.
        links: its symbolic links and where they lead, as `a -> b`; no wheel may be published that has any.
    """

    file_name: str
    distribution: str
    version: str
    build: str | None
    tags: tuple[str, ...]
    requires_python: str | None
    requires_dist: tuple[str, ...]
    extras: tuple[str, ...]
    entry_points: Mapping[str, Mapping[str, str]]
    size: int
    unpacked_size: int
    members: int
    metadata_sha256: str
    targets: tuple[str, ...]
    libraries: tuple[LibrarySummary, ...]
    links: tuple[str, ...] = ()


def summarise(wheel: Path) -> Summary:
    """Read a wheel.

    Raises:
        WheelError: it cannot be read.
    """
    name = wheel_info.parse_file_name(wheel.name)
    with Archive.open(wheel, limits=Limits(links=True)) as archive:
        info = wheel_info.read_archive(archive, name)
        libraries = binaries.read_libraries(archive)
        dlls = windows_dlls.read_libraries(archive)
        targets = binaries.all_targets(archive, (*libraries, *dlls))
        links = tuple(_link(archive, member) for member in archive.members if member.is_link)
        sizes = [member.size for member in archive.members]
    return Summary(
        file_name=info.file_name,
        distribution=info.distribution,
        version=info.version,
        build=info.build,
        tags=info.tags,
        requires_python=info.requires_python,
        requires_dist=info.requires_dist,
        extras=info.extras,
        entry_points=info.entry_points,
        size=info.size,
        unpacked_size=sum(sizes),
        members=len(sizes),
        metadata_sha256=info.metadata_sha256,
        targets=targets,
        libraries=(*map(_summary_of, libraries), *map(_summary_of_dll, dlls)),
        links=links,
    )


def _link(archive: Archive, member: Member) -> str:
    # A path that is longer than any may be leads nowhere.
    target = archive.read(member.name, limit=_LONGEST_LINK).decode("utf-8", "backslashreplace")
    return f"{member.name} -> {target}"


def _summary_of(library: Library) -> LibrarySummary:
    return LibrarySummary(
        member=library.member,
        machine=library.elf.machine,
        size=library.size,
        soname=library.elf.soname,
        needed=library.elf.needed,
        run_paths=library.elf.rpath + library.elf.runpath,
        targets=library.targets,
        device_code_size=sum(code.size for code in library.code_objects),
    )


def _summary_of_dll(library: PeLibrary) -> LibrarySummary:
    return LibrarySummary(
        member=library.member,
        machine=library.pe.machine,
        size=library.size,
        soname=None,
        needed=library.needed,
        run_paths=(),
        targets=library.targets,
        device_code_size=sum(code.size for code in library.code_objects),
    )
