"""An index of the ROCm SDK, held against a lock: what it offers to be reviewed, and pip's view of it then."""

from __future__ import annotations

import html
import io
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from packaging.utils import canonicalize_name
from packaging.version import Version

from cairn import files, web
from cairn import targets as gpu
from cairn.errors import CairnError, NetworkError, UsageError
from cairn.output import Progress, silent
from cairn.package_index import TIP
from cairn.release.index.generation import project_of, version_of
from cairn.release.publish import mirror, mirror_lock
from cairn.release.publish.compatibility import Platform
from cairn.release.publish.mirror_lock import MirrorLock
from cairn.venv import PackageSource

_LINK = re.compile(r"<a\s[^<>]{0,999}?href\s*=\s*[\"']?([^\"'<>\s]{1,999})", re.IGNORECASE)
_SHA256 = re.compile(r"sha256=([0-9a-f]{64})")
_PLAIN_URL = re.compile(r"(https?|file)://[\w.~:/@%+=,!()\[\]-]+", re.ASCII)
_PAGE = 1 << 24  # bytes of a page, the rest of which is left
_SECONDS = 60.0


def versions(lock: MirrorLock | None) -> frozenset[Version]:
    """The versions of the ROCm SDK that a lock names."""
    return frozenset(Version(version_of(name)) for name in (lock.sdk if lock else ()))


def offered(index_url: str) -> dict[str, str]:
    """The files of the ROCm SDK that an index offers: name to link (PEP 503).

    Raises:
        NetworkError: it does not answer.
    """
    names = dict.fromkeys(str(canonicalize_name(_last(link))) for link in _links(_root(index_url)))
    return _links_of(index_url, [name for name in names if mirror_lock.is_of_sdk(name)])


def _root(index_url: str) -> str:
    place = index_url if "://" in index_url else Path(index_url).absolute().as_uri()
    return f"{place.rstrip('/')}/"


def _links_of(index_url: str, projects: Iterable[str], *, may_lack: bool = False) -> dict[str, str]:
    """The files on the pages of projects, name to link; an index that `may_lack` a page has no file of it."""
    pages = (_links(f"{_root(index_url)}{name}/", may_lack=may_lack) for name in projects)
    return {_last(link): link for page in pages for link in page}


def lacking(index_url: str, version: str, *, place: Platform, families: Sequence[str]) -> tuple[str, ...]:
    """Return the packages of an SDK of this version that an index lacks: builds install them all.

    Args:
        index_url: the index.
        version: of ROCm.
        place: the Python and platform that it is installed on.
        families: of GPUs; each has libraries of its own where those for all are not there.
    """
    root = f"{index_url.rstrip('/')}/"

    def has(name: str) -> bool:
        try:
            links = map(_last, _links(f"{root}{name}/"))
            return any(
                Version(version_of(file)) == Version(version) and place.takes(file, None) for file in links
            )
        except NetworkError:  # no page of it
            return False

    names = ["rocm", "rocm-sdk-core", "rocm-sdk-devel"]
    if not has("rocm-sdk-libraries"):
        names += [f"rocm-sdk-libraries-{family.lower()}" for family in families]
    return tuple(name for name in names if not has(name))


def to_lock(
    urls: Sequence[str], version: str | None, *, places: Sequence[Platform], families: Collection[str]
) -> dict[str, dict[str, str]]:
    """The files of an SDK that a stack may install, of all these indexes: for each name sha256 to link.

    Args:
        urls: the indexes.
        version: of ROCm; None for the newest that each index has.
        places: the Pythons and platforms of the stack.
        families: of its GPUs; what is named after other ones is left out.

    Raises:
        UsageError: an index has no such SDK.
        NetworkError: it does not answer, or does not say the sha256 of a file.
    """
    of_gpus = {name.lower() for name in (*families, *gpu.parse_targets(families))}
    by_url = {url: dict(_installable(offered(url), places, of_gpus)) for url in urls}
    by_index = [
        {Version(version_of(name)) for name in links if project_of(name) == "rocm"}
        for links in by_url.values()
    ]
    common = set.intersection(*by_index)
    chosen = Version(version) if version else max(common, default=None)
    if chosen not in common:
        lacking = next(url for url, has in zip(by_url, by_index, strict=True) if chosen not in has)
        raise UsageError(f"{lacking} has no rocm {version or 'that the others have, too'}", tip=TIP)
    links: dict[str, dict[str, str]] = {}
    for offer in by_url.values():
        for name, link in offer.items():
            if Version(version_of(name)) == chosen:
                if not (match := _SHA256.fullmatch(urldefrag(link).fragment)):
                    raise NetworkError(
                        f"the index gives no sha256 of {name}",
                        tip="fetch it, and name the file: cairn index mirror lock --stack STACK FILE",
                    )
                links.setdefault(name, {})[match[1]] = link
    return links


