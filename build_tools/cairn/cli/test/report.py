"""`cairn test report`: what test runs came to, on the terminal, as a page, and in the summary of a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import common_options as common
from cairn.cli.answer import Answer, Piece, Table, Warn
from cairn.cli.binder import command
from cairn.errors import TestsFailedError, UsageError
from cairn.options import argument, flag, option, part
from cairn.output import console
from cairn.testing.testing_options import Floors

if TYPE_CHECKING:
    from cairn.testing.report.results import TestRun
    from cairn.testing.report.summary import EarlierRun, Summary

_SHOWN = 20  # failures on the terminal, of each run
_TITLE = "Test report"
_EARLIER = 7  # runs to compare with


@dataclass(frozen=True, kw_only=True)
class Report(common.StoreOptions):
    """Options of `cairn test report`.

    The verdict is that of the record, if the results beside it are its own. JUnit XML without a record is
    judged by the floors; a file that is missing, truncated or has nothing but skips is a failure. With
    --store, failures of earlier sets of the same line and family are told from new ones.

        cairn test report suite --html report.html
    """

    runs: tuple[Path, ...] = argument(
        "RUN",
        "the folder that a test run left, its record.json, or a JUnit XML file",
        nargs="+",
        convert=Path,
    )
    html: Path | None = option("write a page for browsers too", convert=converters.new_file)
    summary: bool = flag("add Markdown to the summary of the step of GitHub Actions that this runs in")
    store: str = common.store(required=False)
    index: str = common.index("staging")
    floors: Floors = part(Floors)


def run(request: Report) -> Answer:
    """Run the command, which fails where a run has not passed."""
    from cairn.testing.report import results, summary

    runs = [results.read(path, request.floors) for path in request.runs]
    summaries = [(test_run, summary.of_run(test_run, _earlier(request, test_run))) for test_run in runs]
    _write(request, summaries)
    each_summary = [each for _, each in summaries]
    page = (f"page: {request.html}",) if request.html else ()
    bad = [test_run.title for test_run, each in summaries if each.verdict != "passed"]
    error = TestsFailedError(f"{len(bad)} of {len(runs)} test runs did not pass: {', '.join(bad)}")
    return Answer(each_summary, (*_text(each_summary), *page), error=error if bad else None)


def _earlier(request: Report, test_run: TestRun) -> tuple[EarlierRun, ...]:
    if not request.store or test_run.record is None:
        return ()
    from cairn.pipeline.night.results import earlier_runs

    return earlier_runs(
        request.open_existing_store(),
        request.index,
        test_run.record,
        most=_EARLIER,
        say=console.current().warn,
    )


def _write(request: Report, summaries: Sequence[tuple[TestRun, Summary]]) -> None:
    import datetime as dt
    import os

    from cairn import files
    from cairn.output import github
    from cairn.testing.report import summary

    if request.html:
        generated = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        files.write_text(request.html, summary.page(_TITLE, summaries, generated=generated))
    if request.summary:
        if not os.environ.get("GITHUB_STEP_SUMMARY"):
            raise UsageError(
                "GITHUB_STEP_SUMMARY is not set: this is not a step of GitHub Actions",
                tip="use --html elsewhere",
            )
        github.add_summary(summary.step_summary(_TITLE, [each for _, each in summaries]))


def _text(summaries: Sequence[Summary]) -> Iterator[Piece]:
    rows = []
    for each in summaries:
        counts = each.counts
        numbers = (counts.passed, counts.failed, counts.errors, counts.skipped, counts.device_passed)
        rows.append((each.kind or Path(each.path).name, *map(str, numbers), each.verdict, each.reason))
    yield Table(("run", "passed", "failed", "errors", "skipped", "on a GPU", "verdict", "reason"), rows)
    for each in summaries:
        for failure in each.failures[:_SHOWN]:
            note = f" ({failure.known})" if failure.known else ""
            yield f"FAILED {failure.test.test}: {failure.test.reason}{note}"
        if len(each.failures) > _SHOWN:
            yield f"and {len(each.failures) - _SHOWN} more: --html FILE shows them"
        for test in each.flaky[:_SHOWN]:
            yield f"flaky {test.test}: {test.reason}"
        yield from map(Warn, each.remarks)


COMMANDS = {"report": command(Report, run)}
