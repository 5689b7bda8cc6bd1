"""Prefetch and verify the files that upstream's builds would download, and pass them by variables.

A build that downloads in the middle of its work takes what is there that day, and fails an hour later where
nothing is. stack.toml names such files (`Project.downloads`); where upstream pins a version in its tree, it
is read from there. The build gets the folder by a variable of its own, such as torch's
`AOTRITON_INSTALLED_PREFIX` or triton's `LLVM_SYSPATH`; the manifest has address and sha256.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import lzma
import re
import tarfile
import urllib.parse
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from cairn import datafile, files, web
from cairn.build.inputs import variables
from cairn.build.model import BuildRequest
from cairn.errors import NetworkError, SourceError, UsageError
from cairn.output import Progress, console
from cairn.retry import RetryPolicy, retrying
from cairn.sources.manifest.manifest import DownloadSource
from cairn.stack import Project

_TIMEOUT = 60.0  # seconds without an answer
_BLOCK = 1 << 20
_WAIT = 3600.0  # seconds that another run may take to fetch the same
_MISSING = (404, 410)  # statuses of HTTP that asking again does not change
# What Python's readers of archives raise for files that are truncated, damaged, encrypted or none at all.
_NOT_AN_ARCHIVE = (
    *(tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, lzma.LZMAError, zlib.error),
    *(EOFError, ValueError, RuntimeError),
)
_NAME = re.compile(r"\{download:([A-Za-z0-9_-]+)\}")


class _FetchRecord(datafile.Value, tag_field="schema", tag="cairn.download/1"):
    """The sha256 of an address's content when first fetched; from then on it must be the same."""

    url: str
    sha256: str


class _UnpackRecord(datafile.Value, tag_field="schema", tag="cairn.download-unpacked/1"):
    """The inventory of a folder when it was unpacked (`files.inventory`)."""

    inventory: str


class PinnedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a build needs.

    Attributes:
        project: whose build.
        name: in stack.toml.
        url: where it is.
        sha256: what it must be; None where neither stack, tree nor an earlier fetch say so.
        unpack: the build gets what is inside.
    """

    project: str
    name: str
    url: str
    sha256: str | None
    unpack: bool


def needed_files(request: BuildRequest, project: Project) -> Iterator[PinnedFile]:
    """Yield the files that a build needs, as far as its tree tells."""
    env, checkout = request.env_of(project), request.checkouts[project.name]
    templates = variables.template_of(request.stack, project, for_cpu=request.for_cpu)
    used = {n for name, text in templates.items() if name not in env for n in _NAME.findall(text)}
    for download in project.downloads:
        on = download.feature is None or download.feature in request.features
        if not on or download.name not in used:
            continue
        groups: dict[str, str] = {}
        if download.file is not None:
            path = checkout / download.file
            text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
            match = re.search(download.pattern, text, re.DOTALL)
            if match is None:  # of a version that does without it, or that pins it elsewhere
                continue
            groups = {name: value for name, value in match.groupdict().items() if value is not None}
        yield PinnedFile(
            project=project.name,
            name=download.name,
            url=variables.expand(download.url, groups, where=f"downloads of {project.name}"),
            sha256=download.sha256 or groups.get("sha256"),
            unpack=download.unpack,
        )


def ready(pinned: PinnedFile, *, say: Progress, offline: bool = False) -> Path:
    """Return the file or its unpacked folder, fetching it if it is not in the cache.

    Raises:
        NetworkError: it is out of reach.
        SourceError: it is not what it must be.
    """
    with files.locked(_root() / f"{_key(pinned.url)}.lock", timeout=_WAIT):
        recorded = pinned.sha256 or _recorded_sha256(pinned.url)
        file = _root() / (recorded or "unknown") / _file_name(pinned.url)
        if not file.is_file() or files.sha256_of(file) != recorded:
            if offline:
                raise NetworkError(
                    f"{pinned.name}, which the build of {pinned.project} needs, is not here, and --offline "
                    f"fetches nothing: {pinned.url}",
                    tip="leave --offline out once: what was fetched is kept",
                )
            say(f"fetching {pinned.name}")
            file = _fetch(pinned, recorded, say=say)
        sha256 = file.parent.name
        # Other addresses may have given the same bytes.
        with files.locked(_root() / f"{sha256}.lock", timeout=_WAIT):
            place = _inside(file, pinned, say=say) if pinned.unpack else file
        # Not before it was unpacked: the page of a portal that asks to log in must not count from now on.
        if recorded is None:
            datafile.write(_root() / f"{_key(pinned.url)}.json", _FetchRecord(url=pinned.url, sha256=sha256))
        return place


def sources(requests_of_run: Sequence[BuildRequest]) -> tuple[DownloadSource, ...]:
    """Return a run's downloads for its manifest, as far as this machine knows their sha256."""
    by_name = {}
    for request in requests_of_run:
        for project in request.projects():
            for pinned in needed_files(request, project):
                if (sha256 := pinned.sha256 or _recorded_sha256(pinned.url)) is not None:
                    by_name[pinned.project, pinned.name] = DownloadSource(
                        project=pinned.project, name=pinned.name, url=pinned.url, sha256=sha256
                    )
    return tuple(by_name.values())


