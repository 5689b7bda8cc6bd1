"""Render test runs as an HTML page, and as a GitHub Actions step summary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cairn import templates
from cairn.output import console, safe_text, wording
from cairn.testing.compat import tables
from cairn.testing.report.results import TestRun
from cairn.testing.report.summary import Failure, Summary

# A summary has room for 1 MiB, of all that the step says; these come to a twentieth of it for each run.
_FAILURES = 100
_OTHERS = 30  # of any other list
_SLOWEST = 10
_TEXT = 300  # characters of a reason or a name
_MINUTE = len("2026-01-31T23:59")
_SIGNS = {"passed": "✅", "failed": "❌", "invalid": "❌", "untested": "⚠️"}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits on the lists of a page, so that a browser opens it quickly; the rest is only counted.

    43,000 tests that all fail would make a page of 170 MB.

    Attributes:
        failures: tests that are named.
        logs: of these, shown with what they wrote; 4,000 characters each at most.
        names: tests, in a list that is folded.
        groups: reasons of skips.
    """

    failures: int = 2_000
    logs: int = 300
    names: int = 200
    groups: int = 300


def page(title: str, runs: Sequence[tuple[TestRun, Summary]], *, generated: str) -> str:
    """Render a self-contained HTML file without scripts; tests' names and output are shown as text.

    Args:
        title: of the page.
        runs: each with its summary.
        generated: when, ISO 8601 in UTC.
    """
    page = templates.page(
        "test_report",
        title=title,
        runs=runs,
        generated=generated,
        limits=Limits(),
        compat_summary=tables.summary,
    )
    return safe_text.mask(page)  # tests print addresses, with passwords in them


def step_summary(title: str, summaries: Sequence[Summary]) -> str:
    """Render the runs as Markdown, limited to what a reader acts on; test names and output are escaped.

    Args:
        title: of the whole.
        summaries: of the runs.
    """
    lines = [f"## {safe_text.markdown(title)}"]
    for summary in summaries:
        lines += ["", *_run(summary)]
    return safe_text.mask("\n".join(lines)) + "\n"


def _run(summary: Summary) -> Iterator[str]:
    counts, name = summary.counts, summary.kind or summary.path
    yield f"### {_SIGNS[summary.verdict]} {safe_text.markdown(name)}: {summary.verdict}"
    yield ""
    yield _cut(summary.reason)
    yield ""
    head = ("passed", "failed", "errors", "skipped", "flaky", "left out", "on a GPU", "hardware")
    left_out = sum(group.size for group in summary.excluded)
    numbers = (counts.passed, counts.failed, counts.errors, counts.skipped, len(summary.flaky), left_out)
    hardware = _cut(", ".join(summary.hardware) or "no GPU")
    yield from _table(head, [(*map(str, (*numbers, counts.device_passed)), hardware)])
    for remark in summary.remarks[:_OTHERS]:
        yield f"\n{_cut(remark)}"
    # New ones are open; those that were known yesterday are folded.
    if summary.new:
        heading = "new failure" if summary.nights else "failure"
        yield f"\n**{wording.count(summary.new, heading)}**\n"
        yield from _failures(summary.new)
    for what, lines in _lists(summary).items():
        if lines:
            yield f"\n<details><summary>{what}</summary>\n"  # after an empty line, it is Markdown again
            yield from lines
            yield "\n</details>"


def _lists(summary: Summary) -> dict[str, list[str]]:
    """Return the folded lists by heading."""
    known = [failure for failure in summary.failures if not failure.new]
    fixed = [f"- {_code(name)}" for name in summary.fixed]
    flaky = [f"- {_code(test.test)}: {_cut(test.reason)}" for test in summary.flaky]
    skipped = [f"- {group.size}: {_cut(group.reason) or 'no reason given'}" for group in summary.skipped]
    groups = [(_cut(g.owner), _cut(g.reason), _cut(g.issue), str(g.size)) for g in summary.excluded]
    slowest = [f"- {console.clock(test.seconds)}: {_code(test.test)}" for test in summary.slowest]
    nights = [
        (
            night.started[:_MINUTE],
            night.verdict,
            str(night.counts.passed),
            str(night.counts.failed + night.counts.errors),
            str(night.counts.skipped),
            _cut(", ".join(night.hardware) or "no GPU"),
        )
        for night in summary.nights
    ]
    return {
        wording.count(known, "known failure"): _failures(known),
        f"{len(fixed)} fixed since the last run": _some(fixed, _OTHERS),
        f"{len(flaky)} flaky": _some(flaky, _OTHERS),
        "left out by skip-tests": _table(("owner", "reason", "issue", "tests"), groups[:_OTHERS]),
        f"{summary.counts.skipped} skipped themselves": _some(skipped, _OTHERS),
        "slowest tests": slowest[:_SLOWEST],
        "earlier runs": _table(("begun", "verdict", "passed", "failed", "skipped", "hardware"), nights),
    }


def _failures(failures: Sequence[Failure]) -> list[str]:
    lines = [
        f"- {_code(failure.test.test)}: {_cut(failure.test.reason)}"
        + (f" *({_cut(failure.known)})*" if failure.known else "")
        for failure in failures
    ]
    return _some(lines, _FAILURES)


def _some(lines: Sequence[str], most: int) -> list[str]:
    more = [f"- and {len(lines) - most} more"] if len(lines) > most else []
    return [*lines[:most], *more]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return safe_text.markdown_table(head, rows) if rows else []


def _cut(text: str) -> str:
    return safe_text.markdown(text if len(text) <= _TEXT else f"{text[:_TEXT]}…")


def _code(text: str) -> str:
    return safe_text.markdown_code(text if len(text) <= _TEXT else f"{text[:_TEXT]}…")
