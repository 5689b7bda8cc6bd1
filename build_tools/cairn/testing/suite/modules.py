"""Run all tests of a module: continue after one that ends its process, and retry those that failed.

The results of a module are trusted if three sources agree: our journal, which has every test that began,
pytest's own JUnit XML, and the exit code. A contradiction is a problem of the run, and no number of passed
tests makes up for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import structs

from cairn.errors import TestsFailedError
from cairn.testing import junit, record
from cairn.testing.junit import Outcome, TestOutcome
from cairn.testing.record import Deselected
from cairn.testing.suite import attempt
from cairn.testing.suite.attempt import Ended, Journal, Setup
from cairn.testing.suite.shards import Piece

_MOST_RETRIED = 200  # failures of one module; beyond that it is not chance
_MOST_DEATHS = 2  # of one test; beyond that it is not chance either
_FAILED = 1  # exit codes of pytest: https://docs.pytest.org, "Exit codes"
_INTERRUPTED = 2
_NOTHING_COLLECTED = 5
_WORST: tuple[Outcome, ...] = ("passed", "skipped", "failed", "error")


@dataclass
class ModuleRun:
    """The results of a module, or of a part of it.

    Attributes:
        outcomes: by node id; also of the module itself if something went wrong outside its tests.
        collected: the node ids that were to run here.
        whole: how many tests of the module pytest collected, before any was deselected.
        gone: how many were deselected, and by what.
        problems: why the run itself cannot be trusted, a sentence each.
        finished: the last process came to its end, or ended by what a test or the module is blamed for; the
            time was not over before that.
        stuck: a process could not be ended, so nothing more can be run on its GPU.
        slow: the tests that ran out of time.
        deaths: how often each test, or the module, ended its process otherwise.
        journals: the journal of each process.
        results: the JUnit XML of each process that can be read.
        pytest: name and version of pytest and of the plugins that it loaded.
        hooks: what else decided which tests ran and how they ended; see `collection_plugin`.
    """

    outcomes: dict[str, TestOutcome] = field(default_factory=dict)
    collected: tuple[str, ...] = ()
    whole: int = 0
    gone: tuple[Deselected, ...] = ()
    problems: list[str] = field(default_factory=list)
    finished: bool = False
    stuck: bool = False
    slow: set[str] = field(default_factory=set)
    deaths: Counter[str] = field(default_factory=Counter)
    journals: list[bytes] = field(default_factory=list)
    results: list[bytes] = field(default_factory=list)
    pytest: tuple[str, ...] = ()
    hooks: dict[str, None] = field(default_factory=dict)


def run(setup: Setup, piece: Piece, *, retries: int) -> ModuleRun:
    """Run a module, or a part of one, and retry failed tests in a new process, up to `retries` times.

    A test that passes then is `flaky`, and counts as passed. One that ran out of time is not tried again, nor
    one that has ended its process twice: it has failed.
    """
    whole = _go_through(setup, piece, only=None)
    collected = frozenset(whole.collected)
    for _ in range(retries):
        again = [
            test
            for test, outcome in whole.outcomes.items()
            if outcome.failed and test in collected - whole.slow and whole.deaths[test] < _MOST_DEATHS
        ]
        if not again or len(again) > _MOST_RETRIED or whole.stuck or setup.over or setup.lost:
            break
        second = _go_through(setup, piece, only=again)
        whole.slow |= second.slow
        whole.deaths += second.deaths
        for test in again:
            if test in second.outcomes:
                whole.outcomes[test] = _together(whole.outcomes[test], second.outcomes[test])
        # Whatever else happens now has happened to a part of the tests, and is not of this module: it
        # counts all the same.
        for test in second.outcomes.keys() - set(again):
            whole.outcomes.setdefault(test, second.outcomes[test])
        whole.problems += second.problems
        whole.finished = whole.finished and second.finished
        whole.journals += second.journals
        whole.results += second.results
        whole.hooks |= second.hooks
        whole.stuck = second.stuck
    return whole


def _together(first: TestOutcome, second: TestOutcome) -> TestOutcome:
    """Combine the outcomes of two attempts."""
    seconds, attempts = first.seconds + second.seconds, first.attempts + second.attempts
    if second.outcome == "passed":
        return structs.replace(
            first,
            outcome="passed",
            flaky=True,
            device=second.device or first.device,
            seconds=seconds,
            attempts=attempts,
        )
    last = second if second.failed else first  # a test that skips itself the second time has failed
    return structs.replace(last, seconds=seconds, attempts=attempts)


def _go_through(setup: Setup, piece: Piece, *, only: Collection[str] | None) -> ModuleRun:
    """Run the tests, in as many processes as it takes."""
    result = ModuleRun()
    while True:
        ended = attempt.run(
            setup, piece.module, only=only, finished=result.outcomes, piece=piece.for_worker()
        )
        journal = ended.journal
        result.collected = result.collected or journal.selected or ()
        result.whole = result.whole or journal.collected
        result.gone = result.gone or record.with_origins(journal.gone, setup.arguments, setup.uncollected)
        result.stuck, result.pytest = ended.stuck, journal.pytest or result.pytest
        result.hooks |= journal.hooks
        result.journals.append(bytes(journal.text))
        result.results += _readable(ended.junit)
        before = len(result.outcomes)
        for outcome in (*journal.broken, *journal.absent, *journal.outcomes.values()):
            result.outcomes[outcome.test] = outcome
        blamed = _blamed(ended, piece.module)
        if blamed is not None:
            result.outcomes[blamed.test] = blamed
            result.slow.update([blamed.test] if ended.killed else [])
            result.deaths.update([] if ended.killed else [blamed.test])
        # Of all that the first process was to run: a later one may no longer collect some of it.
        left = [
            test for test in dict.fromkeys((*result.collected, *journal.left)) if test not in result.outcomes
        ]
        whole = journal.exit is not None and blamed is None
        stopped = ended.stuck or setup.over or setup.lost
        if left and len(result.outcomes) > before and not (whole or stopped):
            continue
        cut_short = left and stopped
        result.finished = not cut_short and (whole or blamed is not None)
        problems = _disagreements(ended) if whole else []
        if left:
            problems.append(f"{len(left)} tests did not run: {_why_left(setup, ended)}")
        elif not result.finished:
            problems.append(f"the time was over {_where(journal)}")
        result.problems = [f"{piece.module}: {problem}" for problem in problems]
        return result


def _why_left(setup: Setup, ended: Ended) -> str:
    if ended.stuck:
        return "a process could not be ended; is the GPU still well?"
    if setup.lost:
        return f"a test removed {setup.lost}"
    return "the time was over" if setup.over else ended.journal.stopped or f"pytest ended with {ended.how}"


def _blamed(ended: Ended, module: str) -> TestOutcome | None:
    """Return a failure of the test that ended its process, or of the module if no test was running."""
    journal = ended.journal
    if ended.killed.startswith("the time of the whole"):
        return None
    if test := journal.orphaned_by:
        return TestOutcome(test=test, outcome="error", reason="it ended the process above it")
    if test := journal.running:
        why = ended.killed or f"it ended its process: {ended.how}"
        return TestOutcome(test=test, outcome="error", reason=why, detail=ended.output)
    if ended.killed:
        reason = f"{ended.killed}, {_where(journal)}"
    # A conftest.py can have pytest finish with an exit code of its choice before there is any test.
    elif journal.selected is None or journal.exit is None or journal.exit != ended.exit_code:
        reason = f"pytest ended with {ended.how} {_where(journal)}"
    else:
        return None
    return TestOutcome(test=module, outcome="error", reason=reason, detail=ended.output)


def _where(journal: Journal) -> str:
    return "before its tests were collected" if journal.selected is None else "outside of any test"


def _disagreements(ended: Ended) -> list[str]:
    """Return contradictions between exit code, journal and JUnit XML of a process that finished."""
    journal, code = ended.journal, ended.exit_code
    needed = ", ".join(journal.needed)
    ends = (*journal.broken, *journal.absent, *journal.outcomes.values())
    failed = sum(outcome.failed and outcome.test not in journal.skipped_again for outcome in ends)
    problems = (
        [f"its tests use pytest's plugin {needed}, which `plugins` of suite.toml lacks"] if needed else []
    )
    if code not in (0, _FAILED, _NOTHING_COLLECTED) and not (code == _INTERRUPTED and journal.broken):
        problems.append(f"pytest ended with {ended.how}")
    elif (code in (0, _NOTHING_COLLECTED)) != (failed == 0):
        problems.append(f"pytest ended with {ended.how}, and {failed} of its tests failed")
    try:
        in_xml = Counter(junit.read(ended.junit).by_test.values())
    except TestsFailedError as error:
        problems.append(str(error))
    else:
        counted = Counter(outcome.outcome for outcome in ends)
        if in_xml != counted:
            problems.append(f"its JUnit XML has {_counts(in_xml)}, and {_counts(counted)} were seen")
    return problems


def _readable(path: Path) -> list[bytes]:
    try:
        data = path.read_bytes()
        junit.loads(data, name=path.name)
    except (OSError, TestsFailedError):
        return []
    return [data]


def _counts(counter: Counter[Outcome]) -> str:
    return ", ".join(f"{counter[outcome]} {outcome}" for outcome in _WORST if counter[outcome]) or "no test"