def fetch(link: str, sha256: str, folder: Path) -> Path:
    """Fetch a file of an index that has this sha256.

    Raises:
        NetworkError: it is not there, or has other bytes.
    """
    path, url = folder / sha256 / _last(link), urldefrag(link).url
    path.parent.mkdir(parents=True)
    with path.open("wb") as out:
        if not web.read(url, out=out, timeout=_SECONDS, tip=TIP):
            raise NetworkError(f"there is no {url}, to which its index leads", tip=TIP)
    if (actual := files.sha256_of(path)) != sha256:
        raise NetworkError(f"{url} has other bytes: sha256 {actual}, and not {sha256}", tip=TIP)
    return path


def device_packages(
    index_url: str, version: str, processors: Iterable[str], place: Platform
) -> dict[str, str]:
    """The SDK's packages of device code that an index has for these processors: file name to sha256.

    A build that leaves device wheels needs none of them, and its device wheels do.
    """
    projects = [f"rocm-sdk-device-{processor}" for processor in processors]
    return {
        name: match[1]
        for name, link in _links_of(index_url, projects, may_lack=True).items()
        if Version(version_of(name)) == Version(version)
        and place.takes(name, None)
        and (match := _SHA256.fullmatch(urldefrag(link).fragment))
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
    links = _links_of(index_url, dict.fromkeys(map(project_of, sha256s)), may_lack=True)
    for name, sha256 in sha256s.items():
        if (link := links.get(name)) is None:
            problems.append(f"{index_url} has no {name} any more")
        elif (match := _SHA256.fullmatch(urldefrag(link).fragment)) and match[1] != sha256:
            problems.append(
                f"{index_url} has {name} with sha256 {match[1]}, and the build installed {sha256}"
            )
        else:
            say(f"fetching {name}")
            try:
                paths.append(fetch(link, sha256, folder))
            except NetworkError as error:
                problems.append(str(error))
    if problems:
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
    links, sdists = [], []
    for name in sorted(lock.sdk.keys() & offer.keys()):
        url, fragment = urldefrag(offer[name])
        locked, offered_sha256 = lock.sdk[name].split(), fragment.removeprefix("sha256=")  # of this family
        sha256 = offered_sha256 if offered_sha256 in locked else locked[0]
        if name.endswith(".tar.gz"):
            sdists.append(fetch(url, sha256, folder))
        elif not _PLAIN_URL.fullmatch(url):  # pip takes the first hash that it sees, before the fragment too
            raise NetworkError(
                f"{index_url} has a link to {name} with more than a path: {url[:200]}", tip=TIP
            )
        else:
            links.append(f"{url}#sha256={sha256}")
    files.write_text(
        page, "".join(f'<a href="{html.escape(link)}">{html.escape(_last(link))}</a>\n' for link in links)
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
    links: dict[str, str], places: Sequence[Platform], of_gpus: Collection[str]
) -> Iterator[tuple[str, str]]:
    for name, link in links.items():
        try:
            _, dash, gpus = project_of(name).partition("-gfx")
        except CairnError:
            continue
        if any(place.takes(name, None) for place in places) and (not dash or f"gfx{gpus}" in of_gpus):
            yield name, link


def _links(page: str, *, may_lack: bool = False) -> list[str]:
    out = io.BytesIO()
    whole = f"{page}index.html" if page.startswith("file:") else page
    if not web.read(whole, out=out, most=_PAGE, timeout=_SECONDS, tip=TIP):
        if may_lack:
            return []
        raise NetworkError(f"there is no {page}", tip=TIP)
    text = out.getvalue().decode("utf-8", "replace")
    return [urljoin(page, html.unescape(link)) for link in _LINK.findall(text)]


def _last(link: str) -> str:
    return unquote(urlsplit(link).path.rstrip("/").rpartition("/")[2])
