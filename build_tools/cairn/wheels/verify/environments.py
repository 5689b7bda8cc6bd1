"""Where a wheel may be installed: the Pythons of its tags, and the values of markers (PEP 425, PEP 508)."""

from __future__ import annotations

import itertools
import re
import sys

from packaging import tags
from packaging.markers import UndefinedEnvironmentName
from packaging.requirements import Requirement
from packaging.version import Version

from cairn import requirements
from cairn.wheels.metadata.wheel_info import FileName, WheelInfo

_LINUX = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}
_SYSTEMS = {
    "win": {"sys_platform": "win32", "platform_system": "Windows", "os_name": "nt"},
    "macosx": {"sys_platform": "darwin", "platform_system": "Darwin", "os_name": "posix"},
    "linux": _LINUX,
    "manylinux": _LINUX,
    "musllinux": _LINUX,
}
# The ends of platform tags, and what platform.machine() says there; the longer ones come last.
_MACHINES = dict.fromkeys(("x86_64", "aarch64", "i686", "armv7l", "ppc64le", "s390x", "riscv64", "arm64"), "")
_MACHINES |= {"win_amd64": "AMD64", "win32": "x86", "win_arm64": "ARM64"}
ONE_PYTHON = re.compile(r"cp(\d)(\d+)(?![^-])")
"""The tag of one version of CPython."""


def fits(tag: str, python: str) -> bool:
    """Whether CPython `python` installs a wheel of this tag, whatever its platform (PEP 425)."""
    platform = tag.split("-")[2]
    threads = "t" if python.endswith("t") else ""
    major, _, minor = python.removesuffix("t").partition(".")
    if not (major.isdecimal() and minor.isdecimal()):
        return False
    version = (int(major), int(minor))
    interpreter = f"cp{major}{minor}"
    known = itertools.chain(
        tags.cpython_tags(version, [f"{interpreter}{threads}"], [platform]),
        tags.compatible_tags(version, interpreter, [platform]),
    )
    return tag in map(str, known)


def allows(info: WheelInfo, python: str) -> bool:
    """Whether Requires-Python allows a Python, such as `3.11`."""
    try:
        return requirements.specifiers(info.requires_python or "").contains(python)
    except ValueError:
        return False


def applies(requirement: Requirement, name: FileName, python: str | None, extra: str = "") -> bool:
    """Whether the marker of a requirement holds where the wheel is installed with an extra."""
    markers = environment(name, python) | {"extra": extra}
    try:
        return requirement.marker is None or requirement.marker.evaluate(markers)
    except UndefinedEnvironmentName:
        return False


def environment(name: FileName, python: str | None) -> dict[str, str]:
    """The values of markers where the wheel is installed; what its tag leaves open is as on this machine."""
    interpreter, abi, platform = name.tags[0].split("-")
    markers: dict[str, str] = {}
    for prefix, values in _SYSTEMS.items():
        if platform.startswith(prefix):
            markers |= values
    for tag, machine in _MACHINES.items():
        if platform.endswith(tag):
            markers["platform_machine"] = machine or tag
    known = ONE_PYTHON.fullmatch(interpreter)
    version = (python or (f"{known[1]}.{known[2]}" if known else "")).removesuffix("t")
    if not python and known and abi == "abi3":  # for that Python and all newer ones
        version = max(version, f"{sys.version_info[0]}.{sys.version_info[1]}", key=Version)
    if version:
        markers |= {"python_version": version, "python_full_version": f"{version}.0"}
    return markers
