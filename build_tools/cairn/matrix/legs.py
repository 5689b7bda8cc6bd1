"""The legs of a matrix, one list that build and test jobs are made from, and how many jobs they are."""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from cairn import datafile, requirements
from cairn import targets as gpu
from cairn.errors import UsageError
from cairn.matrix.matrix_options import Choice
from cairn.matrix.matrix_toml import MatrixToml, Trigger, TriggerName, usable
from cairn.output import wording
from cairn.stack import Stack

MOST_LEGS = 256
"""Jobs that GitHub makes of one matrix (docs.github.com, "Usage limits")."""

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")  # not for the name of an artifact

End = Literal["tested", "untested", "staged"]
"""How far a leg comes: promoted as tested; promoted as untested on hardware; left in staging."""
_ENDS: Mapping[End, str] = {
    "tested": "promoted when its tests have passed",
    "untested": "goes to untested",
    "staged": "stays in staging",
}


class Leg(datafile.Value):
    """One set to build and test: a line, a family, a Python and a platform.

    Attributes:
        id: its name as file and artifact names may have it.
        name: its name for people.
        stack: the stack as it was named.
        line: the release line.
        family: the family, which its index is named after.
        targets: the family's targets, joined by commas.
        python: the version of Python, such as `3.12`.
        platform: such as `linux_x86_64`.
        os: `linux`, `windows` or `macos`.
        trigger: the event that it is run for.
        build_runs_on: the labels of its build runner.
        test_runs_on: those of its test runner, which has a GPU; empty where there is none.
        host_runs_on: those of the runner that tests it without a GPU, where no runner has one.
        multi_gpu_runs_on: those of its runner with several GPUs; empty where there is none.
        expect_failure: that it fails is known, on the day on which the matrix was made.
        bypass_tests: it may be promoted to the channel of the night without a test on hardware.
        push_on_success: it is promoted when it passes.
        suites: configurations of the stack's suite.toml that its set is tested with.
        compat: whether it is measured what the compatibility pages claim of its set.
        known_failure: the failure that is known: its issue and last day; also one whose last day has passed.
        build: the id of the build that makes its wheels, which may be that of other families too; empty, as
            in older nights, for one with its own id.
        split: its wheels are host wheels and device wheels.
    """

    id: str
    name: str
    stack: str
    line: str
    family: str
    targets: str
    python: str
    platform: str
    os: str
    trigger: TriggerName
    build_runs_on: tuple[str, ...]
    test_runs_on: tuple[str, ...]
    multi_gpu_runs_on: tuple[str, ...]
    expect_failure: bool
    bypass_tests: bool
    push_on_success: bool
    suites: tuple[str, ...] = ()
    compat: bool = False
    known_failure: str = ""
    build: str = ""
    split: bool = False
    host_runs_on: tuple[str, ...] = ()

    @property
    def smoke_runs_on(self) -> tuple[str, ...]:
        """The labels of the runner of its smoke tests; empty where no machine has its platform."""
        return self.test_runs_on or self.host_runs_on

    @property
    def build_id(self) -> str:
        """The id of the build that makes its wheels."""
        return self.build or self.id

    @property
    def ends(self) -> End:
        """How far it comes if nothing fails."""
        if not (self.push_on_success and self.smoke_runs_on):
            return "staged"
        return "tested" if self.test_runs_on else "untested"


class Build(datafile.Value):
    """One build: the wheels of one leg, or of all families of a line, Python and platform.

    Attributes:
        id: its name as file and artifact names may have it; that of the leg where it is of one alone.
        name: its name for people.
        line, python, platform, os: those of its legs.
        build_runs_on: the labels of its runner.
        targets: those of all its legs, joined by commas: a build for fewer would give other bytes.
        split: it leaves host wheels, which its legs share, and device wheels for each target.
        legs: the ids of the legs whose wheels it makes.
        families: the families of these.
    """

    id: str
    name: str
    line: str
    python: str
    platform: str
    os: str
    build_runs_on: tuple[str, ...]
    targets: str
    split: bool
    legs: tuple[str, ...]
    families: tuple[str, ...]


