"""File name, METADATA, WHEEL and the dist-info folder must say the same."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from packaging import tags
from packaging.metadata import Metadata, RawMetadata
from packaging.utils import canonicalize_name
from packaging.version import Version

from cairn.wheels import metadata
from cairn.wheels.findings import Expectation, Finding
from cairn.wheels.headers import core_metadata
from cairn.wheels.metadata import FileName, WheelInfo

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
    if info.metadata_version < metadata.LICENCES_APART:
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
