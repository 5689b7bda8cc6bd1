"""An index of the ROCm SDK, held against a lock: what it offers to be reviewed, and pip's view of it then."""

from __future__ import annotations

import contextlib
import html
import re
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from cairn import files, simple_index
from cairn import targets as gpu
from cairn.concurrency import side_by_side
from cairn.errors import CairnError, NetworkError, UsageError
from cairn.output import Progress, silent
from cairn.package_index import TIP
from cairn.release.index.generation import project_of, version_of
from cairn.release.publish import distribution, mirror, mirror_lock, rules, sdk_packages
from cairn.release.publish.compatibility import Platform
from cairn.release.publish.distribution import Needs
from cairn.release.publish.mirror_lock import MirrorLock
from cairn.simple_index import IndexFile
from cairn.venv import PackageSource
from cairn.wheels import published

# What there is of an SDK where the root of an index lists nothing.
_UNLISTED = (
    *(*sdk_packages.INSTALLED, sdk_packages.LIBRARIES, "rocm-profiler"),
    *(f"{sdk_packages.DEVICE}{target}" for target in gpu.known_targets()),
)
_PASSED = "passed over: "
_PLAIN_URL = re.compile(r"(https?|file)://[\w.~:/@%+=,!()\[\]-]+", re.ASCII)


def versions(lock: MirrorLock | None) -> frozenset[Version]:
    """The versions of the ROCm SDK that a lock names."""
    return frozenset(Version(version_of(name)) for name in (lock.sdk if lock else ()))


def offered(index_url: str) -> dict[str, IndexFile]:
    """The files of the ROCm SDK that an index offers, by name (PEP 503).

    Raises:
        NetworkError: it does not answer.
    """
    projects = simple_index.projects(index_url)
    names = dict.fromkeys(str(canonicalize_name(name)) for name in projects)
    by_name = _files_of(
        index_url,
        [name for name in names if mirror_lock.is_of_sdk(name)] if projects else _UNLISTED,
        may_lack=not projects,
    )
    if not (projects or by_name):
        raise NetworkError(f"there is no package index at {index_url}", tip=TIP)
    return by_name


def _files_of(index_url: str, projects: Iterable[str], *, may_lack: bool) -> dict[str, IndexFile]:
    """The files on the pages of projects; an index that `may_lack` a page has no file of it."""
    pages = (simple_index.files(index_url, name, may_lack=may_lack) for name in projects)
    return {file.name: file for page in pages for file in page}


class SdkToLock(NamedTuple):
    """The files of an SDK that a stack may install.

    Attributes:
        files: file name to sha256 to the file: indexes of families may have other bytes under one name.
        unverified: the names of those of which no index gives a sha256. They were fetched, and theirs is that
            of the bytes that came, which nobody has verified.
        sdists: those among the files, fetched: what builds them is locked, too.
        remarks: what was passed over, and which GPUs an index is not for.
    """

    files: Mapping[str, Mapping[str, IndexFile]] = {}
    unverified: tuple[str, ...] = ()
    sdists: tuple[Path, ...] = ()
    remarks: tuple[str, ...] = ()


def to_lock(
    urls: Mapping[str, Sequence[str]],
    version: str | None,
    *,
    places: Sequence[Platform],
    before: MirrorLock | None,
    folder: Path,
    say: Progress = silent,
) -> SdkToLock:
    """Choose the files of an SDK that a stack may install, of all these indexes.

    Args:
        urls: the indexes, each with the families of the stack that it serves; what is named after other
            GPUs than those of all these families is left out.
        version: of ROCm; None for the newest that each index has whole.
        places: the Pythons and platforms of the stack.
        before: the lock whose versions stay locked; None for none.
        folder: receives what has to be fetched.
        say: progress callback.

    Raises:
        UsageError: an index has no such SDK, or lacks a package of it that builds install.
        NetworkError: it does not answer.
    """
    of_gpus = _names_of_gpus(urls)
    by_url = {url: dict(_installable(offered(url), places, of_gpus)) for url in urls}
    by_index = [
        {Version(version_of(name)) for name in of_index if project_of(name) == "rocm"}
        for of_index in by_url.values()
    ]
    common = set.intersection(*by_index)
    if not common or (version and Version(version) not in common):
        requested = Version(version) if version else None
        lacking = next(url for url, has in zip(by_url, by_index, strict=True) if requested not in has)
        raise UsageError(
            f"{lacking} has no rocm {version or 'that the others have, too'}; "
            f"{simple_index.instead(lacking, 'rocm')}",
            tip=TIP,
        )
    candidates = [Version(version)] if version else common
    chosen, sdists, remarks = _whole_version(urls, by_url, candidates, places, folder)
    by_name: dict[str, dict[str, IndexFile]] = {}
    unverified: dict[str, None] = {}
    for name, file in (pair for of_index in by_url.values() for pair in of_index.items()):
        if Version(version_of(name)) != chosen:
            continue
        if (sha256 := file.sha256) is None:
            say(f"fetching {name}, of which its index gives no sha256")
            sha256 = _fetched_sha256(file, folder)
            unverified[name] = None
        by_name.setdefault(name, {})[sha256] = file
    return SdkToLock(
        files=by_name,
        unverified=tuple(unverified),
        sdists=sdists,
        remarks=(*remarks, *_gone(before, dict(zip(by_url, by_index, strict=True)))),
    )


