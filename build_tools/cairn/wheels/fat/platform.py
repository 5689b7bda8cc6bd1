"""What platform a wheel is for, what its systems have, and which tag its fat wheel may have."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from cairn.errors import WheelError
from cairn.formats.zip.reader import Archive
from cairn.wheels.contents import binaries, system_libraries
from cairn.wheels.contents.binaries import Binary, Format, shipped
from cairn.wheels.metadata.wheel_info import WheelInfo, platforms_of

_LINUX = re.compile(r"(?P<policy>linux|manylinux[0-9]+|manylinux_[0-9]+_[0-9]+)_(?P<machine>.+)")
_WINDOWS = re.compile(r"win(?:32|_amd64|_arm64)")
# Microsoft's redistributable C and C++ runtime, which torch for Windows asks its users to install.
_RUNTIME = re.compile(r"(?:concrt|msvcp|vccorlib|vcomp|vcruntime)140[0-9a-z_]*\.dll", re.IGNORECASE)


class WheelPlatform(msgspec.Struct, frozen=True, kw_only=True):
    """The platform of a wheel.

    Attributes:
        system: its operating system.
        machine: the architecture of its binaries, such as `x86_64` or `win_amd64`.
        judged: whether its tag has been justified by its binaries, as a plain `linux` tag has not.
    """

    system: Literal["linux", "windows"]
    machine: str
    judged: bool

    @property
    def format(self) -> Format:
        """The format of its binaries."""
        return "elf" if self.system == "linux" else "pe"

    def read_wheel(self, archive: Archive) -> tuple[Binary, ...]:
        """The binaries in a wheel, without their device code."""
        watched = frozenset[str]() if self.judged else system_libraries.watched_symbols()
        read = binaries.read_archive(archive, only=self.format, device_code=False, look_for=watched)
        return tuple(binary for binary in read if not binary.is_device_code)

    def read_library(self, path: Path) -> Binary:
        """A library of the ROCm tree.

        Raises:
            WheelError: it is malformed or empty, or for a different machine.
        """
        binary = binaries.read_file(path, self.format, look_for=system_libraries.watched_symbols())
        if binary.machine != self.machine:
            raise WheelError(f"it is for {binary.machine}, the wheel for {self.machine}")
        return binary

    def on_system(self, name: str) -> bool:
        """Whether every system that the wheel is for has that library."""
        if self.system == "linux":
            return system_libraries.newest_policy().has(name)
        return bool(_RUNTIME.fullmatch(name)) or system_libraries.on_windows(name, self.machine)


def platform_of(info: WheelInfo) -> WheelPlatform:
    """The platform of a wheel.

    Raises:
        WheelError: it is for no platform that has ROCm, or for several.
    """
    platforms = platforms_of(info.tags)
    linux = [match for platform in platforms if (match := _LINUX.fullmatch(platform))]
    machines = {match["machine"] for match in linux}
    if len(linux) == len(platforms) and len(machines) == 1:
        judged = all(match["policy"] != "linux" for match in linux)
        return WheelPlatform(system="linux", machine=machines.pop(), judged=judged)
    if len(platforms) == 1 and _WINDOWS.fullmatch(platforms[0]):
        return WheelPlatform(system="windows", machine=platforms[0], judged=True)
    raise WheelError(
        f"{info.file_name} is for {', '.join(platforms)}, for which there is no ROCm",
        tip="a fat wheel is made from a wheel for one Linux or Windows platform",
    )


def tags_of(
    info: WheelInfo,
    platform: WheelPlatform,
    own: Sequence[Binary],
    added: Sequence[Binary],
    *,
    names: Collection[str],
    provided: Sequence[str],
) -> tuple[str, ...] | None:
    """The tags of the fat wheel: of the oldest systems on which it runs, but none older than it had.

    Args:
        info: the wheel so far.
        platform: its platform.
        own: the binaries it has.
        added: those it gets.
        names: further names that the added ones are needed by.
        provided: globs of libraries that other wheels supply.

    Returns:
        None when they stay as they are.

    Raises:
        WheelError: no tag promises what the libraries need.
    """
    if platform.system != "linux":
        return None
    # The former tag is a lower bound: the wheel's own binaries were judged by it, and by none that is older.
    known = [policy for policy in system_libraries.policies() if platform.machine in policy.versions]
    former = map(system_libraries.policy_of, platforms_of(info.tags))
    oldest = min((known.index(policy) for policy in former if policy in known), default=0)
    judged = added if platform.judged else (*own, *added)
    beside = shipped(own) | frozenset(names)
    for policy in known[oldest:]:
        if policy.runs(judged, provided, beside=beside):
            tag = f"{policy.name}_{platform.machine}"
            return tuple(sorted({"-".join((*text.split("-")[:2], tag)) for text in info.tags}))
    newest = known[-1]
    wrong = {objection for binary in judged for objection in newest.objections(binary)}
    raise WheelError(
        f"no manylinux tag promises what the libraries need: {', '.join(sorted(wrong)[:5])}",
        tip="take a ROCm that was built on an older system",
    )
