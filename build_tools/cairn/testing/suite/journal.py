"""Reading the journal of a process of pytest while it is written."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from cairn import datafile
from cairn.testing.junit import LONGEST, Outcome, TestOutcome
from cairn.testing.record import Deselected


class _Event(datafile.Value, forbid_unknown_fields=False):
    """A line of the journal; see `worker` for what each event says."""

    event: str
    test: str = ""
    tests: tuple[str, ...] = ()
    collected: int = 0
    gone: tuple[Deselected, ...] = ()
    outcome: Outcome = "error"
    reason: str = ""
    detail: str = ""
    device: str = ""
    seconds: float = 0.0
    runs: int = 1
    first: str = ""
    exit: int = 0
    failed: int = 0
    stopped: str = ""
    pid: int = 0


class Journal:
    """The events of one process so far.

    Attributes:
        selected: the node ids that it was to run, in its order; None until they were collected.
        collected: how many there were before any was deselected.
        gone: how many were deselected, and by what.
        outcomes: of the tests that ended.
        broken: of modules that could not be collected.
        absent: of modules that skipped themselves.
        running: the test that has begun and not ended; empty for none.
        orphaned_by: the test that ended the process above pytest; empty for none.
        exit: the code that pytest was about to exit with; None unless it came to its end.
        failures: how many of its tests failed as pytest counts them.
        stopped: why pytest ended before its last test, such as for `-x`.
        pid: of pytest; 0 until it has begun.
        events: how many were read; it grows as long as something happens.
        every: each end of a test or module, those of one that ran again too.
        text: all that was read.
    """

    def __init__(self, path: Path) -> None:
        self.selected: tuple[str, ...] | None = None
        self.collected = 0
        self.gone: tuple[Deselected, ...] = ()
        self.outcomes: dict[str, TestOutcome] = {}
        self.broken: list[TestOutcome] = []
        self.absent: list[TestOutcome] = []
        self.running = ""
        self.orphaned_by = ""
        self.exit: int | None = None
        self.failures = 0
        self.stopped = ""
        self.pid = 0
        self.events = 0
        self.every: list[TestOutcome] = []
        self.text = bytearray()
        self._path = path
        self._read = 0  # bytes

    def follow(self) -> None:
        """Take in what was written since the last time; a line that is not complete waits for the next."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                data = file.read()
        except FileNotFoundError:
            return
        whole = data.rpartition(b"\n")[0]
        if whole:
            self._read += len(whole) + 1
            self.text += whole + b"\n"
        for line in whole.splitlines():
            # A line cut off by a full disk, or written by a test: what it should have said is then missing.
            with contextlib.suppress(msgspec.DecodeError):
                self._take(datafile.decode(line, _Event))

    def _take(self, event: _Event) -> None:
        self.events += 1
        self.pid = event.pid or self.pid  # "start" says nothing else
        match event.event:
            case "collected":
                self.selected = tuple(dict.fromkeys(event.tests))
                self.collected, self.gone = event.collected, event.gone
            case "broken":
                self.broken.append(_outcome(event, "error"))
                self.every.append(self.broken[-1])
            case "absent":
                self.absent.append(_outcome(event, "skipped"))
            case "begin":
                self.running = event.test
            case "end":
                self.running = ""
                ended, before = _outcome(event, event.outcome), self.outcomes.get(event.test)
                self.every.append(ended)
                self.outcomes[event.test] = _worse(before, ended) if before else ended
            case "orphaned":
                self.orphaned_by = event.test
            case "finish":
                self.exit, self.failures, self.stopped = event.exit, event.failed, event.stopped

    @property
    def left(self) -> tuple[str, ...]:
        """The selected tests that have no outcome, the one that is running among them."""
        return tuple(test for test in self.selected or () if test not in self.outcomes)


def _worse(first: TestOutcome, second: TestOutcome) -> TestOutcome:
    """What became of a test that a plugin had run twice, as if it were two: the worse of both."""
    bad = second if second.failed and not first.failed else first
    return msgspec.structs.replace(
        bad, seconds=first.seconds + second.seconds, attempts=first.attempts + second.attempts
    )


def _outcome(event: _Event, outcome: Outcome) -> TestOutcome:
    # A test may have replaced the clock that pytest looks at.
    seconds = event.seconds if 0 <= event.seconds < LONGEST else 0.0
    again = event.runs > 1 and outcome == "passed"  # a plugin has run it until it passed
    return TestOutcome(
        test=event.test,
        outcome=outcome,
        reason=(event.first or "a plugin ran it again") if again else event.reason,
        seconds=seconds,
        attempts=max(event.runs, 1),
        flaky=again,
        detail=event.detail,
        device=event.device,
    )