def builds_of(legs: Iterable[Leg]) -> tuple[Build, ...]:
    """The builds that make the wheels of these legs, in their order."""
    by_build: dict[str, list[Leg]] = {}
    for leg in legs:
        by_build.setdefault(leg.build_id, []).append(leg)
    return tuple(_build(name, tuple(made)) for name, made in by_build.items())


def _build(name: str, legs: tuple[Leg, ...]) -> Build:
    first = legs[0]
    targets = (target for leg in legs for target in gpu.parse_targets(leg.targets))
    return Build(
        id=name,
        name=first.name
        if name == first.id
        else f"{first.line} Python {first.python} {first.platform}, {len(legs)} families",
        line=first.line,
        python=first.python,
        platform=first.platform,
        os=first.os,
        build_runs_on=first.build_runs_on,
        targets=",".join(gpu.in_order(targets)),
        split=first.split,
        legs=tuple(leg.id for leg in legs),
        families=tuple(leg.family for leg in legs),
    )


class Matrix(datafile.Value, tag_field="schema", tag="cairn.matrix/1"):
    """The legs of a run.

    Attributes:
        legs: what is built; those with a test runner are also tested.
        empty_because: why there is no leg, where there is none.
        others: the other legs of the same lines and trigger, which were not asked for: what is frozen for
            some is frozen for all of them, so that a run of these takes over what is there of those.
    """

    legs: tuple[Leg, ...]
    empty_because: str | None = None
    others: tuple[Leg, ...] = ()

    @property
    def builds(self) -> tuple[Build, ...]:
        """The builds that make the wheels of the legs."""
        return builds_of(self.legs)

    @property
    def lines(self) -> tuple[str, ...]:
        """The release lines of the legs, each once: a manifest is frozen for each."""
        return tuple(dict.fromkeys(leg.line for leg in self.legs))


def make(stack: Stack, config: MatrixToml, choice: Choice, *, stack_path: Path) -> Matrix:
    """The matrix of a trigger: its lines, then families, then Pythons, then platforms, each in natural order.

    Raises:
        UsageError: a name is not known, a platform has no runner here, or two legs would have one id.
    """
    trigger = config.triggers.get(choice.trigger, Trigger())
    lines = _select(choice.lines, stack.line_names(), "line") or config.lines_of(choice.trigger, stack)
    of_trigger = config.families_of(choice.trigger)
    families = _chosen_families(choice.families, config) or of_trigger
    pythons_of_triggers = (p for each in config.triggers.values() for p in each.pythons)
    # A stack that names none is for any; those of its triggers are what is built without being asked for.
    others = (
        ()
        if stack.pythons
        else (*pythons_of_triggers, *filter(requirements.PYTHON.fullmatch, choice.pythons))
    )
    known_pythons = stack.pythons or tuple(dict.fromkeys(others))
    pythons = _select(choice.pythons, known_pythons, "Python") or trigger.pythons or stack.pythons
    platforms = _select(choice.platforms, tuple(config.platforms), "platform") or tuple(config.platforms)
    every = itertools.product(
        lines,
        _in_order((*families, *of_trigger)),
        sorted({*pythons, *(trigger.pythons or stack.pythons)}, key=_version),
        config.platforms,
    )
    whole = tuple(
        _leg(config, choice.trigger, stack_path, names, at_home=config.at_home(choice.owner))
        for names in every
        if (here := config.families[names[1]].get(names[3])) is not None and names[0] not in here.except_lines
    )
    _refuse_one_id_for_two(whole)
    chosen = [leg.family in families and leg.python in pythons and leg.platform in platforms for leg in whole]
    if any(chosen):
        rest = itertools.compress(whole, map(operator.not_, chosen))
        return Matrix(legs=tuple(itertools.compress(whole, chosen)), others=tuple(rest))
    if not families:
        reason = f"the trigger {choice.trigger} has no family"
    elif not pythons:
        reason = f"neither the trigger {choice.trigger} nor the stack {stack.name} names a Python"
    else:
        reason = f"{', '.join(families)} is not built for {', '.join(platforms)}, line {', '.join(lines)}"
    return Matrix(legs=(), empty_because=reason)


