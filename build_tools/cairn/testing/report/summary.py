"""Count the tests of a run by module and by reason of skipping, and compare them with earlier runs."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from cairn import datafile, templates
from cairn.output import console, safe_text, wording
from cairn.testing.compat import report
from cairn.testing.junit import JUnit, Outcome, TestOutcome
from cairn.testing.record import Counts, TestRecord, Verdict
from cairn.testing.report.results import TestRun

_DAY = len("2026-01-31")

_ADDRESS = re.compile(r"https?://\S+")
_SLOWEST = 25  # tests that are listed


class EarlierRun(msgspec.Struct, frozen=True, kw_only=True):
    """A record of an earlier set of the same line, family, Python and platform.

    Attributes:
        set_id: the set.
        record: of the same kind.
        outcomes: of each test by its node id; None where nobody has kept the results.
    """

    set_id: str
    record: TestRecord
    outcomes: Mapping[str, Outcome] | None = None


def known_failure(test: str, earlier: Sequence[EarlierRun]) -> tuple[bool, str]:
    """Return whether a failure is new, and the same in words; these are empty without a run to compare with.

    It is new if it did not fail in the last run that has results; `earlier` has the newest first.
    """
    runs = [run for run in earlier if run.outcomes is not None]
    failed = 0
    while failed < len(runs) and _outcome(runs[failed], test) in ("failed", "error"):
        failed += 1
    if not runs:
        return True, ""
    if failed:
        since = runs[failed - 1].record.started[:_DAY]
        if failed == len(runs):
            return False, f"known: it failed in all {failed} earlier runs, since {since} at least"
        return False, f"known: it fails since {since}"
    last = {"passed": "passed", "skipped": "was skipped", None: "was not there"}[_outcome(runs[0], test)]
    return True, f"new: it {last} in the last run, {runs[0].record.started[:_DAY]}"


def changes_since(
    tests: Sequence[TestOutcome], earlier: Sequence[EarlierRun]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return tests that failed in the last run with results: those that pass now, and those not run."""
    last = next((run.outcomes for run in earlier if run.outcomes is not None), None)
    if last is None:
        return (), ()
    now = JUnit.of(tests).by_test  # two suites may have tests of one name: the worst counts
    failed = [test for test, outcome in last.items() if outcome in ("failed", "error")]
    fixed = tuple(test for test in failed if now.get(test) == "passed")
    return fixed, tuple(test for test in failed if now.get(test) in ("skipped", None))


def _outcome(run: EarlierRun, test: str) -> Outcome | None:
    return (run.outcomes or {}).get(test)


class Module(datafile.Value):
    """The tests of a module.

    Attributes:
        name: its path below the folder of tests, or what JUnit XML calls it.
        counts: of its tests.
        flaky: how many of those that passed did so only when they were tried again.
        seconds: of all its tests.
    """

    name: str
    counts: Counts
    flaky: int
    seconds: float

    @property
    def failed(self) -> int:
        """The number of tests that count against the wheel."""
        return self.counts.failed + self.counts.errors


class Failure(datafile.Value):
    """A test that failed.

    Attributes:
        test: what became of it.
        new: earlier runs do not have it as a failure.
        known: what earlier runs say of it; empty where there are none to compare with.
    """

    test: TestOutcome
    new: bool
    known: str


class Skipped(datafile.Value):
    """Tests that did not run for the same reason.

    Attributes:
        reason: as the test, or an entry of skip-tests, says it; perhaps empty.
        owner: who looks after the entry of skip-tests; empty where the test itself decided.
        issue: that the entry names.
        tests: their node ids; a module stands for all its tests.
    """

    reason: str
    owner: str
    issue: str
    tests: tuple[str, ...]

    @property
    def size(self) -> int:
        """The number of tests."""
        return len(self.tests)


class Night(datafile.Value):
    """A run in the history: an earlier one, or this one."""

    set_id: str | None
    started: str
    verdict: Verdict
    reason: str
    hardware: tuple[str, ...]
    counts: Counts


class Summary(datafile.Value):
    """The summary of a run.

    Attributes:
        path: what was read.
        kind: of its record, with the configuration of a suite; empty where it has none.
        verdict: of the record, or of the judge.
        reason: of the verdict.
        set_id: what was tested; None where that is not known.
        hardware: the GPUs.
        counts: of the tests.
        modules: those with failures first, then by name.
        failures: the new ones first.
        flaky: tests that failed, and passed when they were tried again.
        slowest: the tests that took longest, the longest first.
        skipped: by reason, the most frequent first.
        excluded: likewise, what skip-tests kept from running; by owner.
        fixed: tests that failed in the last run and pass now.
        gone: tests that failed in the last run and did not run now.
        nights: earlier runs, the newest first.
        remarks: what else there is to say.
    """

    path: str
    kind: str
    verdict: Verdict
    reason: str
    set_id: str | None
    hardware: tuple[str, ...]
    counts: Counts
    modules: tuple[Module, ...]
    failures: tuple[Failure, ...]
    flaky: tuple[TestOutcome, ...]
    slowest: tuple[TestOutcome, ...]
    skipped: tuple[Skipped, ...]
    excluded: tuple[Skipped, ...]
    fixed: tuple[str, ...]
    gone: tuple[str, ...]
    nights: tuple[Night, ...]
    remarks: tuple[str, ...]

    @property
    def new(self) -> tuple[Failure, ...]:
        """The failures that are not in earlier runs."""
        return tuple(failure for failure in self.failures if failure.new)


