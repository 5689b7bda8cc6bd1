"""Read the parts of a distribution file, wheel or sdist, that an index needs."""

from __future__ import annotations

import functools
import lzma
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO

import msgspec
from packaging.metadata import RawMetadata
from packaging.requirements import Requirement
from packaging.utils import (
    canonicalize_name,
    canonicalize_version,
    is_normalized_name,
    parse_sdist_filename,
)

from cairn import datafile, files, requirements
from cairn.errors import StoreError
from cairn.formats.zip.reader import Archive
from cairn.release.index.generation import FileRef
from cairn.wheels.metadata import device_names, variants
from cairn.wheels.metadata import wheel_info as wheel_metadata
from cairn.wheels.metadata.fields import core_metadata
from cairn.wheels.metadata.variants import Variants

_LIMIT = 16 << 20  # bytes; no real metadata comes near, a hostile sdist might
_METADATA_VERSION = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})")
_CORRECT = "correct the project's metadata and build it again: installers would refuse it or ignore it"
# What the standard library raises over a broken archive, an encrypted or an exotic one.
_BROKEN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    OSError,
    OverflowError,
    RuntimeError,
    ValueError,
)
_DEPENDENCY_FIELDS = frozenset({"requires-dist", "requires-python", "provides-extra"})
_NO_PYPROJECT = ("setuptools>=40.8.0",)  # PEP 517: what builds an sdist that does not say


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """The requirements and extras in a distribution's metadata.

    Attributes:
        requires: its `Requires-Dist`.
        extras: its normalised `Provides-Extra`.
        reliable: False for an sdist that decides its requirements when it is built (PEP 643); what it lists
            is then only what the machine that made it chose.
    """

    requires: tuple[Requirement, ...]
    extras: tuple[str, ...]
    reliable: bool = True


class Dist(msgspec.Struct, frozen=True, kw_only=True):
    """A distribution file on this machine.

    Attributes:
        path: the file.
        name: normalised project name.
        version: as in its file name.
        sha256: of its bytes.
        size: in bytes.
        requires_python: the specifier in its metadata.
        metadata: `METADATA` or `PKG-INFO`, byte for byte.
        needs: what that says about others.
        variant: what a wheel variant says of the machines that it is for; None for any other file.
        unpacked: bytes of a wheel's members, unpacked; of an sdist, its size.
    """

    path: Path
    name: str
    version: str
    sha256: str
    size: int
    requires_python: str | None
    metadata: bytes
    needs: Needs
    variant: Variants | None = None
    unpacked: int

    @property
    def ref(self) -> FileRef:
        """The file's name and digest alone."""
        return FileRef(filename=self.path.name, sha256=self.sha256)


def read(path: Path, *, sha256: str | None = None) -> Dist:
    """Read a wheel or an sdist.

    Args:
        path: the file.
        sha256: what somebody else compares with its bytes; without, they are hashed.

    Raises:
        StoreError: it is neither, or its name and its metadata disagree.
        WheelError: it is a malformed wheel.
    """
    size = path.stat().st_size
    wheel = path.suffix == ".whl"
    name, version, data, variant, unpacked = _wheel(path) if wheel else (*_sdist(path), None, size)
    raw = _raw(data, path.name)
    try:
        requirements.version(raw["version"])
        requirements.specifiers(raw.get("requires_python") or "")
    except ValueError as error:
        raise StoreError(f"the metadata of {path.name}: {error}", tip=_CORRECT) from error
    if (canonicalize_name(raw["name"]), _normal(raw["version"])) != (name, _normal(version)):
        raise StoreError(
            f"{path.name} holds the metadata of {raw['name']} {raw['version']}",
            tip="a file that was renamed by hand has the wrong metadata: build it under its name",
        )
    return Dist(
        path=path,
        name=name,
        version=version,
        sha256=sha256 or files.sha256_of(path),
        size=size,
        requires_python=raw.get("requires_python") or None,
        metadata=data,
        needs=needs_of(data, filename=path.name),
        variant=variant,
        unpacked=unpacked,
    )


@functools.lru_cache(maxsize=128)  # the sets of an index share most of their files
def needs_of(data: bytes, *, filename: str) -> Needs:
    """The requirements and extras in a `METADATA` or `PKG-INFO`.

    Raises:
        StoreError: a requirement in it cannot be read.
    """
    raw = _raw(data, filename)
    extras = {canonicalize_name(extra) for extra in raw.get("provides_extra", ())}
    # PEP 643: since version 2.2, a field that is not listed as `Dynamic` is the same in every wheel of the
    # sdist. A version that cannot be read counts as older.
    match = _METADATA_VERSION.match(raw.get("metadata_version", ""))
    version = (int(match[1]), int(match[2])) if match else (1, 0)
    dynamic = {field.lower() for field in raw.get("dynamic", ())}
    is_static = version >= (2, 2) and not dynamic & _DEPENDENCY_FIELDS
    return Needs(
        requires=_requirements(raw.get("requires_dist", ()), filename),
        # Old metadata has others, such as `*`, which nobody can ask for.
        extras=tuple(sorted(extra for extra in extras if is_normalized_name(extra))),
        reliable=filename.endswith(".whl") or is_static,
    )


