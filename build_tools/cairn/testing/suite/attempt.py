"""Run one pytest process: start it, follow its journal, and end it if a test hangs.

pytest's parent is a process that only waits for it, and whose parent we are: a test that kills its parent
ends that process, and we go on. Timeouts are measured between events of the journal, by our own clock:
neither a test that sets the system clock, nor one that holds the interpreter in C code, can stop it.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import sys
import threading
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from cairn import datafile, files, platforms, process
from cairn.errors import CairnError
from cairn.output import Progress, silent
from cairn.testing import junit
from cairn.testing.junit import LONGEST, Outcome, TestOutcome
from cairn.testing.record import Deselected
from cairn.testing.suite import worker
from cairn.testing.testing_options import Limits

_SUPERVISE = """
import subprocess, sys
code = subprocess.call(sys.argv[1:])
sys.exit(code if code >= 0 else 128 - code)
"""
# `-c` puts the working folder on the path, where it has no more to do than PYTHONPATH gives it.
_START = (
    "import json, sys; sys.path = sys.path[1:] + json.loads(sys.argv[1]); "
    "import pytest; sys.exit(pytest.main(sys.argv[2:]))"
)
_LOOK = 0.1  # seconds between two looks at the journal
_UNKILLABLE = 30.0  # seconds that a killed process may take to be gone
_DUMP = 0.9  # of a test's time, after which Python says where it is
_TAIL = 60  # lines of output that are kept of a process that died
_SIGNALS = 128  # shells and our supervisor add it to the number of a signal


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
    stopped: str = ""
    needed: tuple[str, ...] = ()
    hooks: tuple[str, ...] = ()
    pid: int = 0
    pytest: tuple[str, ...] = ()
    overruled: str = ""


class Journal:
    """The events of one pytest process so far, read while `worker` writes them.

    Attributes:
        selected: the node ids that it was to run, in its order; None until they were collected.
        collected: how many there were before any was deselected.
        gone: how many tests were deselected, and by what.
        outcomes: of the tests that ended.
        broken: of modules that could not be collected.
        absent: of modules that skipped themselves.
        running: the test that has begun and not ended; empty for none.
        orphaned_by: the test that ended the process above pytest; empty for none.
        exit: the code that pytest was about to exit with; None unless it came to its end.
        skipped_again: tests that failed, and were skipped when a plugin ran them again: pytest says skipped.
        needed: plugins of pytest that are off, and that the tests import, or whose mark they have.
        hooks: what else decided which tests ran and how they ended; see `collection_plugin`.
        stopped: why pytest ended before its last test, such as for `-x`.
        pid: of pytest; 0 until it has begun.
        pytest: name and version of pytest and of the plugins that it loaded.
        events: how many were read; it grows as long as something happens.
        every: each end of a test or module, those of one that ran again too.
        ever_selected: what any process of a journal of several was to run.
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
        self.skipped_again: set[str] = set()
        self.stopped = ""
        self.needed: tuple[str, ...] = ()
        self.hooks: dict[str, None] = {}
        self.pid = 0
        self.pytest: tuple[str, ...] = ()
        self.events = 0
        self.every: list[TestOutcome] = []
        self.ever_selected: dict[str, None] = {}
        self.text = bytearray()
        self._path = path
        self._read = 0  # bytes

    def follow(self) -> None:
        """Read what was written since the last call; an incomplete line is left for the next one."""
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
        self.hooks |= dict.fromkeys(event.hooks)
        self.pid, self.pytest = (
            event.pid or self.pid,
            event.pytest or self.pytest,
        )  # "start" says nothing else
        match event.event:
            case "collected":
                self.selected = tuple(dict.fromkeys(event.tests))
                self.ever_selected |= dict.fromkeys(event.tests)
                self.collected, self.gone = event.collected, event.gone
            case "broken":
                self.broken.append(_outcome(event, "error"))
                self.every.append(self.broken[-1])
            case "absent":
                self.absent.append(_outcome(event, "skipped"))
            case "begin":
                self.running = event.test
            case "end":
                self._end(event)
            case "orphaned":
                self.orphaned_by = event.test
            case "finish":
                self.exit, self.stopped = event.exit, event.stopped
                self.needed = event.needed

    def _end(self, event: _Event) -> None:
        self.running = ""
        ended, before = _outcome(event, event.outcome), self.outcomes.get(event.test)
        self.every.append(ended)
        if event.outcome == "skipped" and ended.failed:
            self.skipped_again.add(event.test)
        self.outcomes[event.test] = _worse(before, ended) if before else ended

    @property
    def left(self) -> tuple[str, ...]:
        """The selected tests that have no outcome, the one that is running among them."""
        return tuple(test for test in self.selected or () if test not in self.outcomes)


