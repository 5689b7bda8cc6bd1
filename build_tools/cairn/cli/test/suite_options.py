"""Options of everything that runs a suite: `cairn test suite`, `cairn test shards`, run_pytorch_tests.py."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn import converters
from cairn.cli import common_options as common
from cairn.cli.answer import Answer, Piece, Warn
from cairn.errors import TestsFailedError, UsageError
from cairn.options import argument, option, part, repeated, switch
from cairn.output import console, github
from cairn.testing.testing_options import Choice, Floors, Limits

if TYPE_CHECKING:
    from cairn.stack import Stack
    from cairn.testing.suite.merge import Merged
    from cairn.testing.suite.run import SuiteRequest
    from cairn.testing.suite.shards import Times
    from cairn.testing.suite.suite_toml import Gpus

_SHOWN = 20  # failures on the screen; the files have all
UPSTREAM_GPUS: dict[str | None, Gpus] = {"single": "one", "all": "all"}


def sources_dir() -> Path:
    """`--sources-dir`."""
    folder: Path = option("the sources of the project", convert=converters.folder, required=True)
    return folder


@dataclass(frozen=True, kw_only=True)
class ConfigOptions:
    """`--suite` and `--test-config`.

    Attributes:
        suite: suite.toml, or its folder.
        test_config: the name of one of its configurations.
        stack: beside which they are unless others are named.
        line: of the stack.
        folder: of a script that has them beside it.
    """

    suite: Path | None = option(
        "suite.toml, or the folder that has it (default: beside the stack.toml, or the script)",
        metavar="FILE",
        convert=converters.file_or_folder,
    )
    test_config: str = common.test_config()
    stack: Path | None = None
    line: str | None = None
    folder: Path | None = None

    def suite_file(self) -> Path:
        """The suite.toml, or its folder: what `--suite` names, else where the stack or the script is."""
        place = self.suite or self.own_folder()
        if place is None:
            raise UsageError(
                "no suite was named", tip="name a suite.toml with --suite, or its stack with --stack"
            )
        return place

    def own_folder(self) -> Path | None:
        """Where the stack is, or a script that has one beside it."""
        if self.stack:
            return self.stack if self.stack.is_dir() else self.stack.parent
        return self.folder

    def own_stack(self) -> Stack | None:
        """The stack that was named, or that the script has beside it."""
        from cairn import stack as stacks

        place = self.stack or self.folder
        if place is None or (place.is_dir() and not (place / stacks.FILE).is_file()):
            return None
        return stacks.load(place).for_line(self.line)


@dataclass(frozen=True, kw_only=True)
class TimesOptions(ConfigOptions):
    """`--times`."""

    times: tuple[Path, ...] = repeated(
        "how long tests took: outcomes.jsonl of an earlier run, or upstream's test-times.json",
        convert=converters.file,
    )

    def read_times(self) -> Times:
        """The times that are named."""
        from cairn.testing.suite import shards

        return shards.read_times(self.times, config=self.test_config)


@dataclass(frozen=True, kw_only=True)
class LimitOptions(ConfigOptions):
    """How long tests may take, on which GPUs, of which sources they may be, and what they see."""

    limits: Limits = part(Limits)
    gpu_policy: str | None = option(
        "show the tests one GPU, or all that fit (default: the configuration's)",
        choices=tuple(UPSTREAM_GPUS),
    )
    allow_version_mismatch: bool = switch(
        "run the tests as they are, edited or of a different commit than the wheel's; the gate does not "
        "count that as passed"
    )
    test_env: tuple[str, ...] = repeated(
        "a variable that the tests see, besides the short list that all tests see and what the suite.toml "
        "names; the record says so",
        metavar="NAME=VALUE",
    )
    output_dir: Path = common.output_dir(default=Path("suite"))
    python: Path | None = common.tested_python()

    def variables_by_name(self) -> dict[str, str]:
        """The variables that `--test-env` names.

        Raises:
            UsageError: it is not `NAME=VALUE`.
        """
        pairs = [(text, text.partition("=")) for text in self.test_env]
        if wrong := [text for text, (name, sign, _) in pairs if not name or not sign]:
            raise UsageError(f"--test-env {wrong[0]!r} is not NAME=VALUE")
        return {name: value for _, (name, _, value) in pairs}

    def variables(self) -> dict[str, str]:
        """The variables of tests that run on what is installed."""
        from cairn import isolation

        home = self.output_dir.absolute() / "scratch" / "home"
        return isolation.variables(isolation.Isolation.TEST, home) | self.variables_by_name()

    def request_values(self, checkout: Path) -> dict[str, Any]:
        """Fields of a `SuiteRequest` that follow from these options."""
        from cairn.sources.git import repository
        from cairn.sources.worktree import contents

        return {
            "config": self.test_config,
            "checkout": checkout,
            "commits": repository.commits_at(checkout),
            "write_committed": functools.partial(contents.write_committed, checkout),
            "edits": repository.edits_at(checkout),
            "work_dir": self.output_dir.absolute(),
            "run": github.run_id().removeprefix("0"),
            "gpu_choice": UPSTREAM_GPUS.get(self.gpu_policy),
            "allow_mismatch": self.allow_version_mismatch,
        }


@dataclass(frozen=True, kw_only=True)
class SuiteOptions(LimitOptions, TimesOptions):
    """Which modules, and which of their tests; how often; and how many there must be."""

    choice: Choice = part(Choice)
    expression: str | None = option(
        "tests by pytest's expression; skip-tests do not apply then",
        "-k",
        metavar="EXPRESSION",
        convert=converters.nonempty,
    )
    skip_tests: tuple[Path, ...] = repeated(
        "skip-tests, a TOML file or a folder of them, in place of those beside suite.toml; the gate does not "
        "count a record that was made with others",
        metavar="PLACE",
        convert=Path,
    )
    shard: int = option("which shard, from 1", default=1, convert=converters.positive)
    num_shards: int = option("number of shards", default=1, convert=converters.shards)
    retries: int = option(
        "tries of a failed test (default: %(default)s)", default=1, convert=int, choices=range(10)
    )
    floors: Floors = part(Floors)
    pytest_args: tuple[str, ...] = argument("-- PYTEST ARGS", "passed on to pytest", nargs="*")

    def request_values(self, checkout: Path) -> dict[str, Any]:
        """Fields of a `SuiteRequest` that follow from these options."""
        from cairn.stack import recipe
        from cairn.testing.record import TestPolicy
        from cairn.testing.skips import skip_files

        suite = self.suite_file()
        shipped = (suite if suite.is_dir() else suite.parent) / recipe.SKIPS
        skips = self.skip_tests or ((shipped,) if shipped.is_dir() else ())
        applied = () if self.expression else skips
        return {
            **super().request_values(checkout),
            "shards": self.num_shards,
            "times": self.read_times(),
            "skips": skip_files.read(applied),
            "policy": TestPolicy.of(self.own_stack(), skips=applied),
            "instead": (
                *([f"--suite={self.suite}"] if _is_elsewhere(self.suite, self.own_folder()) else []),
                *(f"--skip-tests={place}" for place in skips if _is_elsewhere(place, shipped)),
                *(f"--test-env={text}" for text in self.test_env),
            ),
            "pytest_args": (*(["-k", self.expression] if self.expression else []), *self.pytest_args),
        }


def _is_elsewhere(place: Path | None, shipped: Path | None) -> bool:
    """Whether a file or folder that was named is another than one's own, or that of the file in it."""
    return place is not None and (
        shipped is None or shipped.resolve() not in (place.resolve(), place.resolve().parent)
    )


