"""An index of the ROCm SDK, held against a lock: what it offers to be reviewed, and pip's view of it then."""

from __future__ import annotations

import html
import re
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import Version

from cairn import files, simple_index
from cairn import targets as gpu
from cairn.errors import CairnError, NetworkError, UsageError
from cairn.output import Progress, silent
from cairn.package_index import TIP
from cairn.release.index.generation import project_of, version_of
from cairn.release.publish import mirror, mirror_lock
from cairn.release.publish.compatibility import Platform
from cairn.release.publish.mirror_lock import MirrorLock
from cairn.simple_index import IndexFile
from cairn.venv import PackageSource

# What there is of an SDK where the root of an index lists nothing.
_UNLISTED = (
    *("rocm", "rocm-sdk-core", "rocm-sdk-libraries", "rocm-sdk-devel", "rocm-profiler"),
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

    def has(name: str) -> bool:
        return any(
            Version(version_of(file.name)) == Version(version) and place.takes(file.name, None)
            for file in simple_index.files(index_url, name)
        )

    names = ["rocm", "rocm-sdk-core", "rocm-sdk-devel"]
    if not has("rocm-sdk-libraries"):
        names += [f"rocm-sdk-libraries-{family.lower()}" for family in families]
    return tuple(name for name in names if not has(name))


def to_lock(
    urls: Sequence[str],
    version: str | None,
    *,
    places: Sequence[Platform],
    families: Collection[str],
    folder: Path,
    say: Progress = silent,
) -> tuple[dict[str, dict[str, IndexFile]], tuple[str, ...]]:
    """The files of an SDK that a stack may install, of all these indexes, each by name and sha256.

    Also returns the names of those of which no index gives a sha256: they are fetched here, and theirs is
    that of the bytes that came, which nobody has verified.

    Args:
        urls: the indexes.
        version: of ROCm; None for the newest that each index has.
        places: the Pythons and platforms of the stack.
        families: of its GPUs; what is named after other ones is left out.
        folder: receives what has to be fetched.
        say: progress callback.

    Raises:
        UsageError: an index has no such SDK.
        NetworkError: it does not answer.
    """
    of_gpus = {name.lower() for name in (*families, *gpu.parse_targets(families))}
    by_url = {url: dict(_installable(offered(url), places, of_gpus)) for url in urls}
    by_index = [
        {Version(version_of(name)) for name in of_index if project_of(name) == "rocm"}
        for of_index in by_url.values()
    ]
    common = set.intersection(*by_index)
    chosen = Version(version) if version else max(common, default=None)
    if chosen not in common:
        lacking = next(url for url, has in zip(by_url, by_index, strict=True) if chosen not in has)
        raise UsageError(
            f"{lacking} has no rocm {version or 'that the others have, too'}; "
            f"{simple_index.instead(lacking, 'rocm')}",
            tip=TIP,
        )
    by_name: dict[str, dict[str, IndexFile]] = {}
    unverified: dict[str, None] = {}
    for of_index in by_url.values():
        for name, file in of_index.items():
            if Version(version_of(name)) == chosen:
                if (sha256 := file.sha256) is None:
                    say(f"fetching {name}, of which its index gives no sha256")
                    sha256 = _fetched_sha256(file, folder)
                    unverified[name] = None
                by_name.setdefault(name, {})[sha256] = file
    return by_name, tuple(unverified)


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
        try:
            _, dash, gpus = project_of(name).partition("-gfx")
        except CairnError:
            continue
        if any(place.takes(name, None) for place in places) and (not dash or f"gfx{gpus}" in of_gpus):
            yield name, file