def needs_of(addresses: Mapping[str, str]) -> tuple[dict[str, Needs], list[str]]:
    """What the METADATA of locked wheels says, of one of each version; and those where it cannot be read.

    uv too takes a version's other wheels to say the same.

    Args:
        addresses: where each file is, by its name; empty where a lock does not say.
    """
    versions = {(project_of(name), version_of(name)): name for name in sorted(addresses)}

    def read(name: str) -> Needs | None:
        # Its page says whether there is a sidecar, and uv alone has read that.
        for has_metadata in (True, False) if addresses[name] else ():
            file = IndexFile(name=name, url=addresses[name], sha256=None, has_metadata=has_metadata)
            with contextlib.suppress(CairnError):
                if (data := published.metadata(file)) is not None:
                    return distribution.needs_of(data, filename=name)
        return None

    read_needs = dict(zip(versions.values(), side_by_side(read, versions.values()), strict=True))
    unread = [name for name, needs in read_needs.items() if needs is None]
    return {name: needs for name, needs in read_needs.items() if needs is not None}, unread


def unserved(lock: MirrorLock, needs: Mapping[str, Needs]) -> dict[str, list[str]]:
    """The extras for GPUs of files that a lock does not serve, each with what it lacks.

    A stack may be for some families only.

    Args:
        lock: the lock.
        needs: of the files whose extras count, by file name.

    Raises:
        UsageError: an extra is served in part, or none of a file's is.
    """
    locked = [(project_of(name), version_of(name)) for name in mirror_lock.locked_hashes(lock)]

    def has(requirement: Requirement) -> bool:
        name = canonicalize_name(requirement.name)
        return any(
            project == name and requirement.specifier.contains(version, prereleases=True)
            for project, version in locked
        )

    extras, problems = rules.unserved(needs.items(), has)
    if problems:
        raise UsageError(
            f"not locked: {'; '.join(problems)}",
            tip="name the files that it lacks, too: cairn index mirror lock --stack STACK FILE …; or ask for "
            "what an index has of it: --require 'NAME[device-gfx942]'",
        )
    return extras


def _gone(before: MirrorLock | None, by_index: Mapping[str, Collection[Version]]) -> Iterator[str]:
    for version in sorted(versions(before)):
        if lacking := [url for url, has in by_index.items() if version not in has]:
            remark = "which the lock goes on naming: --upgrade drops it"
            yield f"{lacking[0]} has no ROCm {version} any more, {remark}"


def _whole_version(
    urls: Mapping[str, Sequence[str]],
    by_url: Mapping[str, Mapping[str, IndexFile]],
    candidates: Collection[Version],
    places: Sequence[Platform],
    folder: Path,
) -> tuple[Version, tuple[Path, ...], list[str]]:
    """The newest version that all indexes have whole, its sdists, and what a reader of the lock has to know.

    Raises:
        UsageError: they have none whole.
    """
    of_gpus = _names_of_gpus(urls)
    remarks = list[str]()
    unserved = {url: sdk_packages.unserved(by_url[url], names) for url, names in urls.items()}
    for url in (url for url in urls if unserved[url]):
        remarks.append(f"not locked, since {url} has no version of it: {', '.join(unserved[url])}")
    for chosen in sorted(candidates, reverse=True):
        of_version = {
            url: {name: file for name, file in of_index.items() if Version(version_of(name)) == chosen}
            for url, of_index in by_url.items()
        }
        sdists = {
            url: [_fetched(file, folder) for name, file in of_index.items() if ".tar." in name]
            for url, of_index in of_version.items()
        }
        # Code of some targets is for one platform alone.
        passed = {
            url: {
                *unserved[url],
                *(name for name in map(project_of, of_index) if name.startswith(sdk_packages.DEVICE)),
            }
            for url, of_index in of_version.items()
        }
        problems = [
            f"{url} has ROCm {chosen} without {', '.join(missing)}, which builds for {place} install"
            for url, of_index in of_version.items()
            for place in places
            for lacks in [
                sdk_packages.lacking_by(
                    sdists[url], of_index, chosen, place=place, families=urls[url], of_gpus=of_gpus
                )
            ]
            if (missing := [name for name in lacks if name not in passed[url]])
        ]
        if not problems:
            distinct = dict.fromkeys(path for of_url in sdists.values() for path in of_url)
            return chosen, tuple(distinct), remarks
        remarks.append(f"{_PASSED}{problems[0]}")
    raise UsageError(
        remarks[-1].removeprefix(_PASSED),
        tip="lock an earlier version (--rocm-version), or this one once it is uploaded whole",
    )


def _names_of_gpus(urls: Mapping[str, Sequence[str]]) -> set[str]:
    families = tuple(dict.fromkeys(name for of_index in urls.values() for name in of_index))
    return {name.lower() for name in (*families, *gpu.parse_targets(families))}


def _fetched(file: IndexFile, folder: Path) -> Path:
    """Fetch a file, unless it is there already."""
    sha256 = file.sha256 or _fetched_sha256(file, folder)
    path = folder / sha256 / file.name
    return path if path.is_file() else fetch(file, sha256, folder)


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
    projects = [f"{sdk_packages.DEVICE}{processor}" for processor in processors]
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
            if sdk_packages.is_for(project_of(name), of_gpus) and any(
                place.takes(name, None) for place in places
            ):
                yield name, file