def of_run(run: TestRun, earlier: Sequence[EarlierRun] = ()) -> Summary:
    """Count a run, and compare it with earlier ones, the newest first."""
    fixed, gone = changes_since(run.tests, earlier)
    failures = []
    for test in run.tests:
        if test.failed:
            is_new, words = known_failure(test.test, earlier)
            failures.append(Failure(test=test, new=is_new, known=words))
    slowest = sorted(run.tests, key=lambda test: -test.seconds)[:_SLOWEST]
    skipped = [test for test in run.tests if test.outcome == "skipped"]
    reasons: dict[str, set[str]] = defaultdict(set)
    for test in skipped:
        reasons[_ADDRESS.sub("…", test.reason)].add(test.reason)
    # What an issue disables is one group, whichever the issue; a reason that stands alone keeps its address.
    shown = {text: alike if len(inside) > 1 else text for alike, inside in reasons.items() for text in inside}
    return Summary(
        path=str(run.path),
        kind=run.kind,
        verdict=run.verdict,
        reason=run.reason,
        set_id=run.record.set_id if run.record else None,
        hardware=run.hardware,
        counts=run.counts,
        modules=_modules(run.tests),
        # Sorting is stable: otherwise they stay in the order of the run.
        failures=tuple(sorted(failures, key=lambda failure: not failure.new)),
        flaky=tuple(test for test in run.tests if test.flaky),
        slowest=tuple(test for test in slowest if test.seconds > 0),
        skipped=_grouped((("", "", shown[test.reason]), test.test) for test in skipped),
        excluded=_grouped(((item.owner, item.issue, item.reason), item.test) for item in run.excluded),
        fixed=fixed,
        gone=gone,
        nights=tuple(_night(run) for run in earlier),
        remarks=run.remarks,
    )


def _modules(tests: Sequence[TestOutcome]) -> tuple[Module, ...]:
    by_name: dict[str, list[TestOutcome]] = defaultdict(list)
    for test in tests:
        by_name[test.module].append(test)
    modules = [
        Module(
            name=name,
            counts=JUnit.of(inside).counts,
            flaky=sum(test.flaky for test in inside),
            seconds=sum(test.seconds for test in inside),
        )
        for name, inside in by_name.items()
    ]
    return tuple(sorted(modules, key=lambda module: (not module.failed, module.name)))


def _grouped(tests: Iterable[tuple[tuple[str, str, str], str]]) -> tuple[Skipped, ...]:
    """Group tests by owner, issue and reason, the largest group first."""
    groups: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for why, test in tests:
        groups[why].append(test)
    rows = [
        Skipped(owner=owner, issue=issue, reason=reason, tests=tuple(names))
        for (owner, issue, reason), names in groups.items()
    ]
    return tuple(sorted(rows, key=lambda group: (group.owner, -len(group.tests), group.reason)))


def _night(earlier: EarlierRun) -> Night:
    record = earlier.record
    return Night(
        set_id=earlier.set_id,
        started=record.started,
        verdict=record.verdict,
        reason=record.reason,
        hardware=record.hardware,
        counts=record.counts,
    )


# A summary has room for 1 MiB, of all that the step says; these come to a twentieth of it for each run.
_FAILURES = 100
_OTHERS = 30  # of any other list
_SLOWEST_SHOWN = 10
_TEXT = 300  # characters of a reason or a name
_MINUTE = len("2026-01-31T23:59")
_SIGNS = {"passed": "✅", "failed": "❌", "invalid": "❌", "untested": "⚠️"}


class Limits(msgspec.Struct, frozen=True, kw_only=True):
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
        compat_summary=report.summary,
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
    for title, lines in _lists(summary).items():
        if lines:
            yield f"\n<details><summary>{title}</summary>\n"  # after an empty line, it is Markdown again
            yield from lines
            yield "\n</details>"


def _lists(summary: Summary) -> dict[str, list[str]]:
    """Return the folded lists by heading."""
    known_failures = [failure for failure in summary.failures if not failure.new]
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
        wording.count(known_failures, "known failure"): _failures(known_failures),
        f"{len(fixed)} fixed since the last run": _some(fixed, _OTHERS),
        f"{len(flaky)} flaky": _some(flaky, _OTHERS),
        "left out by skip-tests": _table(("owner", "reason", "issue", "tests"), groups[:_OTHERS]),
        f"{summary.counts.skipped} skipped themselves": _some(skipped, _OTHERS),
        "slowest tests": slowest[:_SLOWEST_SHOWN],
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
