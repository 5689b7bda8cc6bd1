"""A plugin of pytest that says every few seconds how far a run is, and how long it still takes."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

TIMES = Path(__file__).resolve().parents[2] / ".cairn" / "test-times.json"
# Seconds that a test takes of which no time is known yet, by its folder.
ABOUT = {"tests/e2e/": 20.0, "tests/integration/": 1.0, "tests/unit/": 0.06}
INTERVAL = 10.0  # seconds between two lines


class Progress:
    """Counts the tests that have ended, each with the seconds that it took the last time."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self.terminal = terminal
        self.times: dict[str, float] = json.loads(TIMES.read_text()) if TIMES.exists() else {}
        self.expected: dict[str, float] = {}
        self.taken: dict[str, float] = {}
        self.ended: set[str] = set()
        self.failed = 0
        self.workers = 1
        self.began = self.shown = time.monotonic()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Without workers: what there is to run."""
        self.expect([item.nodeid for item in session.items])

    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """With workers, which have all collected the same."""
        self.workers = self.terminal.config.getoption("numprocesses")
        self.expect(ids)

    def expect(self, names: Sequence[str]) -> None:
        """Note the seconds that each of these tests takes, as far as is known."""
        for name in names:
            about = next((seconds for folder, seconds in ABOUT.items() if name.startswith(folder)), 1.0)
            self.expected[name] = self.times.get(_plain(name), about)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a part of a test; its tear-down is the last."""
        name = _plain(report.nodeid)
        if report.failed:
            self.failed += 1
            self.terminal.write_line(f"  failed: {name}")
        self.taken[name] = self.taken.get(name, 0.0) + report.duration
        if report.when == "teardown":
            self.ended.add(report.nodeid)
        if time.monotonic() - self.shown > INTERVAL:
            self.shown = time.monotonic()
            self.terminal.write_line(self.line())

    def line(self) -> str:
        """`  2,310 of 8,120 tests, 1 failed, 3 min, about 4 min left`."""
        elapsed = time.monotonic() - self.began
        done = sum(self.expected.get(name, 0.0) for name in self.ended)
        left = sum(self.expected.values()) - done
        # Once a tenth is done, this machine's own speed tells more than the times of before.
        seconds = left * elapsed / done if done > left / 9 else left / self.workers
        failed = f", {self.failed} failed" if self.failed else ""
        return (
            f"  {len(self.ended):,} of {len(self.expected):,} tests{failed}, "
            f"{elapsed / 60:.0f} min, about {seconds / 60:.0f} min left"
        )

    def pytest_sessionfinish(self) -> None:
        """Keep the times for the next run's estimate."""
        TIMES.parent.mkdir(exist_ok=True)
        part = TIMES.with_suffix(".part")
        times = self.times | {name: round(seconds, 2) for name, seconds in self.taken.items()}
        part.write_text(json.dumps(times))
        part.replace(TIMES)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """No letter for what passes: the line above stands for it."""
        return ("passed", "", "") if report.passed and report.when == "call" else None


def _plain(name: str) -> str:
    """A test's name without the group that pytest-xdist appends."""
    return name.rpartition("@")[0] if "@" in name.rpartition("::")[2] else name


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Show progress in the process that the person started, not in its workers."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(terminal), "cairn-progress")
