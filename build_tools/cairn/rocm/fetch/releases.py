"""Find a release of ROCm among AMD's tarballs: by its version, or the latest of a stream.

The page of a stream names its files in a script, and has no links. A tarball has the whole tree for one
family of GPUs, or for all (`multiarch`); no sha256 is published beside it. Sources: ROCm/TheRock 89553ce,
build_tools/install_rocm_from_artifacts.py, build_tools/index_generation_s3_tar.py and
build_tools/github_actions/publish_rocm_to_release_buckets.py.
"""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
import time
import urllib.parse
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar, cast

from packaging.version import Version

from cairn import targets as gpu
from cairn import web
from cairn.errors import NetworkError, UsageError
from cairn.output import Progress, wording
from cairn.retry import RetryPolicy, retrying
from cairn.rocm.fetch.choose import Artifact, ArtifactFilters
from cairn.rocm.fetch.unpack import TARBALL
from cairn.store.protocol import MissingKeyError, StoredObject

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

T = TypeVar("T")

LATEST = "latest"
"""The name of the newest release of the first stream."""
_ALL_GPUS = "multiarch"
_FOLDER = "../core/tarball/"  # from the index of a stream
# Every part has a length: a page is as long as its server likes, and numbers of 4,300 digits are not read.
_FORM = r"[0-9]{1,9}\.[0-9]{1,9}\.[0-9]{1,9}(?:(?:a|b|rc)[0-9]{1,9}|\.dev[0-9]{1,9}\+[0-9a-f]{1,40})?"
_NAME = re.compile(
    r"therock-dist-(?P<platform>linux|windows)-(?P<group>[\w-]{1,60}?)"
    rf"-(?P<version>{_FORM})\.tar\.gz"
)
_VERSION = re.compile(_FORM)
_DATE = re.compile(r'"name": "([^"]+)", "mtime": (\d{1,11})')
_PAGE = 1 << 24  # bytes
_PART = 1 << 24
_SECONDS = 60.0
_SHOWN = 8
_TIP = "check the network, or name another address of such tarballs: --store https://…"


class TarballFolder:
    """The folder of a web server with tarballs, as far as `fetch` reads a store."""

    def __init__(self, url: str, *, say: Progress) -> None:
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"{web.shown(url)} is no page of tarballs", tip="name one: --store https://…")
        self.url, self._say = f"{url.rstrip('/')}/", say

    def read(self, key: str) -> StoredObject:
        """Return a small file; see `Store.read`."""
        url = self._address(key)

        def whole() -> bytes | None:
            out = io.BytesIO()
            return (
                out.getvalue() if web.read(url, out=out, most=_PAGE + 1, timeout=_SECONDS, tip=_TIP) else None
            )

        if (data := self._again(whole)) is None:
            raise MissingKeyError(f"there is no {url}")
        if len(data) > _PAGE:
            raise NetworkError(f"{url} is larger than {_PAGE >> 20} MiB, and was not read", tip=_TIP)
        return StoredObject(data=data)

    def open(self, key: str, *, start: int = 0) -> BinaryIO:
        """Return a file as a stream; see `Store.open`. It is read in parts, each of which is tried again."""
        try:
            return cast("BinaryIO", io.BufferedReader(_Parts(self, key, start), _PART))
        except web.WholeFileError:
            return self._whole(self._address(key), start)

    def _whole(self, url: str, start: int) -> BinaryIO:
        most = web.most_of(Path(tempfile.gettempdir()))
        with contextlib.ExitStack() as on_failure:
            whole = on_failure.enter_context(tempfile.TemporaryFile(prefix="cairn-tarball-"))
            if not web.read(url, out=whole, most=most + 1, timeout=_SECONDS, tip=_TIP):
                raise MissingKeyError(f"there is no {url}")
            if whole.tell() > most:
                raise NetworkError(web.too_large(url, most), tip="free disk space, or name another address")
            whole.seek(start)
            on_failure.pop_all()  # the caller closes it
        return cast("BinaryIO", whole)

    def size(self, key: str) -> int:
        """Return the bytes of a file; 0 where the server does not say."""
        try:
            return self.part(key, 0, 1, tag="").total
        except web.WholeFileError as error:
            return error.size or 0

    def part(self, key: str, start: int, size: int, *, tag: str) -> web.Part:
        """Return a part of a file; see `web.read_part`."""
        url = self._address(key)
        return self._again(lambda: web.read_part(url, start, size, tag=tag, timeout=_SECONDS, tip=_TIP))

    def _address(self, key: str) -> str:
        return urllib.parse.urljoin(self.url, urllib.parse.quote(key))

    def _again(self, request: Callable[[], T]) -> T:
        def answer() -> T | NetworkError:
            try:
                return request()
            except (web.WholeFileError, web.MissingFileError) as error:  # no fault of the network
                return error

        result = retrying(answer, retry=RetryPolicy(), say=self._say)
        if isinstance(result, NetworkError):
            raise result
        return result


