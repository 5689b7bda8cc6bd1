"""The open set that wheels on disk form: each is read and hashed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import structs

from cairn import files
from cairn.targets import family_of, parse_target_id
from cairn.wheels import wheelset
from cairn.wheels.contents import binaries
from cairn.wheels.metadata import device_names, wheel_info
from cairn.wheels.wheelset import SetWheel, WheelSet


def make(  # noqa: PLR0913 - each is one property of a set
    wheels: Sequence[Path],
    *,
    manifest_sha256: str,
    stack: str,
    line: str,
    python: str,
    platform: str,
    family: str,
    targets: Sequence[str],
    requirements: Sequence[str] = (),
) -> WheelSet:
    """The open set of these wheels, each read and hashed.

    Raises:
        WheelError: no wheels, a wheel that cannot be read, or two of one distribution.
    """
    members = tuple(sorted(map(describe, wheels), key=lambda wheel: (wheel.distribution, wheel.file_name)))
    wheel_set = WheelSet(
        manifest_sha256=manifest_sha256,
        stack=stack,
        line=line,
        python=python,
        platform=platform,
        family=family,
        targets=tuple(targets),
        wheels=members,
        requirements=tuple(requirements),
    )
    wheelset.check(wheel_set, "the set")
    return wheel_set


def part_of(whole: WheelSet, targets: Sequence[str]) -> WheelSet:
    """The open set for some targets of a split build: the host wheels, and these targets' device wheels."""
    processors = {parse_target_id(name).processor for name in targets}
    names = [wheel.distribution for wheel in whole.wheels]

    def is_for_others(name: str) -> bool:
        named_processors = filter(None, (device_names.processor_of(name, host) for host in names))
        return any(processor not in processors for processor in named_processors)

    return structs.replace(
        whole,
        family=family_of(targets),
        targets=tuple(targets),
        wheels=tuple(wheel for wheel in whole.wheels if not is_for_others(wheel.distribution)),
    )


def describe(wheel: Path, *, sha256: str | None = None) -> SetWheel:
    """The entry of a set for one wheel.

    Args:
        wheel: the wheel.
        sha256: of its bytes, where the caller has just hashed them.

    Raises:
        WheelError: it cannot be read.
    """
    info = wheel_info.read(wheel)
    return SetWheel(
        distribution=info.distribution,
        version=str(wheel_info.parsed_version(info.version)),
        file_name=info.file_name,
        sha256=sha256 or files.sha256_of(wheel),
        size=info.size,
        metadata_sha256=info.metadata_sha256,
        targets=binaries.targets_of(wheel),
        requires_python=info.requires_python,
    )