def extras_beside(needs: Needs, project: str, beside: Collection[str]) -> tuple[str, ...]:
    """The extras of a distribution that can be asked for in a set.

    A host wheel has an extra for the device wheel of each target it was built for, and is in the sets of
    several families: in each of these, the extras for other targets' device wheels are left out.

    Args:
        needs: of the distribution.
        project: its name.
        beside: the projects of the set.
    """
    absent = [
        requirement
        for requirement in needs.requires
        if device_names.processor_of(requirement.name, project)
        and canonicalize_name(requirement.name) not in beside
    ]
    return tuple(
        extra
        for extra in needs.extras
        if not any(
            requirement.marker is not None and requirement.marker.evaluate({"extra": extra})
            for requirement in absent
        )
    )


def build_requirements(stream: BinaryIO, *, filename: str) -> tuple[Requirement, ...]:
    """The requirements for building an sdist (PEP 518)."""
    data = sdist_member(stream, filename, "pyproject.toml")
    if data is None:
        return _requirements(_NO_PYPROJECT, filename)
    name = f"the pyproject.toml of {filename}"
    system = datafile.parse_toml(data, name=name).get("build-system", {})
    lines = system.get("requires", _NO_PYPROJECT) if isinstance(system, dict) else None
    if not isinstance(lines, list | tuple) or not all(isinstance(line, str) for line in lines):
        raise StoreError(f"{name} does not list what builds it")
    return _requirements(lines, filename)


def _requirements(lines: Iterable[str], filename: str) -> tuple[Requirement, ...]:
    try:
        return tuple(map(requirements.requirement, lines))
    except ValueError as error:
        raise StoreError(f"{filename} requires something unreadable: {error}", tip=_CORRECT) from error


def _raw(data: bytes, filename: str) -> RawMetadata:
    raw = core_metadata(data, name=f"the metadata of {filename}")
    if not raw.get("name") or not raw.get("version"):
        raise StoreError(f"{filename} has no readable metadata", tip=_CORRECT)
    return raw


def _normal(version: str) -> str:
    return canonicalize_version(version, strip_trailing_zero=False)


def _wheel(path: Path) -> tuple[str, str, bytes, Variants | None, int]:
    name = wheel_metadata.parse_file_name(path.name, variants_too=True)
    with Archive.open(path) as archive:
        info = wheel_metadata.read_archive(archive, variants_too=True)
        member, variant = f"{info.dist_info}/{variants.IN_WHEEL}", None
        if name.variant is not None or member in archive:  # and then it is one that lost its label
            variant = variants.of_wheel(archive.read(member), path.name)
        unpacked = sum(each.size for each in archive.members)
    return name.distribution, name.version, info.metadata, variant, unpacked


def _sdist(path: Path) -> tuple[str, str, bytes]:
    try:
        name, version = parse_sdist_filename(path.name)
    except ValueError as error:  # also of a number with more digits than Python converts
        raise StoreError(
            f"{path.name} is neither a wheel nor an sdist", tip="publish .whl, .tar.gz and .zip files"
        ) from error
    with path.open("rb") as stream:
        data = sdist_member(stream, path.name, "PKG-INFO")
    if not requirements.is_project_name(name):
        raise StoreError(f"{path.name[:200]!r} has a name that no project can have (PEP 508)", tip=_CORRECT)
    if data is None:
        raise StoreError(f"{path.name} has no PKG-INFO", tip="build it again: python3 -m build --sdist")
    return str(name), str(version), data


def sdist_member(stream: BinaryIO, filename: str, member: str) -> bytes | None:
    """Return a file of an sdist by its path below the top folder; None where there is none.

    Raises:
        StoreError: the sdist cannot be read.
    """
    read: Callable[[BinaryIO, str], bytes | None] = _zip_member if filename.endswith(".zip") else _tar_member
    try:
        return read(stream, member)
    except _BROKEN as error:
        # tarfile says a line for each kind of compression that it has tried.
        reason = "; ".join(str(error).splitlines()) or type(error).__name__
        raise StoreError(
            f"{filename} cannot be read: {reason}", tip="build it again, or fetch it again"
        ) from error


def _at_top(name: str, member: str) -> bool:
    # An sdist has everything in one folder (PEP 625), whose spelling differs between builders.
    return PurePosixPath(name).parts[1:] == PurePosixPath(member).parts


def _tar_member(stream: BinaryIO, member: str) -> bytes | None:
    with tarfile.open(fileobj=stream, mode="r:*") as archive:
        for info in archive:
            if _at_top(info.name, member) and info.isfile():
                inner = archive.extractfile(info)
                return _whole(inner, member) if inner else None
    return None


def _zip_member(stream: BinaryIO, member: str) -> bytes | None:
    with zipfile.ZipFile(stream) as archive:
        for name in archive.namelist():
            if _at_top(name, member):
                with archive.open(name) as inner:
                    return _whole(inner, member)
    return None


def _whole(stream: IO[bytes], member: str) -> bytes:
    data = stream.read(_LIMIT + 1)
    if len(data) > _LIMIT:
        raise StoreError(f"its {member} is larger than {_LIMIT >> 20} MiB", tip="publish what was built")
    return data
