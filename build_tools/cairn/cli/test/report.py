"""`cairn test report`: what test runs came to, on the terminal, as a page, and in the summary of a step."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import arguments
from cairn.cli.parser import Subparsers, add_command
from cairn.cli.test import suite_options
from cairn.errors import TestsFailedError, UsageError
from cairn.output import console

if TYPE_CHECKING:
    from cairn.testing.report.history import EarlierRun
    from cairn.testing.report.results import TestRun
    from cairn.testing.report.summary import Summary

_SHOWN = 20  # failures on the terminal, of each run


def add_to(commands: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "report",
        run,
        about="show what test runs came to: verdict, modules, failures, flaky and slow tests, skips, history",
        more="The verdict is that of the record, if the results beside it are its own. JUnit XML without a "
        "record is judged by the floors; a file that is missing, truncated or has nothing but skips is a "
        "failure. With --store, failures of earlier sets of the same line and family are told from new ones.",
        example="cairn test report suite --html report.html",
    )
    parser.add_argument(
        "runs",
        type=Path,
        nargs="+",
        metavar="RUN",
        help="the folder that a test run left, its record.json, or a JUnit XML file",
    )
    parser.add_argument(
        "--html", type=converters.new_file, metavar="FILE", help="write a page for browsers too"
    )
    parser.add_argument(
        "--summary",
        action="store_true",
        help="add Markdown to the summary of the step of GitHub Actions that this runs in",
    )
    parser.add_argument("--title", default="Test report", help="of the page (default: %(default)s)")
    arguments.add_store(parser, required=False)
    arguments.add_index(parser, default="staging")
    parser.add_argument(
        "--nights",
        type=converters.positive,
        default=7,
        metavar="N",
        help="earlier runs to compare with, where the store has them (default: %(default)s)",
    )
    suite_options.add_floors(parser)
    arguments.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code, which is 0 only where every run has passed."""
    from cairn import datafile
    from cairn.testing.report import results, summary

    floors = results.Floors(tests=options.floor, device_tests=options.device_floor)
    runs = [results.read(path, floors) for path in options.runs]
    found = [(one, summary.of_run(one, _earlier(options, one))) for one in runs]
    _write(options, found)
    if options.json:
        console.current().json([datafile.to_plain(said) for _, said in found])
    else:
        _show([said for _, said in found])
        if options.html:
            console.current().out(f"page: {options.html}")
    bad = [one.title for one, said in found if said.verdict != "passed"]
    if bad:
        raise TestsFailedError(f"{len(bad)} of {len(found)} test runs did not pass: {', '.join(bad)}")
    return 0


def _earlier(options: argparse.Namespace, one: TestRun) -> tuple[EarlierRun, ...]:
    if not options.store or one.record is None:
        return ()
    from cairn.pipeline import earlier_runs

    return earlier_runs.of_record(
        arguments.open_existing_store(options),
        options.index,
        one.record,
        most=options.nights,
        say=console.current().warn,
    )


def _write(options: argparse.Namespace, found: Sequence[tuple[TestRun, Summary]]) -> None:
    import datetime as dt
    import os

    from cairn import files
    from cairn.output import github
    from cairn.testing.report import page, step_summary

    if options.html:
        generated = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        files.write_text(options.html, page.render(options.title, found, generated=generated))
    if options.summary:
        if not os.environ.get("GITHUB_STEP_SUMMARY"):
            raise UsageError(
                "GITHUB_STEP_SUMMARY is not set: this is not a step of GitHub Actions",
                tip="use --html elsewhere",
            )
        github.add_summary(step_summary.markdown_of(options.title, [said for _, said in found]))


def _show(summaries: Sequence[Summary]) -> None:
    screen = console.current()
    rows = []
    for said in summaries:
        counts = said.counts
        numbers = (counts.passed, counts.failed, counts.errors, counts.skipped, counts.device_passed)
        rows.append((said.kind or Path(said.path).name, *map(str, numbers), said.verdict, said.reason))
    screen.table(("run", "passed", "failed", "errors", "skipped", "on a GPU", "verdict", "reason"), rows)
    for said in summaries:
        for failure in said.failures[:_SHOWN]:
            known = f" ({failure.known})" if failure.known else ""
            screen.out(f"FAILED {failure.test.test}: {failure.test.reason}{known}")
        if len(said.failures) > _SHOWN:
            screen.out(f"and {len(said.failures) - _SHOWN} more: --html FILE shows them")
        for test in said.flaky[:_SHOWN]:
            screen.out(f"flaky {test.test}: {test.reason}")
        for remark in said.remarks:
            screen.warn(remark)