class _Parts(io.RawIOBase):
    """A file of a server from an offset on, by range requests."""

    def __init__(self, folder: TarballFolder, key: str, start: int) -> None:
        self._folder, self._key, self._at = folder, key, start
        first = folder.part(key, 0, 1, tag="")
        self._total, self._tag = first.total, first.tag

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        size = min(len(view), self._total - self._at)
        if size <= 0:
            return 0
        data = self._folder.part(self._key, self._at, size, tag=self._tag).data
        view[: len(data)] = data
        self._at += len(data)
        return len(data)


def find_release(
    name: str, filters: ArtifactFilters, *, platform: str, page: str | None, say: Progress
) -> tuple[dict[str, str], Artifact, TarballFolder]:
    """Find the tarball of a release for some GPUs, and the folder that it is in.

    The first value says which: `name` is ROCm's version, `stream` the one whose page names it, empty for a
    page that the user named, `group` the family that it is for, or `multiarch`, and `created` the time, if
    the page has it.

    Args:
        name: a version, `latest`, or a stream, whose latest is meant.
        filters: the family or the targets that it is for; all GPUs where there are none.
        platform: `linux` or `windows`.
        page: the address of a page of tarballs in place of those of AMD's streams.
        say: progress callback.

    Raises:
        UsageError: there is no such release, or it has no tarball for the GPUs.
        NetworkError: the server does not answer.
    """
    streams = gpu.upstream_streams()
    stream = _stream_of(name)
    stream = "" if page else stream
    folder = TarballFolder(page or urllib.parse.urljoin(streams[stream], _FOLDER), say=say)
    say(f"reading {folder.url}")
    try:
        text = folder.read("").data.decode("utf-8", "replace")
    except MissingKeyError as error:
        raise NetworkError(f"there is no page of tarballs at {folder.url}", tip=_TIP) from error
    # A plus sign of a version may be written as in an address.
    matches = [match for match in _NAME.finditer(text.replace("%2B", "+")) if match["platform"] == platform]
    by_version: dict[Version, dict[str, str]] = {}
    for match in matches:
        if not match["group"].endswith("-tests"):
            by_version.setdefault(Version(match["version"]), {})[match["group"]] = match[0]
    if not by_version:
        raise UsageError(f"{folder.url} names no tarball of ROCm for {platform}", tip="check --platform")
    is_latest = name in (LATEST, *streams)
    candidates = sorted(by_version, reverse=True) if is_latest else [Version(name)]
    for version in candidates:
        if group := _group_for(by_version.get(version, {}), filters):
            key = by_version[version][group]
            seconds = dict(_DATE.findall(text)).get(key)
            created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(seconds))) if seconds else ""
            artifact = Artifact(name=key.removesuffix(TARBALL), target=group, key=key, size=folder.size(key))
            release = {"name": str(version), "stream": stream, "group": group, "created": created}
            return release, artifact, folder
    if candidates[0] not in by_version:
        newest = wording.some([str(version) for version in sorted(by_version, reverse=True)], shown=_SHOWN)
        raise UsageError(f"{folder.url} has no ROCm {name}", tip=f"it has {newest}")
    groups = wording.some(sorted(by_version[candidates[0]]), shown=99)
    gpus = ", ".join((*filters.groups, *filters.targets)) or "all GPUs"
    raise UsageError(f"{folder.url} has no ROCm {candidates[0]} for {gpus}", tip=f"it is there for {groups}")


def _stream_of(name: str) -> str:
    """The stream that has a release, by the form of its version."""
    streams = tuple(gpu.upstream_streams())
    if name == LATEST:
        return streams[0]
    if name in streams:
        return name
    if not _VERSION.fullmatch(name):
        raise UsageError(
            f"{name[:60]!r} is no release of ROCm",
            tip=f"write a version, such as 10.1.0, or {LATEST}, {', '.join(streams)} for the newest there",
        )
    version = Version(name)
    if version.is_devrelease:
        return "dev"
    return {"a": "nightly", "rc": "rc"}.get(version.pre[0] if version.pre else "", streams[0])


def _group_for(groups: Collection[str], filters: ArtifactFilters) -> str | None:
    """The group to take: the one that is named, the smallest that has all targets, or that of all GPUs."""
    names = (*filters.groups, *filters.targets)
    if len(names) == 1 and names[0] in groups:
        return names[0]
    families = gpu.families()
    processors = {gpu.parse_target_id(name).processor for name in filters.targets}
    for name in filters.groups:
        processors |= {name, *families.get(name, ())} - ({name} if name in families else set())
    holding = [name for name in groups if names and processors <= {name, *families.get(name, ())}]
    smallest = sorted(holding, key=lambda name: (len(families.get(name, ())), name))
    return next(iter([*smallest, *(name for name in groups if name == _ALL_GPUS)]), None)
