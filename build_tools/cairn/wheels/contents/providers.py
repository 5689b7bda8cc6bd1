"""Finding the libraries that come with the wheels that a wheel requires.

Only the file names in the central directory of those wheels are read, so that an SDK of gigabytes need not be
unpacked; ROCm's packages store each library under its SONAME.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from cairn.errors import CairnError, UsageError
from cairn.formats.zip.reader import Archive
from cairn.requirements import extras_of
from cairn.wheels.metadata import wheel_info
from cairn.wheels.metadata.fields import core_metadata
from cairn.wheels.metadata.wheel_info import FileName


class Supply(msgspec.Struct, frozen=True, kw_only=True):
    """The libraries and versions that other wheels supply to a wheel.

    Attributes:
        libraries: names of the libraries that come from those it requires, sorted.
        versions: distribution to the versions of it that are there.
        extras: distribution to the extras that they declare.
        in_wheels: distribution to the libraries in its wheels, whoever requires them.
        wheels: those that it or an extra of it requires, among the wheels that were named.
    """

    libraries: tuple[str, ...] = ()
    versions: Mapping[str, tuple[str, ...]]
    extras: Mapping[str, frozenset[str]] = msgspec.field(default_factory=dict)
    in_wheels: Mapping[str, frozenset[str]] = msgspec.field(default_factory=dict)
    wheels: tuple[Path, ...] = ()


class _Supplier(msgspec.Struct, frozen=True, kw_only=True):
    """A wheel that others may require.

    Attributes:
        path: the file.
        name: of its distribution, normalised.
        version: its version.
        requires: what it always requires, not what its extras do.
        by_extras: what its extras require.
        extras: those that it declares.
        libraries: file names of the shared libraries in it.
    """

    path: Path
    name: str
    version: str
    requires: tuple[Requirement, ...]
    by_extras: tuple[Requirement, ...]
    extras: frozenset[str]
    libraries: frozenset[str]


def supplies(wheels: Sequence[Path], *, folders: Iterable[Path] = ()) -> dict[Path, Supply]:
    """For each wheel, the libraries and versions that other wheels supply when it is installed.

    Args:
        wheels: wheels that are installed together. Each is given the libraries of those among them that it
            requires in that very version, directly or by way of others of them; one that cannot be read
            supplies nothing.
        folders: of wheels that are required in ways that METADATA does not show, as those of the ROCm SDK are
            by its sdist: all their libraries are there for each, except those of a project that it
            requires in a different version.

    Raises:
        UsageError: there is no such folder.
        WheelError: a wheel in a folder cannot be read.
    """
    everywhere = list(_in_folders(folders))
    if len(wheels) == 1 and not everywhere:  # not read for nothing: a torch wheel has 12,000 members
        return {wheels[0]: Supply(versions={})}
    read = {path: _read_if_whole(path) for path in wheels}
    known: dict[str, list[_Supplier]] = {}
    for supplier in filter(None, read.values()):
        known.setdefault(supplier.name, []).append(supplier)
    pairs = [(supplier.name, supplier.version) for those in known.values() for supplier in those]
    pairs += [(name.distribution, name.version) for name, _, _ in everywhere]
    # One wheel of each Python and platform may be named at once, so a version comes several times.
    versions: dict[str, tuple[str, ...]] = {}
    for name, version in dict.fromkeys(pairs):
        versions[name] = (*versions.get(name, ()), version)
    extras: dict[str, frozenset[str]] = {}
    declared = [(supplier.name, supplier.extras) for those in known.values() for supplier in those]
    for distribution, names in (*declared, *((name.distribution, names) for name, _, names in everywhere)):
        extras[distribution] = extras.get(distribution, frozenset()) | names
    in_wheels: dict[str, frozenset[str]] = {}
    holding = [(supplier.name, supplier.libraries) for those in known.values() for supplier in those]
    for distribution, names in (*holding, *((name.distribution, names) for name, names, _ in everywhere)):
        in_wheels[distribution] = in_wheels.get(distribution, frozenset()) | names
    supplies: dict[Path, Supply] = {}
    for path, supply in read.items():
        requires = supply.requires if supply else ()
        suppliers = _required(supply, requires, known) if supply else []
        by_extras = _required(supply, supply.by_extras, known) if supply else []
        libraries = _from_folders(requires, everywhere).union(*(supplier.libraries for supplier in suppliers))
        supplies[path] = Supply(
            libraries=tuple(sorted(libraries)),
            versions=versions,
            extras=extras,
            in_wheels=in_wheels,
            wheels=tuple(dict.fromkeys(supplier.path for supplier in (*suppliers, *by_extras))),
        )
    return supplies


def library_names(archive: Archive) -> frozenset[str]:
    """File names of the shared libraries in a wheel: of Linux, Windows and macOS."""
    # SONAMEs mostly end in a version: libtorch.so, but libamdhip64.so.7. A framework's library has its name.
    paths = (member.name.rpartition("/") for member in archive.members)
    return frozenset(
        name
        for folder, _, name in paths
        if ".so" in name
        or name.lower().endswith((".dll", ".dylib"))
        or f"/{name}.framework/" in f"/{folder}/"
    )


def declared_extras(archive: Archive) -> frozenset[str]:
    """The extras that a wheel declares; of its dist-info folder METADATA alone is read."""
    name = wheel_info.parse_file_name(archive.path.name, variants_too=True)
    metadata = archive.read(f"{wheel_info.find_dist_info(archive, name.distribution)}/METADATA")
    return frozenset(core_metadata(metadata, name="METADATA").get("provides_extra", ()))


def _in_folders(folders: Iterable[Path]) -> Iterator[tuple[FileName, frozenset[str], frozenset[str]]]:
    """The wheels of folders, each with the libraries in it and the extras that it declares."""
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"there is no folder {folder}", tip="name the folder of the wheels it requires")
        for wheel in sorted(folder.glob("*.whl")):
            with Archive.open(wheel) as archive:
                name = wheel_info.parse_file_name(wheel.name, variants_too=True)
                yield name, library_names(archive), declared_extras(archive)


def _read_if_whole(wheel: Path) -> _Supplier | None:
    try:
        with Archive.open(wheel) as archive:
            info = wheel_info.read_archive(archive, variants_too=True)
            required = [wheel_info.requirement(text) for text in info.requires_dist]
            libraries = library_names(archive)
    except CairnError:
        return None
    of_extras = [requirement for requirement in required if extras_of(requirement)]
    return _Supplier(
        path=wheel,
        name=info.distribution,
        version=info.version,
        # What an extra requires is installed only where the extra is asked for.
        requires=tuple(requirement for requirement in required if requirement not in of_extras),
        by_extras=tuple(of_extras),
        extras=frozenset(info.extras),
        libraries=libraries,
    )


def _from_folders(
    requires: Iterable[Requirement],
    everywhere: Iterable[tuple[FileName, frozenset[str], frozenset[str]]],
) -> set[str]:
    requirements: dict[str, list[Requirement]] = {}
    for requirement in requires:
        requirements.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    names: set[str] = set()
    for name, libraries, _ in everywhere:
        required = requirements.get(name.distribution)
        if required is None or any(meets(name.version, requirement) for requirement in required):
            names |= libraries
    return names


def _required(
    wheel: _Supplier, requires: Iterable[Requirement], known: Mapping[str, Sequence[_Supplier]]
) -> list[_Supplier]:
    # torchaudio requires torch, and torch triton: all of them are there when it is loaded.
    required: list[_Supplier] = []
    queue, seen, visited_extras = [*requires], {wheel.path}, set[tuple[Path, str]]()
    while queue:
        requirement = queue.pop()
        for supplier in known.get(canonicalize_name(requirement.name), ()):
            same = (supplier.name, supplier.version) == (wheel.name, wheel.version)
            if same or not meets(supplier.version, requirement):
                continue
            if supplier.path not in seen:
                seen.add(supplier.path)
                required.append(supplier)
                queue += supplier.requires
            extras = {(supplier.path, str(canonicalize_name(extra))) for extra in requirement.extras}
            new = extras - visited_extras
            visited_extras |= new
            names = {extra for _, extra in new}
            queue += [requirement for requirement in supplier.by_extras if extras_of(requirement) & names]
    return required


def meets(version: str, requirement: Requirement) -> bool:
    """Whether a version satisfies a requirement; a pre-release may."""
    try:
        return requirement.specifier.contains(version, prereleases=True)
    except InvalidVersion:
        return False
