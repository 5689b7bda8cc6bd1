"""Versions, specifiers, requirements and markers out of files that others wrote (PEP 440 and PEP 508).

`packaging` reads some texts that fail only when they are used: a version of 5,000 digits (Python refuses to
make a number of it), `sys_platform ~= 'linux'` (a comparison that means nothing), 3,000 parentheses (its
parser calls itself). Here such a text is refused where it enters, always with a `ValueError` of one line.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name
from packaging.version import Version

if TYPE_CHECKING:  # an index asks for names alone, and packaging's parser takes its time to load
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

_SHOWN = 200  # characters of a text in the message about it
_REMEMBERED = 1 << 15  # commands look at the requirements of a wheel several times
_NO_EXTRA = {"extra": ""}
PYTHON = re.compile(r"3\.[0-9]{1,2}")
"""How a version of Python is written: `3.12`."""

_OF_EXTRA = re.compile(r'\bextra == "([^"]+)"')
_PROJECT = re.compile(r"[A-Za-z0-9]+(?:[._-][A-Za-z0-9]+)*")


def version(text: str) -> Version:
    """Parse a version.

    Raises:
        ValueError: it is not one by PEP 440, or has a number too large to compare.
    """
    # packaging strips line ends, which are none of a version's where the text goes on as it is.
    if not (text.isascii() and text.isprintable()):
        raise ValueError(f"{shown(text)} is not a version")
    try:
        return Version(text)
    except ValueError as error:
        raise ValueError(f"{shown(text)} is not a version") from error


def specifiers(text: str) -> SpecifierSet:
    """Parse a set of version specifiers, each of which can be compared with.

    Raises:
        ValueError: it is not one by PEP 440.
    """
    from packaging.specifiers import SpecifierSet  # noqa: PLC0415 - see above

    try:
        specifiers = SpecifierSet(text)
        _try(specifiers)
    except ValueError as error:
        raise ValueError(f"{shown(text)} is not a version specifier") from error
    return specifiers


@functools.lru_cache(_REMEMBERED)
def requirement(text: str) -> Requirement:
    """Parse a requirement whose specifier and marker can be evaluated; do not modify the result.

    Raises:
        ValueError: it is not one by PEP 508.
    """
    from packaging.requirements import Requirement  # noqa: PLC0415 - see above

    try:
        requirement = Requirement(text)
        _try(requirement.specifier)
        if requirement.marker is not None:
            _try_marker(str(requirement.marker))
    except RecursionError as error:
        raise ValueError(f"{shown(text)} is not a requirement: it is nested too deep") from error
    except (ValueError, KeyError) as error:
        # What follows in packaging's message are two lines that draw where.
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{shown(text)} is not a requirement: {reason[:_SHOWN]}") from error
    return requirement


def neutral(text: str) -> str:
    """A requirement as every backend could have written it: older ones have brackets and other quotes.

    One that cannot be read is returned as it is.
    """
    from packaging.requirements import Requirement  # noqa: PLC0415 - see above

    try:
        parsed = Requirement(str(requirement(text)))
    except ValueError:
        return text
    parsed.name = canonicalize_name(parsed.name)
    parsed.extras = set(map(canonicalize_name, parsed.extras))
    return str(parsed)


def extras_lacking(requirement: Requirement, declared: Iterable[str]) -> list[str]:
    """Return the extras that a requirement asks for and its project does not declare, normalised (PEP 685).

    pip and uv warn of them, and install nothing for them.
    """
    extras = set(map(canonicalize_name, requirement.extras))
    return sorted(extras.difference(map(canonicalize_name, declared)))


def extras_of(requirement: Requirement) -> set[str]:
    """Return the extras that a requirement's marker names, normalised: it is for these alone."""
    return set(map(canonicalize_name, _OF_EXTRA.findall(str(requirement.marker or ""))))


def is_project_name(text: str) -> bool:
    """Whether a text is a valid project name (PyPA's specification of names) or the beginning of one."""
    return _PROJECT.fullmatch(text) is not None


def is_sdk(name: str) -> bool:
    """Whether a project is a package of the ROCm SDK itself, whose version is ROCm's.

    Source: ROCm/TheRock 89553ce, build_tools/packaging/python/templates/rocm/src/rocm_sdk/_dist_info.py.
    """
    return name in ("rocm", "rocm-sdk", "rocm-profiler") or name.startswith("rocm-sdk-")


def shown(text: str) -> str:
    """A text as a message quotes it: on one line, and not longer than one."""
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")


def _try(specifiers: SpecifierSet) -> None:
    for specifier in specifiers:
        if specifier.operator != "===":  # which compares any text
            Version(specifier.version.removesuffix(".*"))


@functools.lru_cache
def _try_marker(text: str) -> None:
    from packaging.markers import Marker  # noqa: PLC0415 - see above

    Marker(text).evaluate(_NO_EXTRA)