def run(request: SuiteRequest, options: SuiteOptions) -> Answer:
    """Run a shard, and judge it if it is the only one."""
    from cairn.testing.suite import merge as merging
    from cairn.testing.suite import run as running

    show = console.current()
    with show.stage(f"tests of {request.suite.project}, {request.config}") as stage:
        folder = running.run_suite(request, say=show.warn, on_line=stage.update)
    alone = request.shards == 1
    merged = merging.merge(
        [folder],
        folder,
        floor=options.floors.tests if alone else 0,
        device_floor=options.floors.device_tests if alone else 0,
        part=not alone,
    )
    return answer(merged, log=folder / running.LOG)


def answer(merged: Merged, *, log: Path | None = None) -> Answer:
    """Make the answer about a suite; it fails if the suite did not pass, and names `log`."""
    judgement = merged.judgement
    plain = {
        "verdict": judgement.verdict,
        "reason": judgement.reason,
        "counts": merged.summary.counts,
        "flaky": [test.test for test in merged.flaky],
        "problems": merged.problems,
    }
    error = TestsFailedError(
        f"the suite did not pass: it is {judgement.verdict}", tip=f"read {log or merged.junit}"
    )
    return Answer(plain, _text(merged), error=None if judgement.verdict == "passed" else error)


def _text(merged: Merged) -> Iterator[Piece]:
    failed = [test for test in merged.outcomes if test.failed]
    for test in failed[:_SHOWN]:
        yield f"FAILED {test.test}: {test.reason}"
    if len(failed) > _SHOWN:
        yield f"and {len(failed) - _SHOWN} more: {merged.junit}"
    for test in merged.flaky:
        yield f"flaky {test.test}: {test.reason}"
    for line in dict.fromkeys(line for result in merged.results for line in result.outdated):
        yield Warn(f"skip-tests: {line}")
    excluded = {item.test for result in merged.results for item in result.excluded}
    judgement = merged.judgement
    yield f"{judgement.verdict}: {judgement.reason}; {len(excluded)} left out by skip-tests"
    yield f"results: {merged.junit.parent}"
