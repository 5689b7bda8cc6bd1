"""Reading Debian packages: .deb files, and the database of packages that dpkg installed.

Source: deb(5) and deb-control(5) of dpkg; ar(5) for what a .deb is on the outside.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import re
from collections.abc import Iterator, Mapping
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from typing import IO, cast
from urllib.parse import quote

import msgspec

from cairn import files
from cairn.errors import UsageError
from cairn.formats import compression
from cairn.rocm.fetch import unpack
from cairn.rocm.fetch.unpack import UnsafeArchiveError

_MAGIC = b"!<arch>\n"
_HEADER = 60  # bytes before each member: name 16, time 12, owners 12, mode 8, size 10, end 2
_FORMAT = b"2."  # of `debian-binary`; a new minor number adds what old readers may ignore
_MOST_CONTROL = 1 << 20
_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]*")  # Debian Policy 5.6.1
_VERSION = re.compile(r"[0-9A-Za-z.+:~-]+")  # Debian Policy 5.6.12
_SIZE = re.compile(r"[0-9]{1,15}")


class DebianPackage(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A binary package.

    Attributes:
        name: such as `librocblas4`.
        version: Debian's, with its epoch and revision.
        architecture: such as `amd64`; `all` for every one.
        sha256: of the .deb; empty where it is installed, since dpkg does not keep it.
    """

    name: str
    version: str
    architecture: str
    sha256: str = ""

    @property
    def purl(self) -> str:
        """Its package URL (type deb of the purl specification)."""
        # The installed Debian knows no distribution but its own, and neither does a .deb.
        version = quote(self.version, safe=".-~")
        return f"pkg:deb/debian/{quote(self.name)}@{version}?arch={self.architecture}"


def find(places: tuple[Path, ...]) -> tuple[Path, ...]:
    """The .deb files that are named, or are in the folders that are named.

    Raises:
        UsageError: there is none, or no such file.
    """
    debs: set[Path] = set()
    for place in places:
        inside = set(place.glob("*.deb")) if place.is_dir() else {place}
        if not inside or not all(path.is_file() for path in inside):
            raise UsageError(f"no .deb in {place}", tip="download the packages first: apt-get download NAME")
        debs |= inside
    return tuple(sorted(debs))


def extract(deb: Path, folder: Path, *, most: int = unpack.MOST_UNPACKED) -> DebianPackage:
    """Unpack the files of a .deb into a new folder, which stands for `/`.

    Nothing of it gets out of the folder, and no script of it is run.

    Args:
        deb: the package.
        folder: must not be there.
        most: the bytes it may unpack to.

    Raises:
        UnsafeArchiveError: it is no .deb, would write elsewhere, or is too large.
    """
    with deb.open("rb") as file:
        places = _places(file, deb)
        package = _package(_control(file, places, deb), deb)
        with _member(file, places, "data.tar", deb) as data:
            unpack.unpack_stream(data, folder, deb, most=most)
    return package


def installed_size(deb: Path) -> int:
    """The bytes that the files of a .deb take, as it says itself; 0 where it does not.

    Raises:
        UnsafeArchiveError: it is no .deb.
    """
    with deb.open("rb") as file:
        size = _control(file, _places(file, deb), deb).get("Installed-Size", "")
    # In units of 1024 bytes (Debian Policy 5.6.20).
    return int(size) * 1024 if _SIZE.fullmatch(size) else 0


def database(prefix: Path) -> Path:
    """The folder of dpkg's database for a prefix such as `/usr`, or for that of a system elsewhere."""
    return prefix.resolve().parent / "var" / "lib" / "dpkg"


def installed(prefix: Path) -> Mapping[str, DebianPackage]:
    """Path below a prefix such as `/usr` to the package that it was installed by; empty without dpkg."""
    status = database(prefix) / "status"
    if not status.is_file():
        return {}
    owners: dict[str, DebianPackage] = {}
    for paragraph in status.read_text(encoding="utf-8", errors="replace").split("\n\n"):
        fields = HeaderParser().parsestr(paragraph)
        if fields.get("Status", "").endswith(" installed"):
            package = DebianPackage(
                name=fields["Package"], version=fields["Version"], architecture=fields["Architecture"]
            )
            for path in _files_of(status.with_name("info"), package):
                # Where /lib is a link to /usr/lib, older packages list their files below /lib.
                owners[path.strip().removeprefix("/usr/").removeprefix("/")] = package
    return owners


