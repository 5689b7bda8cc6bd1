"""Options of everything that runs a suite: `cairn test suite`, `cairn test shards`, run_pytorch_tests.py."""

from __future__ import annotations

import argparse
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn import converters
from cairn.cli import arguments
from cairn.errors import TestsFailedError, UsageError
from cairn.output import console

if TYPE_CHECKING:
    from cairn.stack import Stack
    from cairn.testing.suite.merge import Merged
    from cairn.testing.suite.run import SuiteRequest
    from cairn.testing.suite.shards.times import Times
    from cairn.testing.suite.suite_toml import Gpus

_SHOWN = 20  # failures on the screen; the files have all
UPSTREAM_GPUS: dict[str | None, Gpus] = {"single": "one", "all": "all"}


def add_config(parser: argparse.ArgumentParser) -> None:
    """`--suite` and `--test-config`."""
    parser.add_argument(
        "--suite",
        type=converters.file_or_folder,
        metavar="FILE",
        help="suite.toml, or the folder that has it (default: beside the stack.toml, or the script)",
    )
    parser.add_argument(
        "--test-config",
        type=converters.nonempty,
        default="default",
        metavar="NAME",
        help="configuration in suite.toml: default, distributed, inductor, full (default: %(default)s)",
    )


def add_sources_dir(parser: argparse.ArgumentParser) -> None:
    """`--sources-dir`."""
    parser.add_argument(
        "--sources-dir",
        type=converters.folder,
        required=True,
        metavar="DIR",
        help="the sources of the project",
    )


def add_times(parser: argparse.ArgumentParser) -> None:
    """`--times` and `--times-key`."""
    arguments.add_repeated(
        parser,
        "--times",
        "FILE",
        "how long tests took: outcomes.jsonl of an earlier run, or upstream's test-times.json",
        kind=converters.file,
    )
    parser.add_argument(
        "--times-key",
        type=converters.nonempty,
        default="default",
        metavar="NAME",
        help="in upstream's file, such as linux-noble-rocm-py3.12-mi300 (default: %(default)s)",
    )


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Which modules, and which of their tests."""
    for name, what in (
        ("--include", "run only these modules, such as"),
        ("--exclude", "leave these out, such as"),
    ):
        parser.add_argument(
            name, nargs="+", default=[], metavar="MODULE", help=f"{what} test_nn inductor/test_torchinductor"
        )
    parser.add_argument(
        "-k",
        dest="expression",
        type=converters.nonempty,
        metavar="EXPRESSION",
        help="tests by pytest's expression; skip-tests do not apply then",
    )
    arguments.add_repeated(
        parser,
        "--skip-tests",
        "PLACE",
        "skip-tests, a TOML file or a folder of them, in place of those beside suite.toml; the gate does not "
        "count a record that was made with others",
        kind=Path,
    )
    parser.add_argument("--shard", type=converters.positive, default=1, help="which shard, from 1")
    parser.add_argument("--num-shards", type=converters.positive, default=1, help="number of shards")


def add_limits(parser: argparse.ArgumentParser) -> None:
    """How long tests may take, on which GPUs, of which sources they may be, and what they see."""
    for name, default, what in (
        ("--test-timeout", 900.0, "for a test with its fixtures, also where it hangs in C or on a GPU"),
        ("--collection-timeout", 900.0, "for importing a module and collecting its tests"),
    ):
        parser.add_argument(
            name,
            type=converters.seconds,
            default=default,
            metavar="SECONDS",
            help=f"{what} (default: %(default)g)",
        )
    parser.add_argument(
        "--timeout", type=converters.seconds, metavar="SECONDS", help="for everything (default: none)"
    )
    parser.add_argument(
        "--gpu-policy",
        choices=tuple(UPSTREAM_GPUS),
        help="show the tests one GPU, or all that fit (default: the configuration's)",
    )
    parser.add_argument(
        "--allow-version-mismatch",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="run the tests as they are, edited or of a different commit than the wheel's; the gate does not "
        "count that as passed",
    )
    parser.add_argument(
        "--test-env",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a variable that the tests see, besides the short list that all tests see and what the "
        "suite.toml names; the record says so (repeatable)",
    )


def add_floors(parser: argparse.ArgumentParser) -> None:
    """`--floor` and `--device-floor`."""
    parser.add_argument(
        "--floor", type=int, default=1, help="fewest tests that must run (default: %(default)s)"
    )
    parser.add_argument(
        "--device-floor",
        type=int,
        default=0,
        help="fewest tests that must have passed on a GPU (default: %(default)s)",
    )


def add_running(parser: argparse.ArgumentParser) -> None:
    """Limits, retries, floors, GPUs."""
    add_limits(parser)
    parser.add_argument(
        "--retries",
        type=int,
        choices=range(10),
        default=1,
        help="tries of a failed test (default: %(default)s)",
    )
    add_floors(parser)
    parser.add_argument("pytest_args", nargs="*", metavar="-- PYTEST ARGS", help="passed on to pytest")


def named_variables(options: argparse.Namespace) -> dict[str, str]:
    """What `--test-env` names.

    Raises:
        UsageError: it is not `NAME=VALUE`.
    """
    texts: list[str] = getattr(options, "test_env", [])
    pairs = [text.partition("=") for text in texts]
    if wrong := [text for text, (name, sign, _) in zip(texts, pairs, strict=True) if not name or not sign]:
        raise UsageError(f"--test-env {wrong[0]!r} is not NAME=VALUE")
    return {name: value for name, _, value in pairs}


def variables(options: argparse.Namespace) -> dict[str, str]:
    """What tests see that run on what is installed."""
    from cairn import isolation

    home = options.output_dir.absolute() / "scratch" / "home"
    return isolation.variables(isolation.Isolation.TEST, home) | named_variables(options)


def suite_file(options: argparse.Namespace) -> Path:
    """The suite.toml, or its folder: what `--suite` names, else where the stack or the script is."""
    found = options.suite or _own_folder(options)
    if found is None:
        raise UsageError(
            "no suite was named", tip="name a suite.toml with --suite, or its stack with --stack"
        )
    return Path(found)


def _own_folder(options: argparse.Namespace) -> Path | None:
    """Where the stack is, or a script that has one beside it."""
    stack: Path | None = getattr(options, "stack", None)
    script: Path | None = getattr(options, "folder", None)
    return (stack if stack.is_dir() else stack.parent) if stack else script


def _own_stack(options: argparse.Namespace) -> Stack | None:
    """The stack that was named, or that the script has beside it."""
    from cairn import stack as stacks

    place = getattr(options, "stack", None) or getattr(options, "folder", None)
    if place is None or (place.is_dir() and not (place / stacks.FILE).is_file()):
        return None
    return stacks.load(place).for_line(getattr(options, "line", None))


def read_times(options: argparse.Namespace) -> Times:
    """The times that the options of `add_times` name."""
    from cairn.testing.suite.shards import times

    return times.read(options.times, environment=options.times_key, config=options.test_config)


def request_values(options: argparse.Namespace, checkout: Path) -> dict[str, Any]:
    """What the options say of a `SuiteRequest`."""
    from cairn.stack import policy
    from cairn.testing.record import TestPolicy
    from cairn.testing.skips import skip_files
    from cairn.testing.suite.suite_toml import Choice

    expression, suite = options.expression, suite_file(options)
    own = (suite if suite.is_dir() else suite.parent) / policy.SKIPS
    skips = options.skip_tests or ([own] if own.is_dir() else [])
    return {
        **common_values(options, checkout),
        "choice": Choice(include=tuple(options.include), exclude=tuple(options.exclude)),
        "shard": options.shard,
        "shards": options.num_shards,
        "times": read_times(options),
        "skips": () if expression else skip_files.read(skips),
        "policy": TestPolicy.of(_own_stack(options), skips=() if expression else skips),
        "instead": (
            *([f"--suite={options.suite}"] if _is_elsewhere(options.suite, _own_folder(options)) else []),
            *(f"--skip-tests={place}" for place in skips if _is_elsewhere(place, own)),
            *(f"--test-env={text}" for text in getattr(options, "test_env", [])),
        ),
        "pytest_args": (*(["-k", expression] if expression else []), *options.pytest_args),
        "retries": options.retries,
    }


def _is_elsewhere(named: Path | None, own: Path | None) -> bool:
    """Whether a file or folder that was named is another than one's own, or that of the file in it."""
    return named is not None and (
        own is None or own.resolve() not in (named.resolve(), named.resolve().parent)
    )


