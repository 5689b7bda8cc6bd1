"""What earlier nights say of a test that fails now: whether it is new, or since when it is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cairn.testing.junit import Outcome, TestOutcome
from cairn.testing.record import TestRecord

_DAY = len("2026-01-31")


@dataclass(frozen=True, kw_only=True)
class EarlierRun:
    """A record of an earlier set of the same line, family, Python and platform.

    Attributes:
        set_id: the set.
        record: of the same kind.
        outcomes: of each test by its node id; None where nobody has kept the results.
    """

    set_id: str
    record: TestRecord
    outcomes: Mapping[str, Outcome] | None = None


@dataclass(frozen=True, kw_only=True)
class Known:
    """What earlier runs say of a failure.

    Attributes:
        new: it did not fail in the last run that has results.
        text: the same for people; empty where there is no run to compare with.
    """

    new: bool
    text: str


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What differs from the last earlier run that has results.

    Attributes:
        fixed: tests that failed there and pass now.
        gone: tests that failed there and do not run now, by being skipped or by not being there.
    """

    fixed: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


def known(test: str, earlier: Sequence[EarlierRun]) -> Known:
    """What earlier runs, the newest first, say of a test that fails now."""
    runs = [run for run in earlier if run.outcomes is not None]
    failed = 0
    while failed < len(runs) and _outcome(runs[failed], test) in ("failed", "error"):
        failed += 1
    if not runs:
        return Known(new=True, text="")
    if failed:
        since = runs[failed - 1].record.started[:_DAY]
        if failed == len(runs):
            return Known(
                new=False, text=f"known: it failed in all {failed} earlier runs, since {since} at least"
            )
        return Known(new=False, text=f"known: it fails since {since}")
    last = {"passed": "passed", "skipped": "was skipped", None: "was not there"}[_outcome(runs[0], test)]
    return Known(new=True, text=f"new: it {last} in the last run, {runs[0].record.started[:_DAY]}")


def changes(tests: Sequence[TestOutcome], earlier: Sequence[EarlierRun]) -> Changes:
    """What no longer fails."""
    last = next((run.outcomes for run in earlier if run.outcomes is not None), None)
    if last is None:
        return Changes()
    now = {test.test: test.outcome for test in tests}
    failed = [test for test, outcome in last.items() if outcome in ("failed", "error")]
    return Changes(
        fixed=tuple(test for test in failed if now.get(test) == "passed"),
        gone=tuple(test for test in failed if now.get(test) in ("skipped", None)),
    )


def _outcome(run: EarlierRun, test: str) -> Outcome | None:
    return (run.outcomes or {}).get(test)
