"""The matrix.toml of a stack: families, platforms and runners, and what each event runs of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Literal, get_args

import msgspec

from cairn import datafile, requirements
from cairn import targets as gpu
from cairn.errors import UsageError
from cairn.output import wording
from cairn.stack import Stack

FILE = "matrix.toml"
"""The name of the file, beside the stack.toml that it is for."""

TriggerName = Literal["presubmit", "postsubmit", "nightly"]
"""A pull request, a push to the main branch, a night; each also runs the families of those before it."""

TRIGGERS: tuple[TriggerName, ...] = get_args(TriggerName)

# The runners that every repository on GitHub has (docs.github.com, "GitHub-hosted runners"): one of the name
# `ubuntu-24.04-gpu` is somebody's own.
_HOSTED = re.compile(
    r"ubuntu-(latest|slim|[0-9]{2}\.[0-9]{2})(-arm)?"
    r"|windows-(latest|[0-9]{2}|[0-9]{4})(-arm|-vs[0-9]{4})?"
    r"|macos-(latest|[0-9]{2})(-large|-xlarge|-intel)?"
)


# What every repository on GitHub has for tests that need no GPU.
_HOSTED_TESTS: Mapping[str, tuple[str, ...]] = {
    "linux_x86_64": ("ubuntu-24.04",),
    "linux_aarch64": ("ubuntu-24.04-arm",),
    "win_amd64": ("windows-2022",),
    "win_arm64": ("windows-11-arm",),
    "macosx_11_0_arm64": ("macos-15",),
}


class Platform(datafile.Value):
    """The runners of one platform.

    Attributes:
        build: the labels of its build runner.
        elsewhere: those in a repository that is not the `owner`'s, where they are different.
        host_test: the labels of a runner without a GPU. It imports the packages and runs the smoke tests of
            each family that has no GPU runner. By default one of GitHub's own; with `[]` there is none, and
            the sets of these families stay in staging.
        build_together: one build for each line and Python makes the wheels of all families: host wheels,
            which they share, and device wheels for each target. It needs a ROCm SDK that serves every target.
            Otherwise, and on the runners of `elsewhere`, each family has builds of its own.
    """

    build: tuple[str, ...]
    elsewhere: tuple[str, ...] = ()
    host_test: tuple[str, ...] | None = None
    build_together: bool = False


class Trigger(datafile.Value):
    """The part of the matrix that an event runs.

    Attributes:
        families: those that are not in an earlier trigger (presubmit, postsubmit, nightly).
        lines: release lines of the stack; its default line where empty.
        pythons: versions of Python, such as `3.12`; the stack's where empty.
        suites: configurations of the suite.toml beside the stack.toml; a set is promoted only where each has
            passed, on as many machines as it has shards.
        compat: measure what the compatibility pages claim too, which must hold likewise.
    """

    families: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    suites: tuple[str, ...] = ()
    compat: bool = False


class ExpectedFailure(datafile.Value):
    """A failure that is known, and does not make a night a bad one until a date.

    Attributes:
        issue: where it is followed up, such as a URL.
        until: the last day on which it is expected, such as `2026-12-31`, in UTC.

    Raises:
        UsageError: `issue` is empty, or `until` is not a date.
    """

    issue: str
    until: str

    def __post_init__(self) -> None:
        try:
            date.fromisoformat(self.until)
        except ValueError as error:
            raise UsageError(f"{self.until!r} is not a date", tip='write until = "2026-12-31"') from error
        if not self.issue.strip():
            raise UsageError("an expected failure names no issue", tip="say where it is followed up")

    def holds(self) -> bool:
        """Whether its last day has not passed."""
        return datetime.now(UTC).date() <= date.fromisoformat(self.until)

    def __str__(self) -> str:
        return f"until {self.until}, {self.issue}"


class FamilyPlatform(datafile.Value):
    """A family on one platform.

    Attributes:
        test: the labels of a runner with a GPU of the family. Where it is empty, the set is tested on the
            platform's `host_test` runner and goes to `untested`.
        multi_gpu: the labels of a runner with several such GPUs; may be empty.
        except_lines: the release lines that it is not built for.
        expect_failure: a failure that is known, with its issue and the last day on which it is expected.
        bypass_tests: where there is no GPU of the family, a set that passed the tests without one goes to the
            channel of the night instead, shown as untested on hardware. Nothing else is bypassed.
        push_on_success: it is promoted when it passes; otherwise it ends in staging.
        build_alone: it has builds of its own where the other families of the platform are built together, so
            that it takes none of them with it if it fails.
    """

    test: tuple[str, ...] = ()
    multi_gpu: tuple[str, ...] = ()
    except_lines: tuple[str, ...] = ()
    expect_failure: ExpectedFailure | None = None
    bypass_tests: bool = False
    push_on_success: bool = True
    build_alone: bool = False


class MatrixToml(datafile.Value, tag_field="schema", tag="cairn.matrix-toml/1"):
    """What is built and tested when, and on which runners.

    Attributes:
        owner: the account on GitHub that has the self-hosted runners. In a repository of a different one
            GitHub's own labels alone count, so that a fork's jobs do not wait for runners it does not have.
        platforms: such as `linux_x86_64`, in the order in which they are listed.
        triggers: what each event runs.
        families: a family or a target, or `cpu`, to the platforms it is built for.
    """

    owner: str | None = None
    platforms: Mapping[str, Platform]
    triggers: Mapping[TriggerName, Trigger] = msgspec.field(default_factory=dict)
    families: Mapping[str, Mapping[str, FamilyPlatform]]

    def families_of(self, trigger: TriggerName) -> tuple[str, ...]:
        """The families that a trigger runs, those of earlier triggers first."""
        until = TRIGGERS[: TRIGGERS.index(trigger) + 1]
        return tuple(dict.fromkeys(f for t in until for f in self.triggers.get(t, Trigger()).families))

    def lines_of(self, trigger: TriggerName, stack: Stack) -> tuple[str, ...]:
        """The lines that a trigger runs where none is named; the first is that of a single night."""
        return self.triggers.get(trigger, Trigger()).lines or (stack.line,)

    def at_home(self, owner: str | None) -> bool:
        """Whether self-hosted runners are those of this account; true where no account is known."""
        return self.owner is None or not owner or owner.casefold() == self.owner.casefold()

    def build_labels(self, platform: str, *, at_home: bool) -> tuple[str, ...]:
        """The labels of the runner that builds for a platform.

        Raises:
            UsageError: the repository has none.
        """
        platform_entry = self.platforms[platform]
        labels = (
            platform_entry.build
            if at_home
            else platform_entry.elsewhere or usable(platform_entry.build, at_home=False)
        )
        if not labels:
            raise UsageError(
                f"{platform} is built on {' '.join(platform_entry.build)}, a runner of {self.owner}'s",
                tip=f"name one of GitHub's, or your own: platforms.{platform}.elsewhere",
            )
        return labels

    def host_labels(self, platform: str, *, at_home: bool) -> tuple[str, ...]:
        """Return the labels of the runner without a GPU that tests sets of a platform; empty for none."""
        labels, hosted = self.platforms[platform].host_test, _HOSTED_TESTS.get(platform, ())
        return hosted if labels is None else usable(labels, at_home=at_home) or (hosted if labels else ())


def usable(labels: tuple[str, ...], *, at_home: bool) -> tuple[str, ...]:
    """The labels, or none where they are of a runner that the repository does not have."""
    return labels if at_home or all(_HOSTED.fullmatch(label) for label in labels) else ()


def load_matrix_toml(path: Path, stack: Stack) -> MatrixToml:
    """Read a matrix.toml for a stack.

    Raises:
        UsageError: no such file, malformed, or it names a family, platform, line or Python that is not there.
    """
    tip = f"write one beside the {stack.name} stack's stack.toml, or name one with --matrix"
    try:
        matrix = datafile.read(path, MatrixToml, tip=tip)
    except UsageError as error:
        if "expect_failure" not in str(error):
            raise
        # It was true or false before it had an issue and a date.
        how = 'write expect_failure = { issue = "https://…", until = "2026-12-31" }, or leave it out for none'
        raise UsageError(str(error), tip=how) from error
    if mistake := next(_mistakes(matrix, stack), None):
        message, tip = mistake
        raise UsageError(f"{path}: {message}", tip=tip)
    return matrix


def _mistakes(matrix: MatrixToml, stack: Stack) -> Iterator[tuple[str, str]]:
    """Yield the mistakes in a matrix, each with a tip."""
    yield from _unknown_families(matrix.families)
    for family, platforms in matrix.families.items():
        yield from _unknown(platforms, matrix.platforms, f"families.{family}", "[platforms] has")
        for platform, here in platforms.items():
            # Only Linux's kernel tells which GPUs a machine has, whatever the programs and wheels on it say.
            if here.test and platform.startswith("win") and gpu.parse_targets(family) != (gpu.CPU,):
                yield (
                    f"families.{family}.{platform} has a test runner, and GPUs are checked on Linux alone",
                    "leave `test` out: its wheels are built, and go to `untested`",
                )
            where = f"families.{family}.{platform}.except_lines"
            yield from _unknown(here.except_lines, stack.line_names(), where, "the stack has")
    if stack.platforms:
        yield from _unknown(matrix.platforms, stack.platforms, "platforms", "the stack has")
    for platform, runner in matrix.platforms.items():
        if not any(runner.build):
            yield f"platforms.{platform}.build names no runner", 'name one: build = ["ubuntu-24.04"]'
    for name, trigger in matrix.triggers.items():
        yield from _mistakes_of_trigger(name, trigger, matrix, stack)


def _mistakes_of_trigger(
    name: str, trigger: Trigger, matrix: MatrixToml, stack: Stack
) -> Iterator[tuple[str, str]]:
    yield from _unknown(trigger.families, matrix.families, f"triggers.{name}.families", "[families] has")
    yield from _unknown(trigger.lines, stack.line_names(), f"triggers.{name}.lines", "the stack has")
    for python in trigger.pythons:
        if not requirements.PYTHON.fullmatch(python):
            message = f"triggers.{name}.pythons names {python!r}, which is no version"
            yield message, 'write it like "3.12"'
    if stack.pythons:
        yield from _unknown(trigger.pythons, stack.pythons, f"triggers.{name}.pythons", "the stack has")


def _unknown(
    names: Iterable[str], valid: Iterable[str], where: str, they_are: str
) -> Iterator[tuple[str, str]]:
    for name in names:
        if name not in valid:
            message = f"{where} names {name!r}, which is unknown"
            yield message, wording.did_you_mean(name, list(valid), what=they_are)


def _unknown_families(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    for name in names:
        try:
            gpu.parse_targets(name)
        except UsageError as error:
            yield str(error), error.tip or ""