def common_values(options: argparse.Namespace, checkout: Path) -> dict[str, Any]:
    """What the options of `add_config` and `add_limits` say of a `SuiteRequest`, and where its results go."""
    from cairn.sources.git import repository
    from cairn.sources.worktree import contents
    from cairn.testing.suite.attempt import Limits

    return {
        "config": options.test_config,
        "checkout": checkout,
        "commits": repository.commits_at(checkout),
        "write_committed": functools.partial(contents.write_committed, checkout),
        "edits": repository.edits_at(checkout),
        "work_dir": options.output_dir.absolute(),
        "limits": Limits(
            test=options.test_timeout, collection=options.collection_timeout, all=options.timeout
        ),
        "gpu_choice": UPSTREAM_GPUS.get(options.gpu_policy),
        "allow_mismatch": options.allow_version_mismatch,
    }


def run(request: SuiteRequest, options: argparse.Namespace) -> int:
    """Run a shard; judge it, where it is the only one."""
    from cairn.testing.suite import merge as merging
    from cairn.testing.suite import run as running

    show = console.current()
    with show.stage(f"tests of {request.suite.project}, {request.config}") as stage:
        folder = running.run_suite(request, say=show.warn, on_line=stage.update)
    alone = request.shards == 1
    merged = merging.merge(
        [folder],
        folder,
        floor=options.floor if alone else 0,
        device_floor=options.device_floor if alone else 0,
        part=not alone,
    )
    return report(merged, json=options.json, log=folder / running.LOG)


def report(merged: Merged, *, json: bool, log: Path | None) -> int:
    """Show what became of a suite.

    Raises:
        TestsFailedError: it did not pass.
    """
    from cairn import datafile

    show, judgement, counts = console.current(), merged.judgement, merged.summary.counts
    if json:
        show.json(
            {
                "verdict": judgement.verdict,
                "reason": judgement.reason,
                "counts": datafile.to_plain(counts),
                "flaky": [test.test for test in merged.flaky],
                "problems": list(merged.problems),
            }
        )
    else:
        failed = [test for test in merged.outcomes if test.failed]
        for test in failed[:_SHOWN]:
            show.out(f"FAILED {test.test}: {test.reason}")
        if len(failed) > _SHOWN:
            show.out(f"and {len(failed) - _SHOWN} more: {merged.junit}")
        for test in merged.flaky:
            show.out(f"flaky {test.test}: {test.reason}")
        for line in dict.fromkeys(line for result in merged.results for line in result.outdated):
            show.warn(f"skip-tests: {line}")
        excluded = {item.test for result in merged.results for item in result.excluded}
        show.out(f"{judgement.verdict}: {judgement.reason}; {len(excluded)} left out by skip-tests")
        show.out(f"results: {merged.junit.parent}")
    if judgement.verdict != "passed":
        raise TestsFailedError(
            f"the suite did not pass: it is {judgement.verdict}", tip=f"read {log or merged.junit}"
        )
    return 0
