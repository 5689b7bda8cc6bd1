"""File name, METADATA, WHEEL and the dist-info folder must say the same, and requirements must be met.

A wheel variant must be what its file name says, too: no installer looks into one before it takes it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from packaging.metadata import Metadata, RawMetadata, parse_email
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from cairn.errors import WheelError
from cairn.formats.zip.reader import Archive
from cairn.output import wording
from cairn.requirements import extras_lacking, extras_of
from cairn.targets import in_order, parse_target_id
from cairn.wheels.contents import providers
from cairn.wheels.metadata import variants, wheel_info
from cairn.wheels.metadata.fields import core_metadata
from cairn.wheels.metadata.wheel_info import FileName, WheelInfo
from cairn.wheels.verify import environments
from cairn.wheels.verify.findings import Expectation, Finding, FindingCode

_RETAG = "write the wheel with `cairn wheel set-version` or repair it again: both change all places together"

# So `packaging` says it, and in no other way: `packaging.metadata.Metadata.from_raw`.
_OF_LATER_VERSION = "introduced in metadata version"
_STABLE_ABI = re.compile(r"cp3(?:[2-9]|\d\d+)")
# Platforms that no system has: manylinux1, 2010 and 2_16 were for x86 alone, and glibc has no version 3.
_NOWHERE = re.compile(
    r"macosx_(?:1[1-9]|[2-9]\d)_[1-9]\d*_\w+|macosx_10_\d+_arm64|manylinux_(?!2_\d)\d+_\w+"
    r"|manylinux(?!1_|2010_|2014_|_)\w+|manylinux(?:1|2010|_2_\d|_2_1[0-6])_(?!x86_64|i686)\w+"
)
_PATCHES = 40  # more than any version of Python has had


def check(info: WheelInfo, name: FileName, expected: Expectation) -> Iterator[Finding]:
    """Breaches by what the wheel says about itself."""
    yield from _check_identity(info, name)
    yield from _check_metadata(info)
    if info.wheel_tags != name.tags:
        reason = f"WHEEL has the tags {', '.join(info.wheel_tags)}, the file name {', '.join(name.tags)}"
        fix = _RETAG
        yield Finding(code=FindingCode.TAGS_DIFFER, member=f"{info.dist_info}/WHEEL", reason=reason, fix=fix)
    if not any(map(_is_taken, name.tags)):
        reason = (
            f"no installer takes a wheel of the tag{'s' * (len(name.tags) > 1)} {wording.some(name.tags)}"
        )
        fix = "write a tag that `pip debug --verbose` lists where the wheel is to be installed"
        yield Finding(code=FindingCode.PYTHON_TAG, reason=reason, fix=fix)
    if expected.python and not any(environments.fits(tag, expected.python) for tag in name.tags):
        reason = f"no tag of {', '.join(name.tags)} is for Python {expected.python}"
        fix = f"build it with Python {expected.python}"
        yield Finding(code=FindingCode.PYTHON_TAG, reason=reason, fix=fix)
    yield from _check_requires_python(info, name, expected.python)


def _check_requires_python(info: WheelInfo, name: FileName, python: str | None) -> Iterator[Finding]:
    """An installer refuses a wheel whose METADATA exclude its Python, whatever the tags say."""
    matches = [None if "-abi3-" in tag else environments.ONE_PYTHON.match(tag) for tag in name.tags]
    pythons = [python.removesuffix("t")] if python else [f"{m[1]}.{m[2]}" for m in matches if m]
    try:
        specifier = SpecifierSet(info.requires_python or "")
        if specifier.is_unsatisfiable():
            reason = f"its Requires-Python is {info.requires_python}, which no Python meets"
            fix = "correct requires-python of the project"
            yield _of_metadata(info, FindingCode.PYTHON_TAG, reason, fix)
            return
        # Of which patch release that Python is, nobody knows.
        exact = [f"{python}.{patch}" for python in pythons for patch in range(_PATCHES)]
        if not (python or all(matches)) or any(
            specifier.contains(python_version, prereleases=True) for python_version in exact
        ):
            return
    except ValueError:  # of a field that `_check_metadata` reports, or a Python that no tag fits
        return
    reason = f"its Requires-Python is {info.requires_python}, and it is for {wording.some(pythons)}"
    fix = "correct requires-python of the project, or build it with another Python"
    yield _of_metadata(info, FindingCode.PYTHON_TAG, reason, fix)


def _check_identity(info: WheelInfo, name: FileName) -> Iterator[Finding]:
    project, _, folder_version = info.dist_info.removesuffix(".dist-info").rpartition("-")
    for place, distribution, version in (
        (f"{info.dist_info}/METADATA", canonicalize_name(info.name), info.version),
        (info.dist_info, canonicalize_name(project), folder_version),
    ):
        if distribution != name.distribution:
            reason = f"it names {distribution}, the file name {name.distribution}"
            fix = "build the wheel again"
            yield Finding(code=FindingCode.NAME_DIFFERS, member=place, reason=reason, fix=fix)
        if not _same_version(version, name.version):
            reason = f"it has version {version}, the file name {name.version}"
            yield Finding(code=FindingCode.VERSION_DIFFERS, member=place, reason=reason, fix=_RETAG)


def _check_metadata(info: WheelInfo) -> Iterator[Finding]:
    # Unknown fields are let through, as installers do. Those of a later version of the format than METADATA
    # names are unknown to its readers: opt_einsum 3.4.0 has License-Expression in version 2.3.
    raw = core_metadata(info.metadata, name="METADATA")
    if raw.get("metadata_version") == "2.0":  # which wheel wrote before 0.31, and pip, uv and installer take
        raw["metadata_version"] = "2.1"
    errors: Sequence[Exception] = ()
    try:
        Metadata.from_raw(raw)
    except ExceptionGroup as group:
        errors = group.exceptions
    except (ValueError, RecursionError) as error:  # what packaging's own checks do not foresee
        errors = (error,)
    problems = [str(error) for error in errors if _OF_LATER_VERSION not in str(error)]
    for field, values in parse_email(info.metadata)[1].items():
        if field.replace("-", "_") in RawMetadata.__annotations__ and len(values) > 1:
            problems.append(f"{field.title()} stands {len(values)} times, where it may stand once")
    for problem in problems:
        fix = "correct the project's metadata (core metadata specification) and build again"
        yield _of_metadata(info, FindingCode.METADATA_INVALID, problem, fix)


def _same_version(first: str, second: str) -> bool:
    try:
        return Version(first) == Version(second)
    except ValueError:
        return False


def _is_taken(tag: str) -> bool:
    """Whether any Python may list a tag as its own (PEP 425, PEP 600; `packaging.tags`, whose rules pip has).

    From macOS 11 on the minor version of a tag is 0, and there is no older macOS for arm64 alone.
    """
    python, abi, platform = tag.split("-")
    if abi in ("abi3", "abi3t"):
        fits = bool(_STABLE_ABI.fullmatch(python))
    else:
        fits = abi == "none" or not python.startswith(("cp", "py")) or abi.rstrip("dmtu") == python
    return fits and (abi == "none" if platform == "any" else not _NOWHERE.fullmatch(platform))


def check_requirements(info: WheelInfo, name: FileName, expected: Expectation) -> Iterator[Finding]:
    """Breaches by requirement."""
    siblings = {str(canonicalize_name(sibling)): version for sibling, version in expected.siblings.items()}
    for text in info.requires_dist:
        try:
            requirement = wheel_info.requirement(text)
        except WheelError as error:
            fix = "correct the project's requirements"
            yield _of_metadata(info, FindingCode.REQUIREMENT_INVALID, str(error), fix)
            continue
        required = canonicalize_name(requirement.name)
        yield from _check_alone(requirement, info, is_of_itself=required == info.distribution)
        if requirement.url:
            reason = f"{requirement} names a place instead of a version"
            fix = "require a version that the index has"
            yield _of_metadata(info, FindingCode.REQUIREMENT_URL, reason, fix)
        # An extra that names its own project without extras of it asks for nothing.
        of_extra = requirement.marker is not None and "extra" in str(requirement.marker)
        if required == info.distribution:
            # An extra may name other extras of its own distribution; that pins nothing.
            if not requirement.extras and not of_extra:
                reason = f"it requires itself: {requirement}"
                yield _of_metadata(info, FindingCode.REQUIRES_ITSELF, reason, "remove the requirement")
        elif required in siblings and not _is_exactly(requirement, siblings[required]):
            reason = f"it requires {requirement}, but was built against {required} {siblings[required]}"
            fix = f"require {required}=={siblings[required]}"
            yield _of_metadata(info, FindingCode.SIBLING_NOT_EXACT, reason, fix)
        # What is installed with it must be what it requires.
        is_itself = required == info.distribution
        versions = (info.version,) if is_itself else expected.beside.get(required, ())
        met = not versions or any(providers.meets(version, requirement) for version in versions)
        extras = ("", *info.extras) if is_itself else ("",)
        if not met and any(
            environments.applies(requirement, name, expected.python, extra) for extra in extras
        ):
            reason = f"it requires {requirement}, but is installed with {', '.join(versions)}"
            fix = "build both in one run, or name the wheel that it requires"
            yield _of_metadata(info, FindingCode.REQUIREMENT_UNMET, reason, fix)
        else:
            yield from _check_extras_beside(requirement, info, name, expected)


def _check_extras_beside(
    requirement: Requirement, info: WheelInfo, name: FileName, expected: Expectation
) -> Iterator[Finding]:
    """A breach where none of the wheels beside declares an extra that a requirement asks of them."""
    required = canonicalize_name(requirement.name)
    lacking = extras_lacking(requirement, expected.extras.get(required, requirement.extras))
    if required == info.distribution or not lacking:
        return
    met = any(providers.meets(version, requirement) for version in expected.beside.get(required, ()))
    if met and any(
        environments.applies(requirement, name, expected.python, extra) for extra in ("", *info.extras)
    ):
        reason = f"it requires {requirement}, which has no extra {', '.join(lacking)}"
        fix = f"declare it in {required} (Provides-Extra): installers only warn, and install nothing"
        yield _of_metadata(info, FindingCode.EXTRA_UNDECLARED, reason, fix)


def _check_alone(requirement: Requirement, info: WheelInfo, *, is_of_itself: bool) -> Iterator[Finding]:
    """Breaches by a requirement that no wheel beside can make good."""
    extras = extras_of(requirement) | (requirement.extras if is_of_itself else set())
    declared = set(map(canonicalize_name, info.extras))
    if undeclared := sorted(extra for extra in extras if canonicalize_name(extra) not in declared):
        reason = f"it requires {requirement}, and does not declare {wording.some(undeclared)}"
        fix = "declare it (Provides-Extra): pip installs nothing for an extra that is not declared"
        yield _of_metadata(info, FindingCode.EXTRA_UNDECLARED, reason, fix)
    if requirement.specifier.is_unsatisfiable():
        reason = f"it requires {requirement}, which no version can meet"
        yield _of_metadata(info, FindingCode.REQUIREMENT_UNMET, reason, "correct the range")


def _is_exactly(requirement: Requirement, version: str) -> bool:
    """Whether exactly `version` is wanted, its local part included."""
    specifiers = list(requirement.specifier)
    exact = len(specifiers) == 1 and specifiers[0].operator in ("==", "===")
    return exact and _same_version(specifiers[0].version, version)


def _of_metadata(info: WheelInfo, code: FindingCode, reason: str, fix: str) -> Finding:
    return Finding(code=code, member=f"{info.dist_info}/METADATA", reason=reason, fix=fix)


def check_variant(
    archive: Archive, info: WheelInfo, name: FileName, archived: Mapping[str, Collection[str]]
) -> Iterator[Finding]:
    """Breaches by what a wheel says of the machines that it is for.

    Args:
        archive: the wheel.
        info: what it says about itself.
        name: its file name.
        archived: the paths of its kpack archives, each with the targets that it has code for.
    """
    member = f"{info.dist_info}/{variants.IN_WHEEL}"
    fix = "make the variants again"
    if member not in archive:
        if name.variant is not None:
            reason = f"it has no {variants.IN_WHEEL}, and its name ends in the label {name.variant}"
            yield Finding(code=FindingCode.VARIANT, reason=reason, fix=fix)
        return
    reason = ""
    try:
        declared = variants.of_wheel(archive.read(member), info.file_name)
    except WheelError as error:
        reason = str(error)
    else:
        features = declared.variants[name.variant or ""].get(variants.AMD, {})
        processors = features.get(variants.GFX_ARCH, ())
        actual = {parse_target_id(t).processor for targets in archived.values() for t in targets}
        if processors and actual != set(processors):
            names = ", ".join(in_order(actual)) or "no target"
            reason = f"it is for {', '.join(processors)}, and its kpack archives have code for {names}"
    if reason:
        yield Finding(code=FindingCode.VARIANT, member=member, reason=reason, fix=fix)
