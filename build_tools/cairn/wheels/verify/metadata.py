"""File name, METADATA, WHEEL and the dist-info folder must say the same."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from packaging import tags
from packaging.markers import UndefinedEnvironmentName
from packaging.metadata import Metadata, RawMetadata
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from cairn.errors import WheelError
from cairn.wheels.contents import providers
from cairn.wheels.metadata import wheel_info
from cairn.wheels.metadata.fields import core_metadata
from cairn.wheels.metadata.wheel_info import FileName, WheelInfo
from cairn.wheels.verify.findings import Expectation, Finding

_RETAG = "write the wheel with `cairn wheel set-version` or repair it again: both change all places together"


def check(info: WheelInfo, name: FileName, expected: Expectation) -> Iterator[Finding]:
    """Breaches by what the wheel says about itself."""
    yield from _check_identity(info, name)
    yield from _check_metadata(info)
    if info.wheel_tags != name.tags:
        yield Finding(
            code="tags-differ",
            member=f"{info.dist_info}/WHEEL",
            reason=f"WHEEL has the tags {', '.join(info.wheel_tags)}, the file name {', '.join(name.tags)}",
            fix=_RETAG,
        )
    if expected.python and not any(_fits(tag, expected.python) for tag in name.tags):
        yield Finding(
            code="python-tag",
            reason=f"no tag of {', '.join(name.tags)} is for Python {expected.python}",
            fix=f"build it with Python {expected.python}",
        )


def _check_identity(info: WheelInfo, name: FileName) -> Iterator[Finding]:
    folder = info.dist_info.removesuffix(".dist-info").rpartition("-")
    places = {
        f"{info.dist_info}/METADATA": (canonicalize_name(info.name), info.version),
        info.dist_info: (canonicalize_name(folder[0]), folder[2]),
    }
    for place, (distribution, version) in places.items():
        if distribution != name.distribution:
            yield Finding(
                code="name-differs",
                member=place,
                reason=f"it names {distribution}, the file name {name.distribution}",
                fix="build the wheel again",
            )
        if not _same(version, name.version):
            yield Finding(
                code="version-differs",
                member=place,
                reason=f"it has version {version}, the file name {name.version}",
                fix=_RETAG,
            )


def _check_metadata(info: WheelInfo) -> Iterator[Finding]:
    # Unknown fields are let through, as installers do.
    raw = core_metadata(info.metadata, name="METADATA")
    if info.metadata_version < wheel_info.LICENCES_APART:
        raw.pop("license_files", None)  # setuptools wrote them long before there was such a field
    for error in _errors(raw):
        yield Finding(
            code="metadata-invalid",
            member=f"{info.dist_info}/METADATA",
            reason=str(error),
            fix="correct the project's metadata (core metadata specification) and build again",
        )


def _errors(raw: RawMetadata) -> Sequence[Exception]:
    try:
        Metadata.from_raw(raw)
    except ExceptionGroup as group:
        return group.exceptions
    except (ValueError, RecursionError) as error:  # packaging's own checks do not foresee these
        return (error,)
    return ()


def _same(text: str, version: str) -> bool:
    try:
        return Version(text) == Version(version)
    except ValueError:
        return False


def _fits(tag: str, python: str) -> bool:
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


def check_requirements(info: WheelInfo, name: FileName, expected: Expectation) -> Iterator[Finding]:
    """Breaches by requirement."""
    siblings: dict[str, str] = {
        canonicalize_name(name): version for name, version in expected.siblings.items()
    }
    for text in info.requires_dist:
        try:
            wanted = wheel_info.requirement(text)
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
    if not there or any(providers.meets(version, wanted) for version in there):
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