def _leg(
    config: MatrixToml,
    trigger: TriggerName,
    stack_path: Path,
    names: tuple[str, str, str, str],
    *,
    at_home: bool,
) -> Leg:
    line, family, python, platform = names
    here, event = config.families[family][platform], config.triggers.get(trigger, Trigger())
    own_id = _UNSAFE.sub("-", f"{line}-{family}-py{python}-{platform}")
    labels, settings = config.build_labels(platform, at_home=at_home), config.platforms[platform]
    gpu_labels = usable(here.test, at_home=at_home)
    # All targets of PyTorch are more than GitHub's own runners compile in the six hours that they have.
    split = settings.build_together and labels == settings.build and gpu.parse_targets(family) != (gpu.CPU,)
    together = _UNSAFE.sub("-", f"{line}-py{python}-{platform}")
    return Leg(
        id=own_id,
        name=f"{line} {family} Python {python} {platform}",
        stack=stack_path.as_posix(),
        line=line,
        family=family,
        targets=",".join(gpu.parse_targets(family)),
        python=python,
        platform=platform,
        os={"win": "windows", "macosx": "macos"}.get(platform.partition("_")[0], platform.partition("_")[0]),
        trigger=trigger,
        build_runs_on=labels,
        test_runs_on=gpu_labels,
        host_runs_on=() if gpu_labels else config.host_labels(platform, at_home=at_home),
        multi_gpu_runs_on=usable(here.multi_gpu, at_home=at_home),
        expect_failure=here.expect_failure is not None and here.expect_failure.holds(),
        known_failure=str(here.expect_failure or ""),
        bypass_tests=here.bypass_tests,
        push_on_success=here.push_on_success,
        suites=event.suites,
        compat=event.compat,
        build=together if split and not here.build_alone else own_id,
        split=split,
    )


def _select(names: Sequence[str], available: Sequence[str], axis: str) -> tuple[str, ...]:
    """The names that were asked for, in the order of the known ones, which they must be among."""
    for name in names:
        if name not in available:
            raise UsageError(
                f"there is no {axis} {name!r}",
                tip=wording.did_you_mean(name, available, what=f"the {axis}s are"),
            )
    return tuple(name for name in available if name in names)


def _chosen_families(names: Sequence[str], config: MatrixToml) -> tuple[str, ...]:
    for name in names:
        holding = [f for f in config.families if name in gpu.parse_targets(f)]
        if name not in config.families and holding:
            raise UsageError(
                f"there is no family {name!r}", tip=f"{name} is a target of {' and '.join(holding)}"
            )
    return _select(names, tuple(config.families), "family")


def _in_order(families: Iterable[str]) -> list[str]:
    """Families by their first target, so that a matrix does not depend on the order of the file."""
    return sorted(set(families), key=lambda name: (gpu.sort_key(gpu.parse_targets(name)[0]), name))


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall("[0-9]+", text))


def _refuse_one_id_for_two(legs: Sequence[Leg]) -> None:
    """Artifacts and status pages are named by ids, in which `release/2.9` and `release-2.9` are one line."""
    by_id: dict[str, Leg] = {}
    for leg in legs:
        for name in (leg.id, leg.build_id):  # legs of one line may share a build
            first = by_id.setdefault(name, leg)
            if first.line != leg.line or (name == leg.id and first is not leg):
                raise UsageError(
                    f"{first.name} and {leg.name} have one id, {name}",
                    tip="rename one of the lines in the stack.toml",
                )


