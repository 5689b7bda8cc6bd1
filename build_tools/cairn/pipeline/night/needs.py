"""A night to begin, and what it needs at its end: asked all at once, before anything is built."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import Version

from cairn.errors import CairnError, ProblemsError, UsageError
from cairn.matrix.legs import MOST_LEGS, Leg, builds_of
from cairn.output import Progress, console, silent
from cairn.pipeline.night import shards, versions
from cairn.pipeline.pipeline_options import FreezeOptions
from cairn.release.index import keys
from cairn.release.publish import mirror_lock, sdk_index, sdk_packages
from cairn.release.publish.compatibility import Platform
from cairn.release.trust import anchor
from cairn.stack import Stack, recipe
from cairn.store.protocol import Store
from cairn.testing.skips import skip_files
from cairn.wheels.verify.findings import read_allowed

_BY_DIGEST = re.compile(r"[^\s@]+@sha256:[0-9a-f]{64}")
_TEST_FILES = ("test_*.py", "*_test.py")  # pytest's `python_files`


@dataclass(frozen=True, kw_only=True)
class FreezeRequest(FreezeOptions):
    """A night to begin.

    Attributes:
        night: its id; an existing night with that id continues with its manifest. In a store with a root, one
            that is there goes on by its id with its digest alone, and so is `like` named.
        stack: the stack, on the night's line.
        legs: the expected legs; those of other lines are refused.
        others: the other legs of its line and trigger, which the manifest is for, too: the next night of all
            legs has the same, and takes over what this one has made. Theirs is no say in the newest SDK.
    """

    night: str
    stack: Stack
    legs: tuple[Leg, ...]
    others: tuple[Leg, ...] = ()


def lacking(store: Store, request: FreezeRequest, say: Progress = silent) -> tuple[CairnError, ...]:
    """Return what a night would fail for at its end, each with what to do."""
    problems: list[CairnError] = []
    for question in (
        _of_words(request),
        _of_allow(request),
        _of_legs(request),
        _of_smoke_tests(request),
        _of_suites(request),
        _of_records(request),
        _of_lock(store, request),
        _of_sdk(store, request, say),
    ):
        try:
            problems.extend(question)
        except ProblemsError as error:
            problems += error.problems
        except CairnError as error:
            problems.append(error)
    return tuple(problems)


def remarks(request: FreezeRequest) -> Iterator[str]:
    """Yield which legs no machine can test, so that they stay in staging."""
    for platform, count in Counter(leg.platform for leg in request.legs if not leg.smoke_runs_on).items():
        yield (
            f"{count} legs stay in staging: no machine tests {platform}; name one in the matrix.toml: "
            f'platforms.{platform}.host_test = ["LABEL"]'
        )


def refuse(store: Store, request: FreezeRequest, say: Progress = silent) -> None:
    """Refuse a night that lacks what it needs at its end.

    Raises:
        CairnError: one need is not met.
        ProblemsError: several are not.
    """
    for remark in remarks(request):
        console.current().warn(remark)
    problems = lacking(store, request, say)
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise ProblemsError(f"the night would fail for {len(problems)} reasons", problems=problems)


# Each of these is a generator, which may raise its last problem.


def _of_words(request: FreezeRequest) -> Iterator[CairnError]:
    if request.image and not _BY_DIGEST.fullmatch(request.image):
        text = f"the image {request.image} is not named by its digest"
        yield UsageError(text, tip="name it with --image NAME@sha256:DIGEST")
    keys.checked_index(request.release)


def _of_allow(request: FreezeRequest) -> Iterator[CairnError]:
    if (allow := request.stack.gate.allow) is None:
        return
    if Path(allow).is_file():
        read_allowed([Path(allow)])
    else:
        yield UsageError(f"{allow} is not there", tip="write it, or leave `allow` out of the stack.toml")


def _of_legs(request: FreezeRequest) -> Iterator[CairnError]:
    if not request.legs:
        yield UsageError(
            "the matrix is empty: a night without a leg would build nothing and look like a good one",
            tip="see what `cairn matrix` leaves, and why",
        )
    if len({leg.id for leg in request.legs}) != len(request.legs):
        yield UsageError("the matrix has a leg twice", tip="each id stands for one line, family and Python")
    if off_line := [leg for leg in request.legs if leg.line != request.stack.line]:
        yield UsageError(
            f"{off_line[0].name} is of the line {off_line[0].line}, and the night of {request.stack.line}",
            tip="a night has one line: cairn matrix --lines LINE",
        )
    yield from _too_many("builds", len(builds_of(request.legs)))


def _too_many(name: str, count: int) -> Iterator[CairnError]:
    if count > MOST_LEGS:
        yield UsageError(
            f"the night has {count} {name}, and GitHub takes {MOST_LEGS} jobs of a matrix",
            tip="run it in parts, with --families or --pythons of cairn matrix, or with fewer shards",
        )


def _of_smoke_tests(request: FreezeRequest) -> Iterator[CairnError]:
    yield from _too_many("smoke tests", sum(bool(leg.smoke_runs_on) for leg in request.legs))
    for place in map(Path, request.stack.smoke_tests):
        if not place.exists() or (place.is_dir() and not any(any(place.rglob(p)) for p in _TEST_FILES)):
            yield UsageError(
                f"the smoke tests {place} {'have no test' if place.exists() else 'are not there'}",
                tip=f"write {place.name}/test_{request.stack.name}.py, or change `smoke_tests` in stack.toml",
            )


def _of_suites(request: FreezeRequest) -> Iterator[CairnError]:
    shards_of_legs = [shards.expected(request.stack, leg) for leg in request.legs]
    yield from _too_many("shards of suites", sum(map(len, shards_of_legs)))
    skips = Path(request.stack.folder) / recipe.SKIPS
    if any(shards_of_legs) and skips.is_dir():
        skip_files.read([skips])


def _of_records(request: FreezeRequest) -> Iterator[CairnError]:
    for leg in request.legs:
        kinds = {"smoke", *(["suite"] if leg.suites else []), *(["compat"] if leg.compat else [])}
        if without := [kind for kind in request.stack.gate.records if kind not in kinds]:
            yield UsageError(
                f"the gate asks for {without[0]} records, and no job makes one of {leg.name}",
                tip=f"name suites, or compat, at the trigger {leg.trigger} in the matrix.toml",
            )
            return


def _of_lock(store: Store, request: FreezeRequest) -> Iterator[CairnError]:
    """Yield what the mirror lock lacks: the gate takes no file of a dependency that it does not name."""
    stack = request.stack
    lock, required = mirror_lock.of(stack), {*_required_of_others(stack)}
    line = f"cairn index mirror lock --stack {stack.folder}"
    if lock is None:
        if required and anchor.anchor(store) is not None:
            text = f"{stack.name} requires {', '.join(sorted(required))}, and in a store with a root a lock"
            yield UsageError(f"{text} names each file", tip=line)
        return
    path = mirror_lock.path_of(stack)
    places = {Platform(python=leg.python, tag=leg.platform) for leg in request.legs}
    if missing := sorted(str(place) for place in places - {*mirror_lock.places(lock)}):
        yield UsageError(f"{path} does not cover {' and '.join(missing)}", tip=line)
    covered = sorted(places & {*mirror_lock.places(lock)}, key=str)
    for text in sorted(required):
        if missing := [str(place) for place in covered if not mirror_lock.meets(lock, text, place)]:
            yield UsageError(f"{path} has no file for {text}, for {' and '.join(missing)}", tip=line)


def _required_of_others(stack: Stack) -> Iterator[str]:
    """Yield what wheels are made to require, and that is neither of the stack nor of ROCm."""
    distributions = {str(canonicalize_name(project.distribution)) for project in stack.projects}
    for project in stack.projects:
        for text in project.requires:
            name = str(canonicalize_name(re.split(r"[^A-Za-z0-9._-]", text)[0]))
            if name not in distributions and not mirror_lock.is_of_sdk(name):
                yield name if "{" in text else text


def reviewed(store: Store, request: FreezeRequest) -> frozenset[Version] | None:
    """Return the versions of the ROCm SDK that were reviewed; None where any will do.

    Raises:
        UsageError: the store has a root, ROCm is taken from an index, and none was reviewed.
    """
    stack = request.stack
    if not (stack.takes_sdk and versions.with_rocm(request.legs)) or anchor.anchor(store) is None:
        return None
    return sdk_index.versions(mirror_lock.of_root(stack))


def version_of_sdk(
    request: FreezeRequest, say: Progress, among: frozenset[Version] | None = None
) -> str | None:
    """Return the version of the ROCm SDK that all legs are built with, one of those that were reviewed.

    Raises:
        UsageError: nothing says which.
        NetworkError: no index has it for every family.
    """
    sdk = request.stack.sdk
    if sdk is None:
        return None
    version = request.rocm_version or sdk.version
    builds = versions.with_rocm(request.legs) or versions.with_rocm(request.others)
    if request.stack.makes_sdk or not builds:
        return version
    if not request.rocm_index_url:
        raise UsageError(
            f"nothing says where the ROCm SDK of the stack {request.stack.name} comes from",
            tip="name the index of its packages: --rocm-index-url URL, with {family} for the family",
        )
    return version or versions.newest_sdk(builds, request.rocm_index_url, say, among)


def _of_sdk(store: Store, request: FreezeRequest, say: Progress) -> Iterator[CairnError]:
    """Yield what the index of the ROCm SDK lacks of the version: builds install all of its packages."""
    if request.like:  # of that night, where `rocm_version` names no other
        return
    version = version_of_sdk(request, say, reviewed(store, request))
    if version is None or not request.stack.takes_sdk:
        return
    for build in versions.with_rocm(request.legs):
        url = versions.sdk_url(request.rocm_index_url, build)
        try:
            sdk_packages.choose_version({url: versions.sdk_lacks(url, [build])}, version)
        except UsageError as error:
            yield error