def _files_of(info: Path, package: DebianPackage) -> list[str]:
    # Packages that can be installed for several architectures have theirs in the name of the list.
    for name in (f"{package.name}.list", f"{package.name}:{package.architecture}.list"):
        if (info / name).is_file():
            return (info / name).read_text(encoding="utf-8", errors="replace").splitlines()
    return []


def _members(file: IO[bytes], deb: Path) -> Iterator[tuple[str, int, int]]:
    """Name, place and size of each member of the outer archive."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    if file.read(len(_MAGIC)) != _MAGIC:
        raise _not_a_deb(deb, "it does not begin as one")
    at = len(_MAGIC)
    while at < size:
        file.seek(at)
        header = file.read(_HEADER)
        length = header[48:58].strip()
        if not header.endswith(b"`\n") or not length.isdigit() or at + _HEADER + int(length) > size:
            raise _not_a_deb(deb, f"it is damaged or cut off at byte {at}")
        yield header[:16].decode("ascii", "replace").strip().rstrip("/"), at + _HEADER, int(length)
        at += _HEADER + int(length) + int(length) % 2  # members begin at even places


def _places(file: IO[bytes], deb: Path) -> dict[str, tuple[int, int]]:
    places: dict[str, tuple[int, int]] = {}
    for name, at, size in _members(file, deb):
        if name in places:
            raise _not_a_deb(deb, f"it has two {name}")
        places[name] = at, size
    return places


def _control(file: IO[bytes], places: Mapping[str, tuple[int, int]], deb: Path) -> Message:
    with _member(file, places, "debian-binary", deb) as member:
        if not member.read(16).startswith(_FORMAT):
            raise _not_a_deb(deb, "its format is not 2.0")
    with _member(file, places, "control.tar", deb) as stream:
        text = unpack.read_member(stream, "control", deb, most=_MOST_CONTROL)
    return HeaderParser().parsestr(text.decode("utf-8", "replace"))


def _package(fields: Message, deb: Path) -> DebianPackage:
    package = DebianPackage(
        name=fields.get("Package", ""),
        version=fields.get("Version", ""),
        architecture=fields.get("Architecture", ""),
        sha256=files.sha256_of(deb),
    )
    valid = _NAME.fullmatch(package.name) and _VERSION.fullmatch(package.version)
    if not valid or not _NAME.fullmatch(package.architecture):
        raise _not_a_deb(deb, "its control file does not say what it is")
    return package


@contextlib.contextmanager
def _member(
    file: IO[bytes], places: Mapping[str, tuple[int, int]], name: str, deb: Path
) -> Iterator[IO[bytes]]:
    """Yield the decompressed content of a member such as `data.tar` or `data.tar.xz`."""
    fitting = [each for each in places if each == name or each.startswith(f"{name}.")]
    if len(fitting) != 1:
        raise _not_a_deb(deb, f"it has {len(fitting) or 'no'} {name}")
    inside = fitting[0]
    part = cast("IO[bytes]", io.BufferedReader(_Part(file, *places[inside])))
    kind = inside.removeprefix(name)
    stream: IO[bytes]
    if kind in ("", "."):
        stream = part
    elif kind == ".gz":
        stream = cast("IO[bytes]", gzip.GzipFile(fileobj=part))
    elif kind in (".xz", ".lzma"):
        stream = lzma.LZMAFile(part)  # noqa: SIM115 - closed below
    elif kind == ".bz2":
        stream = bz2.BZ2File(part)
    elif kind == ".zst":
        stream = cast("IO[bytes]", compression.ZstdFile(part))
    else:
        raise _not_a_deb(deb, f"{inside!r} is packed in an unknown way")
    with stream:
        yield stream


class _Part(io.RawIOBase):
    """The bytes of a file between two places."""

    def __init__(self, file: IO[bytes], start: int, size: int) -> None:
        self._file, self._at, self._end = file, start, start + size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        self._file.seek(self._at)
        data = self._file.read(min(len(buffer), self._end - self._at))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def _not_a_deb(deb: Path, reason: str) -> UnsafeArchiveError:
    return UnsafeArchiveError(f"{deb.name} is not a whole .deb: {reason}", tip="download it again")
