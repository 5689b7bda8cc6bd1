"""Wheels that somebody has published, read where they lie: at a URL, or in an index.

Of a wheel of 500 MB its central directory, METADATA, WHEEL and RECORD are a few MB at its end, which servers
send by themselves (RFC 9110, section 14). Its libraries are not: deflate is read from its beginning.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
import urllib.request
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from packaging.utils import canonicalize_name
from packaging.version import Version

from cairn import package_index, requirements, simple_index, web
from cairn.errors import CairnError, NetworkError, UsageError, WheelError
from cairn.formats.zip.reader import Archive, Limits, RawFile
from cairn.output import console, wording
from cairn.package_index import TIP
from cairn.simple_index import IndexFile
from cairn.wheels.metadata import wheel_info

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

_BLOCK = 1 << 15  # bytes; what is read is held in blocks of this size
_TAIL = 1 << 17  # bytes at the end that are read first: of most wheels they hold the whole directory
_LONGEST_PART = 16 << 20  # bytes of one request
_MOST_REQUESTS = 200  # to one file; a torch takes four
_NEAR = 1 << 18  # bytes between two members that are read at once with them
_SECONDS = 60.0
_SYSTEM = re.compile(r"-((?:many|musl)?linux|macosx)\d*(?:_\d+_\d+)?_")  # of a platform tag (PEP 600, 656)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.IGNORECASE)
_METADATA_FILES = ("METADATA", "WHEEL", "RECORD", "entry_points.txt")
_HOW = "name it as https://HOST/FILE.whl, or as INDEX#NAME==VERSION"


class ChangedError(NetworkError):
    """A file changed on its server while it was read."""


class RemoteFile(RawFile):
    """A file on a server, of which each block is read once, when it is needed.

    Attributes:
        requests: how many were made.
        fetched: bytes that came.
    """

    is_remote = True

    def __init__(self, url: str, name: str) -> None:
        """Read the end of the file.

        Raises:
            WholeFileError: the server does not offer parts of it.
            NetworkError: the server does not answer, or with an error.
        """
        self.path = Path(name)
        self.requests = self.fetched = 0
        self._blocks: dict[int, bytes] = {}
        self._url, self._tag = url, ""
        self.size = 0
        try:
            part = self._read_part(None, _TAIL)
        except web.WholeFileError as error:
            if not error.only_end:
                raise
            # Some servers know parts, but not "the last so many bytes"
            part = self._read_part(0, _BLOCK)
        self._url, self._tag, self.size = part.url, part.tag, part.total
        self._keep(part)

    def fill(self, buffer: memoryview, offset: int) -> None:
        """The bytes from `offset` into memory of the caller's."""
        buffer[:] = self.at(offset, len(buffer))

    def close(self) -> None:
        """Drop what was read."""
        self._blocks.clear()

    def read_ahead(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Read several ranges, of which those near each other by one request."""
        begin = end = -1
        for start, stop in [*sorted(ranges), (self.size + _NEAR, self.size + _NEAR)]:
            if end >= 0 and start - end > _NEAR:
                self._read_once(begin, end - begin)
                begin = end = -1
            begin, end = (start if begin < 0 else begin), max(end, stop)

    def _read_once(self, offset: int, size: int) -> bytes:
        first, last = offset // _BLOCK, (offset + size - 1) // _BLOCK
        at = first
        while at <= last:
            if at in self._blocks:
                at += 1
                continue
            stop = at
            while stop <= last and stop not in self._blocks and (stop - at + 1) * _BLOCK <= _LONGEST_PART:
                stop += 1
            begin = at * _BLOCK
            part = self._read_part(begin, min(stop * _BLOCK, self.size) - begin)
            if (part.total, part.tag) != (self.size, self._tag):
                raise self._changed()
            self._keep(part)
            at = stop
        data = b"".join(self._blocks[number] for number in range(first, last + 1))
        return data[offset - first * _BLOCK :][:size]

    def _read_part(self, start: int | None, size: int) -> web.Part:
        if self.requests >= _MOST_REQUESTS:
            raise WheelError(f"{self.path} takes more than {_MOST_REQUESTS} requests to read in parts")
        self.requests += 1
        try:
            part = web.read_part(self._url, start, size, tag=self._tag, timeout=_SECONDS, tip=TIP)
        except web.WholeFileError as error:
            if self.size:
                raise self._changed() from error
            raise
        self.fetched += len(part.data)
        return part

    def _keep(self, part: web.Part) -> None:
        """Hold the whole blocks of a part; the last one of the file may be shorter."""
        for number in range(-(-part.start // _BLOCK), -(-part.total // _BLOCK)):
            begin = number * _BLOCK - part.start
            block = part.data[begin : begin + _BLOCK]
            if len(block) == min(_BLOCK, part.total - number * _BLOCK):
                self._blocks[number] = block

    def _changed(self) -> ChangedError:
        return ChangedError(f"{self.path} was changed on its server while it was read", tip="run it again")


def find(text: str, *, like: str | None = None) -> Path | IndexFile:
    """Return the wheel that a user names: a path, a URL, or `INDEX#NAME==VERSION` or `INDEX#FILE.whl`.

    Args:
        text: what the user wrote.
        like: a file name; of several wheels of a version the one for its Python and platform is meant.

    Raises:
        UsageError: it is none of these, or the index has several of the version and none is for this Python.
        NetworkError: the index does not answer, or has no such wheel.
    """
    place, hash_sign, fragment = text.rpartition("#")
    if not hash_sign or Path(text).exists():
        place, fragment = text, ""
    try:
        parts = urlsplit(place)
        _ = parts.port if parts.scheme in ("http", "https") else None
    except ValueError:  # whose text may have the password in it
        raise UsageError("a URL has a host or a port that cannot be read", tip=_HOW) from None
    is_url = "://" in place
    if is_url and parts.scheme not in ("http", "https", "file"):
        raise UsageError(f"wheels cannot be read from {parts.scheme}://", tip=_HOW)
    name = unquote(parts.path.rpartition("/")[2])
    if name.endswith(".whl") and is_url:
        sha256 = _sha256_of(fragment) if fragment else None
        if parts.scheme == "file" and not sha256:
            return _local(place)
        return IndexFile(name=name, url=place, sha256=sha256)
    if fragment:
        return _in_index(place, unquote(fragment), like)
    if is_url:
        raise UsageError(f"{web.shown(place)} is not the URL of a wheel", tip=_HOW)
    return Path(place)


def file_name(wheel: Path | str) -> str | None:
    """Return the name of the file, where what `find` takes has one; None where the index decides."""
    if isinstance(wheel, Path):
        return wheel.name
    place, _, fragment = wheel.partition("#")
    names = (fragment, place.partition("?")[0].rpartition("/")[2])
    return next((unquote(name) for name in names if name.endswith(".whl")), None)


@contextlib.contextmanager
def reading(
    wheel: Path | str | IndexFile, *, whole: bool = False, like: str | None = None
) -> Iterator[Archive]:
    """Open a wheel wherever it is, in parts where that is on a server.

    A server that does not offer parts of it sends it whole, which is said.

    Args:
        wheel: a file, or what `find` takes.
        whole: fetch it, so that its libraries can be read.
        like: see `find`.

    Raises:
        UsageError: see `find`.
        NetworkError: see `find` and `opening`.
        WheelError: it is not a wheel.
    """
    place = find(wheel, like=like) if isinstance(wheel, str) else wheel
    with contextlib.ExitStack() as stack:
        if isinstance(place, IndexFile):
            try:
                archive = stack.enter_context(opening(place))
            except web.WholeFileError as error:
                size = f", {console.size(error.size)}" if error.size else ""
                console.current().info(f"{error}: fetching it whole{size}")
            else:
                if not whole:
                    yield archive
                    raw = archive.raw
                    if isinstance(raw, RemoteFile):
                        part = f"{console.size(raw.fetched)} of {console.size(raw.size)}"
                        times = f"{raw.requests} request{'s' * (raw.requests > 1)}"
                        console.current().info(f"{place.name}: {part} fetched by {times}")
                    return
                console.current().info(f"fetching {place.name}, {console.size(archive.raw.size)}")
            place = stack.enter_context(whole_file(place))
        wheel_info.parse_file_name(place.name, variants_too=True)
        yield stack.enter_context(Archive.open(place, limits=Limits(links=True)))


@contextlib.contextmanager
def whole_file(wheel: Path | str | IndexFile) -> Iterator[Path]:
    """Download a wheel into a temporary folder, if it is not a file of this machine.

    Its sha256 is checked where the index or the URL names one.

    Raises:
        UsageError: see `find`.
        NetworkError: it is not there, or has other bytes.
    """
    file = find(wheel) if isinstance(wheel, str) else wheel
    if isinstance(file, Path):
        yield file
        return
    wheel_info.parse_file_name(file.name, variants_too=True)
    with tempfile.TemporaryDirectory(prefix="cairn-wheel-") as folder:
        path = Path(folder, file.name)
        with console.current().stage(f"fetch {file.name}") as stage:
            sha256 = simple_index.download(file, path, say=stage.update)
        if file.sha256 not in (None, sha256):
            raise NetworkError(
                f"{web.shown(file.url)} has other bytes: sha256 {sha256}, and not {file.sha256}",
                tip="run it again; if it stays so, ask who publishes it",
            )
        claim = "as published" if file.sha256 else "which nobody has named"
        console.current().info(f"{file.name}: sha256 {sha256}, {claim}")
        yield path


@contextlib.contextmanager
def opening(file: IndexFile, *, ahead: Collection[str] = _METADATA_FILES) -> Iterator[Archive]:
    """Open a wheel of an index; where it is on a server, some files of its dist-info folder are read ahead.

    Raises:
        WholeFileError: the server does not offer parts of it.
        NetworkError: there is no such file, or it was changed meanwhile.
        WheelError: it is not a wheel.
    """
    parsed = wheel_info.parse_file_name(file.name, variants_too=True)
    raw = None if file.url.startswith("file:") else RemoteFile(file.url, file.name)
    with Archive.open(raw or _local(file.url), limits=Limits(links=True)) as archive:
        if raw is None:
            yield archive
            return
        folder = wheel_info.find_dist_info(archive, parsed.distribution)
        at_once = {f"{folder}/{name}" for name in ahead}
        raw.read_ahead([(each.offset, each.end) for each in archive.members if each.name in at_once])
        yield archive


def metadata(file: IndexFile) -> bytes | None:
    """Return a wheel's METADATA, by the sidecar of its page, else by ranges; None where there are neither.

    Raises:
        NetworkError: the index does not answer.
    """
    if (data := simple_index.metadata(file)) is not None:
        return data
    if not file.name.endswith(".whl") or not file.url.startswith(("http://", "https://")):
        return None
    try:
        with opening(file, ahead=("METADATA",)) as archive:
            folder = wheel_info.find_dist_info(archive, wheel_info.parse_file_name(file.name).distribution)
            return archive.read(f"{folder}/METADATA")
    except web.WholeFileError:
        return None


def _in_index(place: str, fragment: str, like: str | None) -> Path | IndexFile:
    """The file of an index that a requirement or a file name means."""
    if fragment.endswith(".whl"):
        project, requirement = wheel_info.parse_file_name(fragment, variants_too=True).distribution, None
    else:
        try:
            requirement = requirements.requirement(fragment)
        except ValueError as error:
            raise UsageError(f"{fragment!r} names no wheel of {web.shown(place)}", tip=_HOW) from error
        project = canonicalize_name(requirement.name)
    folder = None if "://" in place else Path(place)
    if folder and not folder.is_dir():
        raise UsageError(f"there is no folder {place}", tip=_HOW)
    listed = simple_index.files(place, project)
    if folder and not listed:
        listed = tuple(
            IndexFile(name=path.name, url=path.absolute().as_uri(), sha256=None)
            for path in sorted(folder.glob("*.whl"))
            if canonicalize_name(path.name.partition("-")[0]) == project
        )
    if requirement is None:
        files = [file for file in listed if file.name == fragment]
    else:
        # A yanked file counts where there is nothing else (PEP 592).
        offers = [[file for file in listed if not file.yanked], listed]
        newest = (_newest(project, offer, requirement.specifier) for offer in offers)
        files = next(filter(None, newest), [])
    if not files:
        problem = None if folder or listed else package_index.index_problem(place, project)
        if problem:
            raise NetworkError(problem, tip=TIP)
        raise NetworkError(_lacking(web.shown(place), project, fragment, listed), tip=_HOW)
    file = files[0] if len(files) == 1 else _one_of(web.shown(place), fragment, files, like)
    return _local(file.url) if file.url.startswith("file:") and not file.sha256 else file


def _sha256_of(fragment: str) -> str:
    """The sha256 in the fragment of a URL, which may have other words beside it, as pip writes them."""
    values = [word.removeprefix("sha256=") for word in fragment.split("&") if word.startswith("sha256=")]
    if len(values) != 1 or not _SHA256.fullmatch(values[0]):
        raise UsageError(
            f"#{fragment} names no sha256 to compare the wheel with",
            tip="write #sha256= and its 64 hexadecimal digits, or leave it out",
        )
    return values[0].lower()


def _local(url: str) -> Path:
    return Path(urllib.request.url2pathname(urlsplit(url).path))


def _newest(project: str, files: Iterable[IndexFile], specifier: SpecifierSet) -> list[IndexFile]:
    """The wheels of the newest version that a requirement allows."""
    by_version: dict[Version, list[IndexFile]] = {}
    for file in files:
        with contextlib.suppress(CairnError, ValueError):  # not a wheel
            parsed = wheel_info.parse_file_name(file.name, variants_too=True)
            if parsed.distribution == project:
                by_version.setdefault(Version(parsed.version), []).append(file)
    fitting = list(specifier.filter(by_version)) or [
        version for version in by_version if specifier.contains(version, prereleases=True)
    ]
    return by_version[max(fitting)] if fitting else []


def _one_of(place: str, fragment: str, files: Sequence[IndexFile], like: str | None) -> IndexFile:
    """The wheel for the Python and platform of another one, or of this interpreter: the most specific."""
    from packaging import tags  # noqa: PLC0415 - an index has many wheels of a version, a folder few

    words = wheel_info.parse_file_name(like, variants_too=True).tags if like else map(str, tags.sys_tags())
    whose = like or "this Python and machine"
    order: dict[str, int] = {}
    for number, tag in enumerate(map(_without_version, words)):
        order.setdefault(tag, number)
    ranks = {
        file: min((order[tag] for tag in map(_without_version, parsed.tags) if tag in order), default=None)
        for file in files
        if (parsed := wheel_info.parse_file_name(file.name, variants_too=True)).variant is None
    }
    fitting = {file: rank for file, rank in ranks.items() if rank is not None}
    if not fitting:
        raise UsageError(
            f"{place} has {len(files)} wheels {fragment}, and none is for {whose}",
            tip=f"name one by its file: {place}#{files[-1].name}",
        )
    file = min(fitting, key=fitting.__getitem__)
    console.current().info(f"{place} has {len(files)} wheels {fragment}; for {whose}: {file.name}")
    return file


def _without_version(tag: str) -> str:
    """A tag whose platform is a system and a machine alone: no glibc, musl or macOS."""
    return _SYSTEM.sub(lambda match: f"-{match[1].removeprefix('many')}_", tag)


def _lacking(place: str, project: str, fragment: str, files: Sequence[IndexFile]) -> str:
    names = [file.name for file in reversed(files) if file.name.endswith(".whl")]
    has = f"it has {wording.some(names, shown=2)}" if names else f"it has no wheel of {project}"
    return f"{place} has no wheel {fragment}: {has}"
