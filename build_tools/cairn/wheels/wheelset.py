"""set.json: the wheels built from one manifest for one Python, platform and family."""

from __future__ import annotations

import collections
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from cairn import datafile, files
from cairn.errors import WheelError
from cairn.wheels.contents import binaries
from cairn.wheels.metadata import wheel_info


class SetWheel(datafile.Value):
    """One wheel of a set.

    Attributes:
        distribution: its project's canonical name.
        version: its version, normalised.
        file_name: its file name.
        sha256: of the file, in hex.
        size: bytes of the file.
        metadata_sha256: of its METADATA, in hex.
        targets: the targets it has device code for, sorted.
    """

    distribution: str
    version: str
    file_name: str
    sha256: str
    size: int
    metadata_sha256: str
    targets: tuple[str, ...]


class WheelSet(datafile.Value, tag_field="schema", tag="cairn.set/1"):
    """Wheels that are promoted whole or not at all.

    Attributes:
        set_id: the sha256, in hex, over the sorted sha256s of the wheels, one a line.
        manifest_sha256: of the manifest they were built from.
        stack: the name of the stack.
        python: the Python version, such as `3.11`.
        platform: the platform, such as `linux_x86_64`.
        family: the family of the targets.
        targets: the targets that were asked for.
        wheels: the wheels, by distribution and file name.
        requirements: what the set needs and no METADATA says, such as the packages that the `rocm` sdist
            chooses when it is installed.
    """

    set_id: str
    manifest_sha256: str
    stack: str
    python: str
    platform: str
    family: str
    targets: tuple[str, ...]
    wheels: tuple[SetWheel, ...]
    requirements: tuple[str, ...] = ()


def make(  # noqa: PLR0913 - each is one property of a set
    wheels: Sequence[Path],
    *,
    manifest_sha256: str,
    stack: str,
    python: str,
    platform: str,
    family: str,
    targets: Sequence[str],
    requirements: Sequence[str] = (),
) -> WheelSet:
    """The set of these wheels, each read and hashed.

    Raises:
        WheelError: no wheels, a wheel that cannot be read, or two of one distribution.
    """
    members = tuple(sorted(map(describe, wheels), key=lambda wheel: (wheel.distribution, wheel.file_name)))
    _check_distinct(members)
    return WheelSet(
        set_id=id_of(wheel.sha256 for wheel in members),
        manifest_sha256=manifest_sha256,
        stack=stack,
        python=python,
        platform=platform,
        family=family,
        targets=tuple(targets),
        wheels=members,
        requirements=tuple(requirements),
    )


def describe(wheel: Path) -> SetWheel:
    """What a set says about one wheel.

    Raises:
        WheelError: it cannot be read.
    """
    info = wheel_info.read(wheel)
    return SetWheel(
        distribution=info.distribution,
        version=str(wheel_info.parsed_version(info.version)),
        file_name=info.file_name,
        sha256=files.sha256_of(wheel),
        size=info.size,
        metadata_sha256=info.metadata_sha256,
        targets=binaries.targets_of(wheel),
    )


def id_of(digests: Iterable[str]) -> str:
    """The id of the set whose wheels have these sha256s; their order does not matter."""
    return hashlib.sha256("\n".join(sorted(digests)).encode()).hexdigest()


def write(path: Path, wheel_set: WheelSet) -> None:
    """Write a set atomically."""
    datafile.write(path, wheel_set)


def read(path: Path) -> WheelSet:
    """Read a set that `write` made.

    Raises:
        UsageError: no such file, or malformed.
        WheelError: its id is not that of its wheels, or it names a distribution twice.
    """
    found = datafile.read(path, WheelSet)
    _check_distinct(found.wheels)
    if found.set_id != id_of(wheel.sha256 for wheel in found.wheels):
        raise WheelError(
            f"{path} was changed: the set id is not that of the wheels", tip="build the set again"
        )
    return found


def _check_distinct(wheels: Sequence[SetWheel]) -> None:
    if not wheels:
        raise WheelError("a set needs at least one wheel", tip="build something first")
    counts = collections.Counter(wheel.distribution for wheel in wheels)
    double = next((name for name, count in counts.items() if count > 1), None)
    if double:
        raise WheelError(f"a set cannot hold two wheels of {double}", tip="remove the older one")
