"""An index of the ROCm SDK, held against a lock: what it offers to be reviewed, and pip's view of it then."""

from __future__ import annotations

import contextlib
import html
import re
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from packaging.utils import canonicalize_name
from packaging.version import Version

from cairn import datafile, files, requirements, simple_index
from cairn import targets as gpu
from cairn.errors import CairnError, NetworkError, UsageError
from cairn.output import Progress, silent
from cairn.package_index import TIP
from cairn.release.index.generation import project_of, version_of
from cairn.release.publish import distribution, mirror, mirror_lock
from cairn.release.publish.compatibility import Platform
from cairn.release.publish.mirror_lock import MirrorLock
from cairn.simple_index import IndexFile
from cairn.venv import PackageSource

_INSTALLED = ("rocm", "rocm-sdk-core", "rocm-sdk-devel")  # by each build, with libraries for its GPUs
_LIBRARIES = "rocm-sdk-libraries"
# What there is of an SDK where the root of an index lists nothing.
_UNLISTED = (
    *(*_INSTALLED, _LIBRARIES, "rocm-profiler"),
    *(f"rocm-sdk-device-{target}" for target in gpu.known_targets()),
)
_PLAIN_URL = re.compile(r"(https?|file)://[\w.~:/@%+=,!()\[\]-]+", re.ASCII)


def versions(lock: MirrorLock | None) -> frozenset[Version]:
    """The versions of the ROCm SDK that a lock names."""
    return frozenset(Version(version_of(name)) for name in (lock.sdk if lock else ()))


def offered(index_url: str) -> dict[str, IndexFile]:
    """The files of the ROCm SDK that an index offers, by name (PEP 503).

    Raises:
        NetworkError: it does not answer.
    """
    listed = simple_index.projects(index_url)
    names = dict.fromkeys(str(canonicalize_name(name)) for name in listed)
    by_name = _files_of(
        index_url,
        [name for name in names if mirror_lock.is_of_sdk(name)] if listed else _UNLISTED,
        may_lack=not listed,
    )
    if not (listed or by_name):
        raise NetworkError(f"there is no package index at {index_url}", tip=TIP)
    return by_name


def _files_of(index_url: str, projects: Iterable[str], *, may_lack: bool) -> dict[str, IndexFile]:
    """The files on the pages of projects; an index that `may_lack` a page has no file of it."""
    pages = (simple_index.files(index_url, name, may_lack=may_lack) for name in projects)
    return {file.name: file for page in pages for file in page}


def lacking(index_url: str, version: str, *, place: Platform, families: Sequence[str]) -> tuple[str, ...]:
    """Return the packages of an SDK of this version that an index lacks: builds install them all.

    Args:
        index_url: the index.
        version: of ROCm.
        place: the Python and platform that it is installed on.
        families: of GPUs; each has libraries of its own where those for all are not there.

    Raises:
        NetworkError: the index does not answer.
    """
    of_gpus = (name for family in families for name in (family, *gpu.parse_targets(family)))
    names = dict.fromkeys((*_INSTALLED, _LIBRARIES, *map(_libraries_of, of_gpus)))
    by_name = _files_of(index_url, names, may_lack=True)
    return tuple(_lacking(by_name, Version(version), place=place, families=families))


def _libraries_of(family: str) -> str:
    return f"{_LIBRARIES}-{family.lower()}"


def _lacking(
    file_names: Iterable[str],
    version: Version,
    *,
    place: Platform,
    families: Iterable[str],
    named: Iterable[str] = _INSTALLED,
) -> Iterator[str]:
    """The packages of an SDK that are not among files: those `named`, and libraries for each family."""
    present = {
        project_of(name)
        for name in file_names
        if Version(version_of(name)) == version and place.takes(name, None)
    }
    members = {_libraries_of(name): targets for name, targets in gpu.families().items()}
    covered = {target for name in present for target in members.get(name, ())}
    names = dict.fromkeys(named)
    for family in families if _LIBRARIES not in present else ():
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