def _worse(first: TestOutcome, second: TestOutcome) -> TestOutcome:
    """Return the worse of two outcomes of a test that a plugin ran twice."""
    bad = second if second.failed and not first.failed else first
    return structs.replace(
        bad, seconds=first.seconds + second.seconds, attempts=first.attempts + second.attempts
    )


def _outcome(event: _Event, outcome: Outcome) -> TestOutcome:
    # A test may have replaced the clock that pytest looks at.
    seconds = event.seconds if 0 <= event.seconds < LONGEST else 0.0
    passed = outcome == "passed"
    again = event.runs > 1 and passed  # a plugin has run it until it passed
    test = TestOutcome(
        test=event.test,
        outcome=outcome,
        reason=event.overruled or (event.first or "a plugin ran it again" if again else event.reason),
        overruled=outcome in ("passed", "skipped") and bool(event.overruled),
        seconds=seconds,
        attempts=max(event.runs, 1),
        flaky=again,
        detail=event.detail,
        device=event.device,
    )
    return junit.failed_before(test) if event.runs > 1 and outcome == "skipped" else test


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that all processes of a suite have in common.

    Attributes:
        python: the interpreter that is tested.
        tests: the copied folder of tests, in which pytest runs.
        config: pytest's configuration file.
        work_dir: holds the journals and the results of each process.
        plugins: the folder with the plugins, and further ones that hold what pytest needs; they come last on
            the path.
        off: installed plugins of pytest that are not loaded, and the top module of each.
        uncollected: classes whose tests may be missing; see `suite_toml.Suite`.
        plugin_names: further plugins of pytest, by their modules in `plugins` or their entry points.
        variables: the whole environment.
        arguments: the user's, for pytest.
        network: whether they have it.
        limits: of time.
        deadline: when the whole must be over, as `time.monotonic` counts; None for never.
        log: receives what the processes write.
        on_line: called with what is being done.
    """

    python: Path
    tests: Path
    config: Path
    work_dir: Path
    plugins: tuple[Path, ...]
    plugin_names: tuple[str, ...]
    variables: Mapping[str, str]
    arguments: tuple[str, ...] = ()
    off: Mapping[str, str] = msgspec.field(default_factory=dict)
    uncollected: tuple[str, ...] = ()
    network: bool = False
    limits: Limits = msgspec.field(default_factory=Limits)
    deadline: float | None = None
    log: Path
    on_line: Progress = silent

    @property
    def lost(self) -> str:
        """What the run needs and a test has removed; empty while all of it is there."""
        needed = (self.python, self.tests, self.config, *self.plugins)
        return next((str(path) for path in needed if not path.exists()), "")

    @property
    def over(self) -> bool:
        """Whether the time for the whole run has run out."""
        return self.deadline is not None and time.monotonic() >= self.deadline


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """A pytest process that has ended, or was abandoned.

    Attributes:
        journal: its events.
        exit_code: what it exited with; 128 and more is a signal.
        killed: why we ended it, such as "did not end within 900 seconds"; empty where we did not.
        output: the end of its output.
        stuck: it could not be ended, since it waits in the kernel, such as for a GPU that does not answer.
        junit: the results that pytest wrote, if it did.
    """

    journal: Journal
    exit_code: int
    killed: str
    output: str
    stuck: bool
    junit: Path

    @property
    def how(self) -> str:
        """How the process ended, in words."""
        number = self.exit_code - _SIGNALS if self.exit_code > _SIGNALS else -self.exit_code
        with contextlib.suppress(ValueError):
            return f"signal {number} ({signal.Signals(number).name})"
        return f"exit code {self.exit_code}"


def run(
    setup: Setup,
    module: str,
    *,
    only: Collection[str] | None = None,
    finished: Collection[str] = (),
    piece: Mapping[str, Any] | None = None,
) -> Ended:
    """Run a module, or a part of it, in a separate process; see `worker` for `only`, `finished`, `piece`.

    Raises:
        PrerequisiteError: there is no such interpreter.
        OSError: its output cannot be written.
    """
    number = sum(1 for _ in setup.work_dir.glob("process-*"))
    folder = setup.work_dir / f"process-{number:05}"
    folder.mkdir(parents=True)
    journal = Journal(folder / "journal.jsonl")
    options: dict[str, object] = {
        "journal": str(folder / "journal.jsonl"),
        "only": None if only is None else sorted(only),
        "finished": sorted(finished),
        "piece": piece,
        "off": dict(setup.off),
    }
    files.write_text(folder / "worker.json", json.dumps(options))
    junit = folder / "junit.xml"
    command = [
        *(sys.executable, "-I", "-S", "-c", _SUPERVISE),
        *(setup.python, "-c", _START, json.dumps([str(folder) for folder in setup.plugins])),
        *(f"--config-file={setup.config}", f"--rootdir={setup.tests}", f"--basetemp={folder / 'tmp'}"),
        *(
            option
            for name in (worker.__name__.rpartition(".")[2], *setup.plugin_names)
            for option in ("-p", name)
        ),
        *("-q", "--tb=short", "--color=no", "-o", f"faulthandler_timeout={setup.limits.test * _DUMP:g}"),
        *setup.arguments,
        # Ours come last: the user's own must not send the results elsewhere.
        *("-o", "junit_family=xunit1", f"--junit-xml={junit}", setup.tests / module),
    ]
    variables = {**setup.variables, worker.VARIABLE: str(folder / "worker.json")}
    settings = {"cwd": setup.tests, "env": variables, "log": setup.log, "writes": [setup.work_dir.parent]}
    running = _Running(command, network=setup.network, **settings)
    try:
        killed = _watch(setup, module, running, journal)
    finally:
        running.end(f"{worker.VARIABLE}={folder / 'worker.json'}", journal.pid)
    if running.error is not None and not killed:  # no such interpreter, or a disk without room for the log
        raise running.error
    journal.follow()
    shutil.rmtree(folder / "tmp", ignore_errors=True)
    return Ended(
        journal=journal,
        exit_code=running.exit_code,
        killed=killed,
        output="\n".join(process.tail(running.output, _TAIL)),
        stuck=running.is_alive(),
        junit=junit,
    )


def _watch(setup: Setup, module: str, running: _Running, journal: Journal) -> str:
    """Wait for a process; return why it must be ended, or an empty text if it ended by itself."""
    events, since = -1, time.monotonic()
    while running.is_alive():
        running.join(_LOOK)
        journal.follow()
        if journal.events != events:
            events, since = journal.events, time.monotonic()
            setup.on_line(_progress(module, journal))
        if journal.orphaned_by:
            return "ended the process above it"
        if setup.over:
            return "the time of the whole run was over"
        limit = setup.limits.collection if journal.selected is None else setup.limits.test
        if time.monotonic() - since > limit:
            return f"did not end within {limit:g} seconds"
    return ""


def _progress(module: str, journal: Journal) -> str:
    if journal.selected is None:
        return f"{module}: collecting"
    failed = sum(outcome.failed for outcome in journal.outcomes.values())
    progress = f"{module}: {len(journal.outcomes)} of {len(journal.selected)}"
    return f"{progress}, {failed} failed" if failed else progress


class _Running(threading.Thread):
    """A program in the background that can be abandoned if even killing it does not end it."""

    def __init__(self, command: list[Any], **options: Any) -> None:  # noqa: ANN401 - those of `process.run`
        # A daemon, so that Cairn can end although a process hangs in the kernel.
        super().__init__(daemon=True)
        self.exit_code, self.output = -1, ""
        self.error: Exception | None = None
        self._group = process.Group()
        self._command, self._options = command, options
        self.start()

    def run(self) -> None:
        """Run the program, in this thread."""
        self._group.join()
        try:
            completed = process.run(self._command, check=False, **self._options)
            self.exit_code, self.output = completed.returncode, completed.output
        except (CairnError, OSError) as error:
            self.error = error

    def end(self, mark: str, pytest: int) -> None:
        """End the program and all its children, and wait a limited time until they are gone.

        Pytest is killed by `mark`, which is among its variables: a test may have called setsid() in it, so
        that it left the group. `pytest` is what it calls its id, which any test can write into the journal.
        """
        if pytest and self.is_alive():
            platforms.here.kill_marked(mark, pytest)
        self._group.end()
        self.join(_UNKILLABLE)
