"""What a wheel requires must be what it was built against."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.markers import UndefinedEnvironmentName
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from cairn.errors import WheelError
from cairn.wheels import metadata, suppliers
from cairn.wheels.findings import Expectation, Finding
from cairn.wheels.metadata import FileName, WheelInfo

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
_ONE_PYTHON = re.compile(r"cp(\d)(\d+)")


def check(info: WheelInfo, name: FileName, expected: Expectation) -> Iterator[Finding]:
    """Breaches by requirement."""
    siblings: dict[str, str] = {
        canonicalize_name(name): version for name, version in expected.siblings.items()
    }
    for text in info.requires_dist:
        try:
            wanted = metadata.requirement(text)
        except WheelError as error:
            yield _finding(info, "requirement-invalid", str(error), "correct the project's requirements")
            continue
        yield from _check_one(info, wanted, siblings)
        yield from _check_beside(info, wanted, name, expected)


def _check_one(info: WheelInfo, wanted: Requirement, siblings: dict[str, str]) -> Iterator[Finding]:
    name = canonicalize_name(wanted.name)
    if wanted.url:
        yield _finding(
            info,
            "requirement-url",
            f"{wanted} names a place instead of a version",
            "require a version that the index has",
        )
    if name == info.distribution and not wanted.extras:
        yield _finding(info, "requires-itself", f"it requires itself: {wanted}", "remove the requirement")
    elif name in siblings and not _pins(wanted, siblings[name]):
        yield _finding(
            info,
            "sibling-not-exact",
            f"it requires {wanted}, but was built against {name} {siblings[name]}",
            f"require {name}=={siblings[name]}",
        )


def _check_beside(
    info: WheelInfo, wanted: Requirement, name: FileName, expected: Expectation
) -> Iterator[Finding]:
    """What is installed with it must be what it requires."""
    there = expected.beside.get(canonicalize_name(wanted.name), ())
    if not there or any(suppliers.meets(version, wanted) for version in there):
        return
    try:
        concerned = wanted.marker is None or wanted.marker.evaluate(_environment(name, expected.python))
    except UndefinedEnvironmentName:
        concerned = False
    if concerned:
        yield _finding(
            info,
            "requirement-unmet",
            f"it requires {wanted}, and {', '.join(there)} is what lies beside it",
            "build both in one run, or name the wheel that it requires",
        )


def _environment(name: FileName, python: str | None) -> dict[str, str]:
    """What markers are about, where the wheel is installed; what its tag leaves open is as it is here."""
    interpreter, _, platform = name.tags[0].split("-")
    found = {"extra": ""}
    for prefix, values in _SYSTEMS.items():
        if platform.startswith(prefix):
            found |= values
    for tag, machine in _MACHINES.items():
        if platform.endswith(tag):
            found["platform_machine"] = machine or tag
    known = _ONE_PYTHON.fullmatch(interpreter)
    version = (python or (f"{known[1]}.{known[2]}" if known else "")).removesuffix("t")
    if version:
        found |= {"python_version": version, "python_full_version": f"{version}.0"}
    return found


def _pins(wanted: Requirement, version: str) -> bool:
    """Whether exactly `version` is wanted, its local part included."""
    specifiers = list(wanted.specifier)
    if len(specifiers) != 1 or specifiers[0].operator not in ("==", "==="):
        return False
    try:
        return Version(specifiers[0].version) == Version(version)
    except ValueError:
        return False


def _finding(info: WheelInfo, code: str, reason: str, fix: str) -> Finding:
    return Finding(code=code, member=f"{info.dist_info}/METADATA", reason=reason, fix=fix)