def _lacking_by(
    sdists: Iterable[Path],
    file_names: Collection[str],
    version: Version,
    *,
    place: Platform,
    families: Sequence[str],
    of_gpus: Collection[str],
) -> tuple[str, ...]:
    """The packages of an SDK that are not among files, asked of its sdists where there are some."""
    needed = [_needed_by(sdist, place, families, of_gpus) for sdist in sdists] or [(_INSTALLED, families)]
    return tuple(
        dict.fromkeys(
            name
            for named, of_families in needed
            for name in _lacking(file_names, version, place=place, families=of_families, named=named)
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
    return [*_INSTALLED, *(name for name in needed if _is_for(name, of_gpus))], families


def _is_for(project: str, of_gpus: Collection[str]) -> bool:
    """Whether a project is of the SDK, and not named after other GPUs than these."""
    _, dash, gpus = project.partition("-gfx")
    return mirror_lock.is_of_sdk(project) and (not dash or f"gfx{gpus}" in of_gpus)


def to_lock(
    urls: Mapping[str, Sequence[str]],
    version: str | None,
    *,
    places: Sequence[Platform],
    folder: Path,
    say: Progress = silent,
) -> tuple[dict[str, dict[str, IndexFile]], tuple[str, ...], tuple[Path, ...]]:
    """The files of an SDK that a stack may install, of all these indexes, each by name and sha256.

    Also returns the names of those of which no index gives a sha256: they are fetched here, and theirs is
    that of the bytes that came, which nobody has verified. Last, the sdists among the files, which are
    fetched: they name what a build installs.

    Args:
        urls: the indexes, each with the families of the stack that it serves; what is named after other
            GPUs than those of all these families is left out.
        version: of ROCm; None for the newest that each index has.
        places: the Pythons and platforms of the stack.
        folder: receives what has to be fetched.
        say: progress callback.

    Raises:
        UsageError: an index has no such SDK, or lacks a package of it that builds install.
        NetworkError: it does not answer.
    """
    families = tuple(dict.fromkeys(name for of_index in urls.values() for name in of_index))
    of_gpus = {name.lower() for name in (*families, *gpu.parse_targets(families))}
    by_url = {url: dict(_installable(offered(url), places, of_gpus)) for url in urls}
    by_index = [
        {Version(version_of(name)) for name in of_index if project_of(name) == "rocm"}
        for of_index in by_url.values()
    ]
    common = set.intersection(*by_index)
    chosen = Version(version) if version else max(common, default=None)
    if chosen is None or chosen not in common:
        lacking = next(url for url, has in zip(by_url, by_index, strict=True) if chosen not in has)
        raise UsageError(
            f"{lacking} has no rocm {version or 'that the others have, too'}; "
            f"{simple_index.instead(lacking, 'rocm')}",
            tip=TIP,
        )
    by_name: dict[str, dict[str, IndexFile]] = {}
    unverified: dict[str, None] = {}
    sdists: dict[Path, None] = {}
    for url, of_index in by_url.items():
        of_version = {name: file for name, file in of_index.items() if Version(version_of(name)) == chosen}
        of_url = list[Path]()
        for name, file in of_version.items():
            if (sha256 := file.sha256) is None:
                say(f"fetching {name}, of which its index gives no sha256")
                sha256 = _fetched_sha256(file, folder)
                unverified[name] = None
            by_name.setdefault(name, {})[sha256] = file
            if ".tar." in name:
                sdist = folder / sha256 / name
                of_url.append(sdist if sdist.is_file() else fetch(file, sha256, folder))
        sdists |= dict.fromkeys(of_url)
        for place in places:
            if missing := _lacking_by(
                of_url, of_version, chosen, place=place, families=urls[url], of_gpus=of_gpus
            ):
                raise UsageError(
                    f"{url} has ROCm {chosen} without {', '.join(missing)}, which builds for {place} install",
                    tip="lock an earlier version (--rocm-version), or this one once it is uploaded whole",
                )
    return by_name, tuple(unverified), tuple(sdists)


def _fetched_sha256(file: IndexFile, folder: Path) -> str:
    """Fetch a file, and return the sha256 of what came."""
    path = folder / "unverified"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        return simple_index.download(file, path)
    finally:
        path.unlink(missing_ok=True)


def fetch(file: IndexFile, sha256: str, folder: Path) -> Path:
    """Fetch a file of an index that has this sha256.

    Raises:
        NetworkError: it is not there, or has other bytes.
    """
    path = folder / sha256 / file.name
    path.parent.mkdir(parents=True)
    if (actual := simple_index.download(file, path)) != sha256:
        raise NetworkError(f"{file.url} has other bytes: sha256 {actual}, and not {sha256}", tip=TIP)
    return path


def device_packages(
    index_url: str, version: str, processors: Iterable[str], place: Platform
) -> dict[str, str]:
    """The SDK's packages of device code that an index has for these processors: file name to sha256.

    A build that leaves device wheels needs none of them, and its device wheels do.
    """
    projects = [f"rocm-sdk-device-{processor}" for processor in processors]
    with tempfile.TemporaryDirectory(prefix="cairn-sdk-") as folder:
        return {
            name: file.sha256 or _fetched_sha256(file, Path(folder))
            for name, file in _files_of(index_url, projects, may_lack=True).items()
            if Version(version_of(name)) == Version(version) and place.takes(name, None)
        }


def fetch_installed(
    index_url: str, sha256s: Mapping[str, str], folder: Path, *, tip: str, say: Progress = silent
) -> list[Path]:
    """Fetch files of the ROCm SDK that a build installed from an index, by the sha256 that its builder names.

    Args:
        index_url: the index, as the night froze it; the builder has no say in what is asked.
        sha256s: the files, name to sha256.
        folder: receives them.
        tip: what to do where one cannot be had.
        say: progress callback.

    Raises:
        NetworkError: the index does not answer, has dropped a file, or has other bytes under its name.
    """
    problems, paths = list[str](), list[Path]()
    by_name = _files_of(index_url, dict.fromkeys(map(project_of, sha256s)), may_lack=True)
    for name, sha256 in sha256s.items():
        if (file := by_name.get(name)) is None:
            problems.append(f"{index_url} has no {name} any more")
        elif file.sha256 not in (None, sha256):
            problems.append(
                f"{index_url} has {name} with sha256 {file.sha256}, and the build installed {sha256}"
            )
        else:
            say(f"fetching {name}")
            try:
                paths.append(fetch(file, sha256, folder))
            except NetworkError as error:
                problems.append(str(error))
    if problems:
        if any(name not in by_name for name in sha256s):
            problems.append(simple_index.instead(index_url, "rocm"))
        raise NetworkError(
            f"the ROCm SDK that the build installed cannot be copied: {'; '.join(problems)}", tip=tip
        )
    return paths


def reviewed(index_url: str, lock: MirrorLock, place: Platform, folder: Path) -> PackageSource:
    """The files of an index that a lock has, and what builds the sdist among them: pip takes no other bytes.

    pip holds a file against the sha256 in its link; what it runs to build one is fetched here.

    Args:
        index_url: the index.
        lock: what was reviewed.
        place: which Python and platform they are installed on.
        folder: receives a page of links to them, and what the lock has for the sdist.

    Raises:
        NetworkError: a file cannot be fetched.
    """
    if folder.exists():
        shutil.rmtree(folder)  # what an earlier lock had
    page, offer = folder / "sdk.html", offered(index_url)
    links, sdists = dict[str, str](), list[Path]()
    if versions(lock).isdisjoint(Version(version_of(name)) for name in offer if project_of(name) == "rocm"):
        has = ", ".join(map(str, sorted(versions(lock), reverse=True)))
        raise NetworkError(
            f"{index_url} has no ROCm {has} any more, which the lock names; "
            f"{simple_index.instead(index_url, 'rocm')}",
            tip=f"lock what it has, and have it reviewed: {mirror_lock.LOCK_SDK}",
        )
    for name in sorted(lock.sdk.keys() & offer.keys()):
        file, locked = offer[name], lock.sdk[name].split()
        sha256 = file.sha256 if file.sha256 in locked else locked[0]  # of this family
        if name.endswith(".tar.gz"):
            sdists.append(fetch(file, sha256, folder))
        elif not _PLAIN_URL.fullmatch(file.url):  # pip takes the first hash that it sees, before the fragment
            raise NetworkError(
                f"{index_url} has a link to {name} with more than a path: {file.url[:200]}", tip=TIP
            )
        else:
            links[name] = f"{file.url}#sha256={sha256}"
    files.write_text(
        page,
        "".join(f'<a href="{html.escape(link)}">{html.escape(name)}</a>\n' for name, link in links.items()),
    )
    entries = [entry for entry in lock.asked if entry.by == "rocm"]
    lines = mirror_lock.lines_for(entries, place)
    names = {canonicalize_name(re.split("[^A-Za-z0-9._-]", line)[0]) for line in lines}
    of_sdist = [file for file in lock.files if file.name in names and place.takes(file.file_name, None)]
    (folder / "build").mkdir(exist_ok=True)
    wheels = mirror.fetched(of_sdist, [place], folder / "build")
    return PackageSource(
        find_links=(str(page), *sorted({str(path.parent) for path in (*sdists, *wheels)})),
        no_index=True,
        pre=True,
        # pip's own would give a wheel that something else made of the sdist.
        cache_dir=folder / "pip",
    )


def _installable(
    offer: Mapping[str, IndexFile], places: Sequence[Platform], of_gpus: Collection[str]
) -> Iterator[tuple[str, IndexFile]]:
    for name, file in offer.items():
        with contextlib.suppress(CairnError):
            if _is_for(project_of(name), of_gpus) and any(place.takes(name, None) for place in places):
                yield name, file
