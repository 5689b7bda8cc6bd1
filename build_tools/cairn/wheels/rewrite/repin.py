"""Updating a wheel's requirements when its version, or that of a sibling wheel, changes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from cairn.errors import WheelError
from cairn.requirements import is_sdk
from cairn.wheels.metadata import device_names, rocm_version, wheel_info

_EXACT = ("==", "===")
# An exact pin in the text of a requirement, so that all else of the text stays as it was written; the
# look-behind excludes `>=`, `!=`, `~=`, and the second half of `===`. Upstream's stable releases require the
# SDK by `~=` (ROCm/TheRock, issue 7347), which takes no local version (PEP 440, "Compatible release").
_PIN = re.compile(r"(?<![<>!~=])(?P<operator>={2,3}\s*)(?P<version>[^\s,;()=]+)")
_SDK_PIN = re.compile(r"(?<![<>!~=])(?P<operator>(?:={2,3}|~=)\s*)(?P<version>[^\s,;()=]+)")


@dataclass(frozen=True, kw_only=True)
class RocmChange:
    """The ROCm version that a wheel named so far, or None, and the one it names now."""

    old: str | None
    new: str


@dataclass(frozen=True, kw_only=True)
class RenamedWheel:
    """A wheel whose version changes.

    Attributes:
        file_name: its name so far, for errors.
        distribution: its project's canonical name.
        old: the version so far.
        new: the version to be.
        rocm: how the ROCm version in it changes; None when it stays, or there is none.
        siblings: the versions of wheels that change with it: canonical name to old to new.
        required: canonical names of requirements that the user gives: these are left alone.
    """

    file_name: str
    distribution: str
    old: str
    new: str
    rocm: RocmChange | None = None
    siblings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    required: Collection[str] = ()


def repinned(requirements: Collection[str], wheel: RenamedWheel) -> dict[str, str]:
    """The requirements that must change, as they are written and as they are to be.

    Exact pins follow: on the ROCm SDK (and its `~=`), on wheels that are renamed together, on any other
    project by a version that names the same ROCm, and between a wheel and its device wheels. All others
    stay, if what they allow includes the new version.

    Raises:
        WheelError: a requirement is malformed, excludes the new version without pinning the old one, or pins
            something that does not belong to the wheel as it was.
    """
    changed = {}
    for text in requirements:
        parsed = wheel_info.requirement(text)
        pinned = (
            None if canonicalize_name(parsed.name) in wheel.required else _needed_version(parsed, text, wheel)
        )
        if pinned is not None:
            changed[text] = _replaced(parsed, text, pinned, wheel)
    return changed


def _needed_version(parsed: Requirement, text: str, wheel: RenamedWheel) -> str | None:
    """The version that a requirement must allow and does not."""
    name = canonicalize_name(parsed.name)
    new = None
    if name in wheel.siblings:
        new = _of_sibling(parsed, text, wheel)
    elif wheel.rocm is not None and is_sdk(name):
        new = wheel.rocm.new
    elif wheel.rocm is not None:
        new = _by_rocm(parsed, text, wheel, wheel.rocm)
    # A wheel and its device wheels go together.
    pairs = ((name, wheel.distribution), (wheel.distribution, name))
    if new is None and any(device_names.processor_of(device, host) for device, host in pairs):
        new = wheel.new if any(Version(pin) == Version(wheel.old) for pin in _pins(parsed)) else None
    return None if new is None or parsed.specifier.contains(new, prereleases=True) else new


def _of_sibling(parsed: Requirement, text: str, wheel: RenamedWheel) -> str:
    versions = wheel.siblings[canonicalize_name(parsed.name)]
    fitting = [new for old, new in versions.items() if parsed.specifier.contains(old, prereleases=True)]
    if not fitting:
        beside = f"the {parsed.name} given with it is {', '.join(versions)}"
        raise WheelError(
            f"{wheel.file_name} requires {text}, and {beside}",
            tip="name wheels that belong together, or give the requirement too: --require",
        )
    return fitting[0]


def _by_rocm(parsed: Requirement, text: str, wheel: RenamedWheel, rocm: RocmChange) -> str | None:
    for pin in _pins(parsed):
        if parsed.name.lower().startswith("rocm") and rocm.old and Version(pin) == Version(rocm.old):
            return rocm.new
        named = rocm_version.rocm_version_of(pin)
        if named is None or Version(named) == Version(rocm.new):
            continue
        if rocm.old is not None and Version(named) != Version(rocm.old):
            raise WheelError(
                f"{wheel.file_name} is of ROCm {rocm.old} and requires {text}",
                tip=f"name the wheel of {parsed.name} too, or give the requirement: --require",
            )
        return rocm_version.with_rocm(pin, rocm.new)
    return None


def _pins(parsed: Requirement) -> Iterator[str]:
    for specifier in parsed.specifier:
        if specifier.operator in _EXACT and not specifier.version.endswith(".*"):
            try:
                yield str(Version(specifier.version))
            except InvalidVersion:  # `===` takes any text (PEP 440, "Arbitrary equality")
                continue


def _replaced(parsed: Requirement, text: str, specifier: str, wheel: RenamedWheel) -> str:
    head, mark, tail = text.partition(";")
    pin = _SDK_PIN if is_sdk(canonicalize_name(parsed.name)) and "+" not in specifier else _PIN
    new = pin.sub(lambda match: match["operator"] + specifier, head) + mark + tail
    if new == text or not wheel_info.requirement(new).specifier.contains(specifier, prereleases=True):
        raise WheelError(
            f"{wheel.file_name} requires {text}, which excludes {parsed.name} {specifier}",
            tip=f"give the requirement you want: --require '{parsed.name}=={specifier}'",
        )
    return new
