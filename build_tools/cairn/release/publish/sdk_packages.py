"""Which packages of a ROCm SDK an index lacks, version by version, and the newest version that it has whole.

An index lacks some packages of a version that is just being published, and of one whose files are being
deleted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from packaging.utils import canonicalize_name
from packaging.version import Version

from cairn import datafile, requirements, simple_index
from cairn import targets as gpu
from cairn.errors import CairnError, UsageError
from cairn.output import wording
from cairn.package_index import TIP
from cairn.release.index.generation import project_of, version_of
from cairn.release.publish import distribution, mirror_lock
from cairn.release.publish.compatibility import Platform

INSTALLED = ("rocm", "rocm-sdk-core", "rocm-sdk-devel")
"""The packages that each build installs, with libraries for its GPUs."""
LIBRARIES = "rocm-sdk-libraries"
"""The package of the libraries; of one family where that follows."""
DEVICE = "rocm-sdk-device-"
"""Before a processor, the package of its device code, where that is apart."""
_SHOWN = 3  # packages that are named


def lacks_by_version(
    index_url: str, places_of_gpus: Sequence[tuple[Platform, Sequence[str]]]
) -> dict[Version, tuple[str, ...]]:
    """Return the versions of ROCm that an index has, newest first, with the packages that each one lacks.

    A build installs all of them, or makes wheels that require them.

    Args:
        index_url: the index.
        places_of_gpus: the Pythons and platforms that it is installed on, each with families of GPUs, or
            targets. Each family has libraries, or each target device code beside libraries for all.

    Raises:
        NetworkError: the index does not answer.
    """
    families = [name for _, names in places_of_gpus for name in names]
    of_gpus = [*families, *_targets(families)]
    names = (*INSTALLED, LIBRARIES, *map(_libraries_of, of_gpus), *devices_of(families))
    by_version: dict[Version, list[str]] = {}
    for file in (file for name in dict.fromkeys(names) for file in simple_index.files(index_url, name)):
        with contextlib.suppress(CairnError):  # no file of a distribution
            by_version.setdefault(Version(version_of(file.name)), []).append(file.name)
    return {
        version: tuple(
            dict.fromkeys(
                name
                for place, names in places_of_gpus
                for name in _lacking(by_version[version], version, place=place, families=names)
            )
        )
        for version in simple_index.versions(index_url, "rocm")
    }


def never_there(lacks: Mapping[Version, Sequence[str]]) -> tuple[str, ...]:
    """Return the packages of device code that an index has of no version: it is not for these GPUs."""
    always = set.intersection(*map(set, lacks.values())) if lacks else set[str]()
    return tuple(sorted(name for name in always if is_of_device(name)))


def choose_version(
    lacks: Mapping[str, Mapping[Version, Sequence[str]]], version: str | None
) -> tuple[str, tuple[str, ...]]:
    """Return the version of ROCm to take, and a sentence on each newer one that is there in part.

    Args:
        lacks: an index to what `lacks_by_version` says of it.
        version: the only one that will do; None for the newest that every index has whole.

    Raises:
        UsageError: an index does not have it, or no version whole.
    """
    problems = dict[Version, str]()
    for url, of_index in lacks.items():
        for each in {*of_index, *([Version(version)] if version else ())}:
            if missing := of_index.get(each, ("rocm",)):
                problems.setdefault(each, _incomplete(url, each, missing))
    whole = set.intersection(*map(set, lacks.values())) - problems.keys()
    chosen = Version(version) if version else max(whole, default=None)
    if chosen not in whole:
        newest = chosen if version else max(problems, default=None)
        url = next((url for url, of_index in lacks.items() if not of_index), next(iter(lacks)))
        others = f"--rocm-version {max(whole)} is whole" if whole else "try again later"
        raise UsageError(
            problems[newest]
            if newest
            else f"{url} has no ROCm that the others have, too; {simple_index.instead(url, 'rocm')}",
            tip=f"its publisher may be at work: {others}, or name another index",
        )
    return str(chosen), tuple(problems[each] for each in sorted(problems, reverse=True) if each > chosen)


def _incomplete(index_url: str, version: Version, missing: Sequence[str]) -> str:
    """The sentence on a version of which an index lacks packages."""
    if "rocm" in missing:
        return f"{index_url} has no ROCm {version}; {simple_index.instead(index_url, 'rocm')}"
    return f"{index_url} has ROCm {version} without {wording.some(missing, shown=_SHOWN)}"


def _libraries_of(family: str) -> str:
    return f"{LIBRARIES}-{family.lower()}"


def _targets(families: Sequence[str]) -> tuple[str, ...]:
    return gpu.parse_targets(families) if families else ()


def devices_of(families: Sequence[str]) -> list[str]:
    """The packages with the device code of families whose host libraries are in a package for all GPUs."""
    processors = [gpu.parse_target_id(target).processor for target in _targets(families)]
    return [f"{DEVICE}{name}" for name in dict.fromkeys(processors)]


def _lacking(
    file_names: Iterable[str],
    version: Version,
    *,
    place: Platform,
    families: Sequence[str],
    packages: Iterable[str] = INSTALLED,
) -> Iterator[str]:
    """The packages of an SDK that are not among files: those `packages`, and libraries for each family.

    Where host libraries and device code are apart, these are one package for all, and one for each target.
    """
    present = {
        project_of(name)
        for name in file_names
        if Version(version_of(name)) == version and place.takes(name, None)
    }
    members = {_libraries_of(name): targets for name, targets in gpu.families().items()}
    covered = {target for name in present for target in members.get(name, ())}
    apart = [LIBRARIES, *devices_of(families)]
    is_apart = not present.isdisjoint(apart)
    names = dict.fromkeys((*packages, *(apart if is_apart else ())))
    for family in families if not is_apart else ():
        targets = {name for name in gpu.parse_targets(family) if _libraries_of(name) not in present}
        if not targets <= covered:
            names[_libraries_of(family)] = None
    yield from (name for name in names if name not in present)


class _Extras(TypedDict):
    devel: list[str]
    libraries: dict[str, list[str]]


class _Described(TypedDict):
    """Of the `_dist.json` in an sdist that `cairn rocm package` wrote: what names the SDK's packages."""

    families: dict[str, list[str]]
    requires: list[str]
    extras: _Extras


