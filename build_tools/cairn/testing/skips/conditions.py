"""The conditions of an entry of skip-tests, and whether two entries may apply to the same run."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable
from typing import Literal

import msgspec
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from cairn import datafile, targets
from cairn.errors import UsageError
from cairn.output import wording

_RANGE = "it is written like >=2.12,<2.14 or ==2.13.*"

Platform = Literal["linux", "windows"]


class When(datafile.Value):
    """The conditions of an entry, all of which must hold; an absent one always does.

    Attributes:
        family: families of targets: the run is on a GPU of one of them.
        target: targets, or wildcards such as gfx94X, likewise; `cpu` for runs without a GPU.
        platform: operating systems.
        torch: versions of torch, as PEP 440 writes ranges. They are compared by their release alone: 2.13.0a0
            and 2.13.0+rocm7.10 are 2.13.0.
        python: versions of Python, likewise.
    """

    family: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    platform: tuple[Platform, ...] = ()
    torch: str = ""
    python: str = ""


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a run; conditions on an unknown fact (None) may hold.

    Attributes:
        targets: those of the GPUs that tests may use, or `cpu`.
        platform: the operating system.
        torch: the version of torch.
        python: the version of Python.
    """

    targets: tuple[str, ...] | None = None
    platform: str | None = None
    torch: str | None = None
    python: str | None = None


def check(when: When) -> None:
    """Refuse invalid conditions.

    Raises:
        UsageError: a family or target is unknown, or a version range is malformed or empty.
    """
    for name in when.family:
        if name not in targets.families():
            tip = wording.did_you_mean(name, targets.families(), what="the families are")
            raise UsageError(f"unknown family {name!r}", tip=tip)
    _expand(when.target)
    for text in (when.torch, when.python):
        check_range(text)


def check_range(versions: str) -> None:
    """Refuse a range of versions that is malformed or empty.

    Raises:
        UsageError: it is.
    """
    try:
        specifiers = SpecifierSet(versions)
    except InvalidSpecifier as error:
        raise UsageError(f"{versions!r} is not a range of versions", tip=_RANGE) from error
    if any(specifier.operator == "===" for specifier in specifiers):
        raise UsageError(f"{versions!r} compares texts, not versions", tip=_RANGE)
    if not _ranges_meet(versions, ""):
        raise UsageError(f"no version is in {versions!r}", tip=_RANGE)


def applies(when: When, facts: RunFacts) -> bool:
    """Whether the conditions hold for a run, or may hold where its facts are unknown."""
    processors = None if facts.targets is None else _processors(facts.targets)
    return (
        (processors is None or all(not of_one.isdisjoint(processors) for of_one in _conditions_on_gpus(when)))
        and (facts.platform is None or not when.platform or facts.platform in when.platform)
        and (facts.torch is None or contains(when.torch, facts.torch))
        and (facts.python is None or contains(when.python, facts.python))
    )


@functools.cache
def may_coincide(first: When, second: When) -> bool:
    """Whether both conditions may apply to the same run."""
    on_gpus = [*_conditions_on_gpus(first), *_conditions_on_gpus(second)]
    return (
        (not on_gpus or bool(frozenset.intersection(*on_gpus)))
        and (not first.platform or not second.platform or not set(first.platform).isdisjoint(second.platform))
        and _ranges_meet(first.torch, second.torch)
        and _ranges_meet(first.python, second.python)
    )


def excludes_itself(when: When) -> bool:
    """Whether no single GPU meets the conditions on both family and target."""
    on_gpus = _conditions_on_gpus(when)
    return bool(on_gpus) and not frozenset.intersection(*on_gpus)


def release_of(version: str) -> str:
    """Return the release segment of a version: 2.13.0 for 2.13.0a0+gitabc (PEP 440).

    Raises:
        UsageError: it is not a version.
    """
    try:
        return Version(version).base_version
    except InvalidVersion as error:
        raise UsageError(f"{version!r} is not a version", tip="it is written like 2.13 or 3.12.4") from error


def _conditions_on_gpus(when: When) -> list[frozenset[str]]:
    """Return the processors of each condition on GPUs (family, target) that is present."""
    families = frozenset(itertools.chain.from_iterable(targets.families()[name] for name in when.family))
    return [processors for processors in (families, _processors(_expand(when.target))) if processors]


def _expand(names: Iterable[str]) -> tuple[str, ...]:
    # `parse_targets` refuses `cpu` beside others, as no wheel is for both; a condition may name both.
    return tuple(itertools.chain.from_iterable(targets.parse_targets(name, unbuilt=True) for name in names))


def _processors(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.partition(":")[0] for name in names)


@functools.cache
def contains(versions: str, version: str) -> bool:
    """Whether the release of a version is in a range.

    Raises:
        UsageError: it is not a version.
    """
    return SpecifierSet(versions).contains(release_of(version), prereleases=True)


@functools.cache  # hundreds of entries have the same few ranges
def _ranges_meet(first: str, second: str) -> bool:
    """Whether there is a version in both ranges.

    The intersection of two ranges begins at an end of one of them, right after one, behind all that begins
    with one (`!=2.12.*`), or is unbounded: trying those versions is enough.
    """
    both = SpecifierSet(",".join(filter(None, (first, second))))
    ends = [specifier.version.removesuffix(".*") for specifier in both]
    releases = [Version(end).release for end in ends]
    behind = (".".join(map(str, (*most, last + 1))) for *most, last in releases)
    tried = ["0", *ends, *(f"{end}.0.0.0.1" for end in ends), *behind]
    return any(both.contains(version, prereleases=True) for version in tried)
