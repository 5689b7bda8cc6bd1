"""What platform a wheel is for, and which tag its fat wheel may have."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cairn.errors import WheelError
from cairn.wheels.contents import manylinux
from cairn.wheels.contents.manylinux import Policy
from cairn.wheels.fat.binaries import Binary, Linux, Platform, Windows
from cairn.wheels.fat.libraries import Bundle
from cairn.wheels.metadata.wheel_info import WheelInfo

_LINUX = re.compile(r"(?P<policy>linux|manylinux[0-9]+|manylinux_[0-9]+_[0-9]+)_(?P<machine>.+)")
_WINDOWS = re.compile(r"win(?:32|_amd64|_arm64)")


def platform_of(info: WheelInfo) -> Platform:
    """The platform of a wheel.

    Raises:
        WheelError: it is for none, or for several, that have ROCm.
    """
    tags = sorted({tag.split("-")[2] for tag in info.tags})
    linux = [match for tag in tags if (match := _LINUX.fullmatch(tag))]
    machines = {match["machine"] for match in linux}
    if len(linux) == len(tags) and len(machines) == 1:
        return Linux(machines.pop(), judge=any(match["policy"] == "linux" for match in linux))
    if len(tags) == 1 and _WINDOWS.fullmatch(tags[0]):
        return Windows(tags[0])
    raise WheelError(
        f"{info.file_name} is for {', '.join(tags)}, where there is no ROCm",
        tip="a fat wheel is made from a wheel for one Linux or Windows platform",
    )


def tags_of(
    info: WheelInfo, platform: Platform, own: Sequence[Binary], bundle: Bundle, provided: Sequence[str]
) -> tuple[str, ...] | None:
    """The tags of the fat wheel: of the oldest systems on which it runs, but none older than it had.

    Args:
        info: the wheel so far.
        platform: its platform.
        own: the binaries it has.
        bundle: what it gets.
        provided: globs of libraries that other wheels supply.

    Returns:
        None when they stay as they are.

    Raises:
        WheelError: no tag promises what the libraries need.
    """
    if not isinstance(platform, Linux):
        return None
    # Those of a wheel with a manylinux tag were judged when it got it.
    judged = [*own, *bundle.libraries] if platform.judge else bundle.libraries
    beside = manylinux.shipped(binary.library for binary in own if binary.library is not None)
    beside |= bundle.names.keys()
    libraries = [binary.library for binary in judged if binary.library is not None]
    for candidate in _candidates(info, platform.machine):
        if manylinux.runs_on(candidate, libraries, provided, beside=beside):
            tag = f"{candidate.name}_{platform.machine}"
            return tuple(sorted({"-".join((*text.split("-")[:2], tag)) for text in info.tags}))
    newest = manylinux.newest()
    wrong = {objection for library in libraries for objection in newest.objections(library)}
    raise WheelError(
        f"no manylinux tag promises what the libraries need: {', '.join(sorted(wrong)[:5])}",
        tip="take a ROCm that was built on an older system",
    )


def _candidates(info: WheelInfo, machine: str) -> Sequence[Policy]:
    """The policies that may become the tag, from the oldest systems on."""
    known = [entry for entry in manylinux.policies() if machine in entry.versions]
    platforms = {tag.split("-")[2] for tag in info.tags}
    own = [known.index(found) for name in platforms if (found := manylinux.policy_of(name)) in known]
    return known[min(own, default=0) :]
