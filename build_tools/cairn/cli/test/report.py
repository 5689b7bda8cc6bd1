"""`cairn test report`: the verdict on JUnit XML files, and their failures."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.cli import arguments
from cairn.cli.parser import Subparsers, add_command
from cairn.errors import TestsFailedError
from cairn.output import console

if TYPE_CHECKING:
    from cairn.testing.junit import JUnit
    from cairn.testing.verdict import Judgement


def add_to(commands: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "report",
        run,
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


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
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
