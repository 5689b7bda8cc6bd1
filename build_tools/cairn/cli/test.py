"""`cairn test`: smoke-test a set, and read what test runs left behind."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.cli import arguments
from cairn.cli.parser import Subparsers, add_command, add_commands
from cairn.errors import TestsFailedError, UsageError
from cairn.output import console

if TYPE_CHECKING:
    from cairn.stack import Stack
    from cairn.testing.junit import JUnit
    from cairn.testing.smoke import SmokeRequest, SmokeResult
    from cairn.testing.verdict import Judgement
    from cairn.wheels.wheelset import WheelSet


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the commands of the group."""
    commands = add_commands(
        parser,
        description="Test built wheels as they will be installed, and judge the results.",
        example="cairn test report --floor 100 results/*.xml",
    )
    _add_smoke(commands)
    _add_report(commands)


def _add_smoke(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "smoke",
        _smoke,
        about="install a set into a fresh environment and test it",
        more="Exactly the files of the set are installed, from one index alone; then the built-in checks and "
        "the stack's own tests run. Without --index-url, packages come from --find-links alone. Writes "
        "record.json and junit.xml.",
        example="cairn test smoke --set out/set.json --stack external-builds/sample "
        "--index-url http://127.0.0.1:8383/staging/simple/ -- -k cpu",
    )
    parser.add_argument(
        "--set", type=arguments.file, required=True, metavar="FILE", help="set.json of the wheels"
    )
    parser.add_argument(
        "--index-url", type=arguments.nonempty, metavar="URL", help="the only package index to use"
    )
    arguments.add_find_links(parser)
    arguments.add_stack(parser, required=False)
    arguments.add_targets(parser, default="what the set is for; others are refused")
    arguments.add_output_dir(parser, default=Path("smoke"))
    arguments.add_python(parser, what="to make the environment from")
    parser.add_argument(
        "--timeout", type=arguments.seconds, default=1800.0, metavar="SECONDS", help="for each run of pytest"
    )
    parser.add_argument("--floor", type=int, default=1, help="fewest tests that must run")
    arguments.add_json(parser)
    parser.add_argument(
        "pytest_args",
        nargs="*",
        metavar="-- PYTEST ARGS",
        help="passed on to pytest; the gate does not count a record that was made with any",
    )


def _add_report(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "report",
        _report,
        about="judge JUnit XML files as a test run is judged: counts, verdict and failures",
        more="A file that is missing, truncated or has nothing but skips is a failure.",
        example="cairn test report --floor 100 results/*.xml",
    )
    parser.add_argument("junit", type=Path, nargs="+", metavar="JUNIT", help="a JUnit XML file")
    parser.add_argument("--floor", type=int, default=1, help="fewest tests that must run")
    parser.add_argument(
        "--device-floor", type=int, default=0, help="fewest tests that must have passed on a GPU"
    )
    arguments.add_json(parser)


def _smoke(options: argparse.Namespace) -> int:
    from cairn import datafile
    from cairn.testing.smoke import require_passed, run_smoke

    request = _request(options)
    with console.current().stage(f"smoke tests of {len(request.wheel_set.wheels)} wheels") as stage:
        result = run_smoke(request, on_line=stage.update)
    if options.json:
        console.current().json(datafile.to_plain(result.record))
    else:
        _show(result)
    require_passed(result)
    return 0


def _request(options: argparse.Namespace) -> SmokeRequest:
    from cairn.testing.smoke import SmokeRequest
    from cairn.wheels import wheelset

    wheel_set = wheelset.read(options.set)
    _check_targets(wheel_set, options.targets)
    request = SmokeRequest(
        wheel_set=wheel_set,
        work_dir=options.output_dir.absolute(),
        index_url=options.index_url,
        find_links=tuple(options.find_links),
        python=options.python,
        pytest_args=tuple(options.pytest_args),
        timeout=options.timeout,
        floor=options.floor,
    )
    return _with_stack(request, arguments.read_stack(options)) if options.stack else request


def _with_stack(request: SmokeRequest, stack: Stack) -> SmokeRequest:
    return dataclasses.replace(
        request,
        extra_wheels=stack.extra_wheels,
        devices=stack.sdk is None or stack.sdk.devices,
        smoke_tests=tuple(Path(folder) for folder in stack.smoke_tests),
        imports={project.distribution: project.smoke_imports for project in stack.projects},
    )


def _check_targets(wheel_set: WheelSet, text: str | None) -> None:
    from cairn.targets import parse_targets

    if text and set(parse_targets(text)) != set(wheel_set.targets):
        raise UsageError(
            f"the set is for {', '.join(wheel_set.targets)}, not for {text}",
            tip="leave --targets out, or build a set for them",
        )


def _show(result: SmokeResult) -> None:
    show, record = console.current(), result.record
    for line in result.failures:
        show.out(f"FAILED {line}")
    for skip in record.skips:
        show.out(f"skipped {skip.test}: {skip.reason}")
    show.out(f"{record.verdict}: {record.reason}")
    show.out(f"record: {result.record_path}")


def _report(options: argparse.Namespace) -> int:
    judged = [(path, *_judged(path, options.floor, options.device_floor)) for path in options.junit]
    if options.json:
        console.current().json([_plain(path, found, verdict) for path, found, verdict in judged])
    else:
        _show_judged(judged)
    bad = [path.name for path, _, verdict in judged if verdict.verdict != "passed"]
    if bad:
        raise TestsFailedError(f"{len(bad)} of {len(judged)} test runs did not pass: {', '.join(bad)}")
    return 0


def _judged(path: Path, floor: int, device_floor: int) -> tuple[JUnit | None, Judgement]:
    from cairn.targets import CPU
    from cairn.testing import gpus as testing_gpus
    from cairn.testing import junit
    from cairn.testing.verdict import Judgement, judge

    try:
        found = junit.read(path)
    except TestsFailedError as error:
        return None, Judgement(verdict="failed", reason=str(error))
    gpus = tuple(dict.fromkeys(case.device for case in found.cases if case.device.startswith("gfx")))
    verdict = judge(
        found,
        exit_code=0,
        targets=gpus or testing_gpus.seen() or (CPU,),
        hardware=gpus,
        floor=floor,
        device_floor=device_floor,
    )
    return found, verdict


def _plain(path: Path, found: JUnit | None, verdict: Judgement) -> dict[str, object]:
    from cairn import datafile

    counts = datafile.to_plain(found.counts) if found else None
    return {"file": str(path), "verdict": verdict.verdict, "reason": verdict.reason, "counts": counts}


def _show_judged(judged: list[tuple[Path, JUnit | None, Judgement]]) -> None:
    from cairn.testing.junit import JUnit

    rows = []
    for path, found, verdict in judged:
        counts = found.counts if found else JUnit(cases=()).counts
        numbers = (counts.passed, counts.failed, counts.errors, counts.skipped, counts.device_passed)
        rows.append((path.name, *map(str, numbers), verdict.verdict, verdict.reason))
    head = ("file", "passed", "failed", "errors", "skipped", "on a GPU", "verdict", "reason")
    console.current().table(head, rows)
