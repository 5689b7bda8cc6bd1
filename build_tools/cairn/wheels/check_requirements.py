"""What a wheel requires must be what it was built against."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from cairn.errors import WheelError
from cairn.wheels import metadata
from cairn.wheels.findings import Expectation, Finding
from cairn.wheels.metadata import WheelInfo


def check(info: WheelInfo, expected: Expectation) -> Iterator[Finding]:
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


def _pins(wanted: Requirement, version: str) -> bool:
    """Whether exactly `version` is wanted, its local part included."""
    specifiers = list(wanted.specifier)
    if len(specifiers) != 1 or specifiers[0].operator not in ("==", "==="):
        return False
    try:
        return Version(specifiers[0].version) == Version(version)
    except InvalidVersion:
        return False


def _finding(info: WheelInfo, code: str, reason: str, fix: str) -> Finding:
    return Finding(code=code, member=f"{info.dist_info}/METADATA", reason=reason, fix=fix)
