"""What `cairn wheel show` tells about a wheel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cairn.wheels import inspect, metadata, policy
from cairn.wheels.archive import Archive
from cairn.wheels.inspect import Library


@dataclass(frozen=True, kw_only=True)
class LibrarySummary:
    """One binary.

    Attributes:
        member: its path in the wheel.
        size: bytes unpacked.
        soname: the name others find it by, or None.
        needed: the libraries it needs.
        run_paths: where it looks for them.
        targets: the targets it has code for.
        device_code_size: bytes of that code, unpacked.
    """

    member: str
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
        libraries: its binaries.
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


def summarise(wheel: Path) -> Summary:
    """Read a wheel.

    Raises:
        WheelError: it cannot be read.
    """
    name = metadata.parse_file_name(wheel.name)
    with Archive.open(wheel) as archive:
        info = metadata.read_archive(archive, name)
        libraries = inspect.read_libraries(archive)
        targets = inspect.all_targets(archive, libraries)
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
        libraries=tuple(map(_summary_of, libraries)),
    )


def needed_tree(summary: Summary) -> Iterator[str]:
    """The closure of NEEDED as lines of a tree, from the binaries that no other one needs.

    A library of the wheel stands with its own needs the first time it comes; the others are marked
    `(system)`, on every Linux of the newest manylinux tag, or `(elsewhere)`.
    """
    own = {name: lib for lib in summary.libraries for name in _names(lib)}
    inner = {own[name].member for lib in summary.libraries for name in lib.needed if name in own}
    told: set[str] = set()
    for library in summary.libraries:
        if library.member not in inner:
            yield library.member
            yield from _branches(library, own, told, "")
    # What is left needs each other in a circle.
    for library in summary.libraries:
        if library.member in inner - told:
            yield library.member
            yield from _branches(library, own, told, "")


def _branches(
    library: LibrarySummary, own: Mapping[str, LibrarySummary], told: set[str], indent: str
) -> Iterator[str]:
    told.add(library.member)
    for number, name in enumerate(library.needed, start=1):
        last = number == len(library.needed)
        branch = f"{indent}{'└── ' if last else '├── '}{name}"
        inside = own.get(name)
        if inside is None:
            yield f"{branch} ({_origin(name)})"
        elif inside.member in told:
            yield f"{branch} (above)" if inside.needed else branch
        else:
            yield branch
            yield from _branches(inside, own, told, indent + ("    " if last else "│   "))


def _origin(name: str) -> str:
    known = name in policy.newest().libraries or policy.matches(name, policy.LOADERS)
    return "system" if known else "elsewhere"


def _names(library: LibrarySummary) -> set[str]:
    return {library.member.rpartition("/")[2], *((library.soname,) if library.soname else ())}


def _summary_of(library: Library) -> LibrarySummary:
    return LibrarySummary(
        member=library.member,
        size=library.size,
        soname=library.elf.soname,
        needed=library.elf.needed,
        run_paths=library.elf.rpath + library.elf.runpath,
        targets=library.targets,
        device_code_size=sum(code.size for code in library.code_objects),
    )