def _fetch(pinned: PinnedFile, recorded: str | None, *, say: Progress) -> Path:
    part = _root() / f"{_key(pinned.url)}.part"  # its lock is held: what is there, a killed run has left
    try:
        retrying(functools.partial(_save, pinned, part), retry=RetryPolicy(), say=say)
        sha256 = files.sha256_of(part)
        if recorded is not None and sha256 != recorded:
            raise SourceError(
                f"{pinned.url} has the sha256 {sha256}, and {recorded} was expected",
                tip="upstream has exchanged it, or the pin is wrong: find out which before you build",
            )
        file = _root() / sha256 / _file_name(pinned.url)
        file.parent.mkdir(exist_ok=True)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
    return file


def _save(pinned: PinnedFile, target: Path) -> None:
    """Download an address into a file.

    Raises:
        NetworkError: there is no answer, or not all of it.
        SourceError: there is no such file, or it has more bytes than `web.most_of` allows.
    """
    import requests  # noqa: PLC0415
    import urllib3  # noqa: PLC0415 - what this module says of downloads is asked for in every run

    message = f"{pinned.name}, which the build of {pinned.project} needs, cannot be fetched"
    try:
        if pinned.url.startswith("file:"):
            path = urllib.request.url2pathname(urllib.parse.urlsplit(pinned.url).path)
            files.copy_into(Path(path), target)
            return
        # As it is: some servers say of a .tar.gz that its encoding is gzip, and the pin is of the file.
        plain = {"Accept-Encoding": "identity"}
        with (
            requests.get(pinned.url, stream=True, timeout=_TIMEOUT, headers=plain) as answer,
            target.open("wb") as out,
        ):
            if answer.status_code in _MISSING:
                raise SourceError(f"{message}: {pinned.url} answers {answer.status_code} {answer.reason}")
            answer.raise_for_status()
            count, most = 0, web.most_of(target.parent)
            for block in answer.raw.stream(_BLOCK, decode_content=False):
                if (count := count + len(block)) > most:
                    tip = "free disk space, or look at what the server sends"
                    raise SourceError(f"{message}: {web.too_large(pinned.url, most)}", tip=tip)
                out.write(block)
    except FileNotFoundError as error:
        raise SourceError(f"{message}: {error.filename} does not exist") from error
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
        raise NetworkError(
            f"{message}: {error}", tip="check the network, then run the same command again"
        ) from error


def _inside(file: Path, pinned: PinnedFile, *, say: Progress) -> Path:
    """Unpack an archive; a single top-level folder is stripped, as by CMake's ExternalProject.

    Unpacked anew where it is not as it was unpacked: the manifest says that builds have what is in the file.
    """
    inside, note = file.parent / "inside", file.parent / "inside.json"
    try:
        inventory: str | None = datafile.read(note, _UnpackRecord).inventory
    except (UsageError, OSError):
        inventory = None
    if inventory is None or not inside.is_dir() or files.inventory(inside) != inventory:
        if inventory is not None:
            console.current().warn(f"{inside} was changed, and is unpacked again from {file.name}")
        say(f"unpacking {pinned.name}")
        with files.folder_beside(inside) as part:
            _unpack(file, part)
        datafile.write(note, _UnpackRecord(inventory=files.inventory(inside)))
    entries = list(inside.iterdir())
    return entries[0] if len(entries) == 1 and entries[0].is_dir() else inside


def _unpack(file: Path, folder: Path) -> None:
    try:
        # A zip is known by its end, which may be that of the last file in a tar.
        if not tarfile.is_tarfile(file) and zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                for member in archive.infolist():
                    path = Path(archive.extract(member, folder))  # it drops `..` and roots by itself
                    if path.is_file() and member.external_attr >> 16 & 0o100:
                        path.chmod(path.stat().st_mode | 0o111)
        else:
            with tarfile.open(file) as archive:
                archive.extractall(folder, filter="data")
    except _NOT_AN_ARCHIVE as error:
        file.unlink()
        raise SourceError(
            f"{file.name} cannot be unpacked: {error}",
            tip="look at its address with a browser: a proxy may have answered in its place",
        ) from error


def _recorded_sha256(url: str) -> str | None:
    try:
        return datafile.read(_root() / f"{_key(url)}.json", _FetchRecord).sha256
    except (UsageError, OSError):
        return None


def _root() -> Path:
    folder = files.cache_dir() / "build-downloads"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _key(url: str) -> str:
    return hashlib.sha256(url.encode()).hexdigest()[:24]


def _file_name(url: str) -> str:
    return Path(urllib.parse.urlsplit(url).path).name or "file"