def notes(leg: Leg) -> list[str]:
    """How a leg ends if nothing fails, and what else is to be known of it, for people."""
    remarks = [_ENDS[leg.ends]]
    if not leg.smoke_runs_on:
        remarks = [f"stays in staging: no machine tests {leg.platform} (host_test)"]
    elif leg.bypass_tests and leg.push_on_success:
        remarks = ["may be promoted untested"]
    if leg.known_failure:
        remarks.append(f"{'expected' if leg.expect_failure else 'was expected'} to fail {leg.known_failure}")
    return remarks


HOSTED_DISK = 14_000_000_000
"""Bytes that are free on GitHub's own Linux runners (docs.github.com, "GitHub-hosted runners reference")."""
HOSTED_HOURS = 6
"""After so many hours GitHub ends a job on its own runners (docs.github.com, "Actions limits")."""

SINGLE_JOBS = ("freeze", "stage", "promote", "report")
"""The jobs of nightly.yml that a night has once, besides `merge` where there are suites."""
REQUESTS_BY_TOKEN = 1000
"""Requests to GitHub's API that the tokens of a repository's jobs may make in an hour (docs.github.com, "Rate
limits for the REST API"). Those for artifacts and for tokens of roles are none of them."""
REQUESTS_TO_BEGIN = 2
"""Of these, by `gh workflow run` for a line: it looks for the workflow, and starts it."""


class Figures(datafile.Value):
    """The jobs and artifacts of one line's night.

    Attributes:
        line: which.
        legs: the sets that are built, staged and promoted.
        builds: the jobs that build them.
        hosted_builds: those of them that run on GitHub's own runners.
        tests: the jobs of smoke tests.
        shards: the jobs of suites.
        jobs: all of them, with those that are there once.
        artifacts: what the jobs upload, each job one.
        downloads: the artifacts that the job `stage` downloads, all onto one disk.
        requests: to GitHub, by its programs for a job's token (of which tests take two), for artifacts
            (@actions/artifact: two for an upload, one for a download and one for their list), and by `gh`.
    """

    line: str
    legs: int
    builds: int
    hosted_builds: int
    tests: int
    shards: int
    jobs: int
    artifacts: int
    downloads: int
    requests: int

    def limits(self) -> Iterator[str]:
        """Yield what comes near a limit of GitHub's, or beyond it, a sentence each."""
        matrices = {"builds": self.builds, "smoke tests": self.tests, "shards": self.shards}
        for kind, count in matrices.items():
            if count > MOST_LEGS:
                yield f"{self.line}: {count} {kind}, and GitHub makes {MOST_LEGS} jobs of one matrix at most"
        if self.hosted_builds:
            yield (
                f"{self.line}: {self.hosted_builds} of {self.builds} builds run on GitHub's own runners, "
                f"which end after {HOSTED_HOURS} hours and have {HOSTED_DISK // 10**9} GB of disk"
            )
        if self.downloads:
            each = HOSTED_DISK / self.downloads / 1e6
            yield (
                f"{self.line}: stage downloads {self.downloads} artifacts: on a runner of GitHub's own they "
                f"may have {each:.0f} MB each"
            )


def figures_of(legs: Iterable[Leg], *, shards: int) -> Figures:
    """The figures of the legs of one line.

    Args:
        legs: at least one.
        shards: how many jobs their suites have.
    """
    every = tuple(legs)
    builds, tests = builds_of(every), sum(bool(leg.smoke_runs_on) for leg in every)
    hosted = sum(usable(build.build_runs_on, at_home=False) != () for build in builds)
    merging = int(shards > 0)
    jobs = len(builds) + tests + shards + merging + len(SINGLE_JOBS)
    artifacts = len(builds) + tests + shards + merging
    return Figures(
        line=every[0].line,
        legs=len(every),
        builds=len(builds),
        hosted_builds=hosted,
        tests=tests,
        shards=shards,
        jobs=jobs,
        artifacts=artifacts,
        downloads=len(builds),
        requests=jobs + tests + shards + 2 * artifacts + 1 + len(builds) + REQUESTS_TO_BEGIN,
    )