def lacking_by(
    sdists: Iterable[Path],
    file_names: Collection[str],
    version: Version,
    *,
    place: Platform,
    families: Sequence[str],
    of_gpus: Collection[str],
) -> tuple[str, ...]:
    """The packages of an SDK that are not among files, asked of its sdists where there are some."""
    needed = [_needed_by(sdist, place, families, of_gpus) for sdist in sdists] or [(INSTALLED, families)]
    return tuple(
        dict.fromkeys(
            name
            for packages, of_families in needed
            for name in _lacking(file_names, version, place=place, families=of_families, packages=packages)
        )
    )


def _needed_by(
    sdist: Path, place: Platform, families: Sequence[str], of_gpus: Collection[str]
) -> tuple[Sequence[str], Sequence[str]]:
    """The SDK's packages that a build installs by an sdist of `rocm`, and the families it says nothing of.

    Ours has those of each family in `_dist.json`. TheRock's chooses a family when it is built, and its
    PKG-INFO has the choice of the machine that made it; what is named after other GPUs is passed over.
    """
    with sdist.open("rb") as stream:
        data = distribution.sdist_member(stream, sdist.name, "rocm_sdk/_dist.json")
    if data is not None:
        try:
            described = datafile.decode(data, _Described)
        except ValueError as error:
            raise UsageError(f"the _dist.json of {sdist.name} cannot be read: {error}", tip=TIP) from error
        lines, names = [*described["requires"], *described["extras"]["devel"]], ["rocm"]
        for target in gpu.parse_targets(families):
            holding = [name for name, members in described["families"].items() if target in (name, *members)]
            names += [] if holding else [_libraries_of(target)]
            lines += [line for name in holding[:1] for line in described["extras"]["libraries"][name]]
        return [*names, *(str(canonicalize_name(requirements.requirement(line).name)) for line in lines)], ()
    extras = ("", "libraries", "devel", *(f"device-{name}" for name in of_gpus))
    needed = [
        str(canonicalize_name(each.name))
        for each in distribution.read(sdist).needs.requires
        if each.marker is None
        or any(each.marker.evaluate(place.markers() | {"extra": extra}) for extra in extras)
    ]
    return [*INSTALLED, *(name for name in needed if is_for(name, of_gpus))], families


def is_for(project: str, of_gpus: Collection[str]) -> bool:
    """Whether a project is of the SDK, and not named after other GPUs than these."""
    _, dash, gpus = project.partition("-gfx")
    return mirror_lock.is_of_sdk(project) and (not dash or f"gfx{gpus}" in of_gpus)


def is_of_device(project: str) -> bool:
    """Whether a project has device code of one target."""
    return project.startswith(DEVICE)


def unserved(file_names: Iterable[str], families: Sequence[str]) -> list[str]:
    """The packages of device code for families of which an index has no version."""
    projects, devices = set(map(project_of, file_names)), devices_of(families)
    if projects.isdisjoint((LIBRARIES, *devices)):
        return []
    return [name for name in devices if name not in projects]
