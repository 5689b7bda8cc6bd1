"""The pytest plugin of a suite's processes: it selects tests, and keeps a journal of their outcomes.

This file is copied beside the tests and imported by the interpreter that is tested, which need not have
Cairn: it imports only the standard library and what pytest brings.

Each event is appended to a journal as a line of JSON before pytest goes on. So the journal of a process that
dies has the test that was running, and the outcomes before it. `CAIRN_SUITE_WORKER` names a JSON
file:

    journal     where to write
    only        the node ids to run; all that are collected where null
    finished    node ids that have an outcome already, and are not run again
    off         installed plugins of pytest that are not loaded, and the top module of each
    piece       null, or the part of the module that this shard runs: `tests`, its node ids; `others`, those
                of the module's other parts; `low` and `high`: of tests in neither list, those whose `place`
                is at or above `low` and below `high`
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # those who read a journal need no pytest, and a plan of shards is made without it
    import pytest

VARIABLE = "CAIRN_SUITE_WORKER"

_COUNTER = "cairn-collection"  # the plugin of `collection_plugin.py`, which lies beside this one

_ORDER: Mapping[str, dict[str, Any]] = {  # among other plugins, by `pytest.hookimpl`
    "pytest_collection_modifyitems": {"trylast": True},
    "pytest_runtest_setup": {"tryfirst": True},
    "pytest_sessionfinish": {"wrapper": True, "tryfirst": True},
}
_MOST_DETAIL = 4000  # characters of what failed
_MOST_OUTPUT = 2000  # characters of what the test wrote
_MOST_REASON = 300
_RANK = ("passed", "skipped", "failed", "error")  # a test's outcome is the worst of its phases

_SURROGATE = re.compile("[\ud800-\udfff]")

# Tests replace functions of `os`, and close files that are not theirs: these are the real ones, and the
# journal is opened anew for every line.
_open, _write, _close, _pid_of, _parent_of = os.open, os.write, os.close, os.getpid, os.getppid


def plain(text: str) -> str:
    """Make a text valid for every JSON reader: lone surrogates, such as of undecodable bytes, are escaped."""
    return text.encode(errors="backslashreplace").decode()


def json_line(value: Mapping[str, Any]) -> bytes:
    """Return a line of JSON that every reader accepts; see `plain`."""
    # In a string of JSON the backslash is one more.
    text = json.dumps(value, ensure_ascii=False)
    return _SURROGATE.sub(lambda surrogate: rf"\\u{ord(surrogate[0]):04x}", text).encode() + b"\n"


def place(test: str) -> float:
    """Return a number between 0 and 1 that depends only on a test's node id: the same on every machine."""
    return int.from_bytes(hashlib.sha256(test.encode()).digest()[:6], "big") / (1 << 48)


def pytest_configure(config: pytest.Config) -> None:
    """Register the worker, if the runner has set `CAIRN_SUITE_WORKER`."""
    if path := os.environ.get(VARIABLE):
        import pytest  # noqa: PLC0415 - it runs this

        # pytest would call each test passed, and run none.
        if config.getoption("setuponly"):
            raise pytest.UsageError("--setup-only and --setup-plan run no test")
        # Set by an ini file or PYTEST_ADDOPTS; the options of the command line are refused before.
        if config.getoption("dist", "no") != "no":
            raise pytest.UsageError("pytest-xdist would run tests in processes that are not watched")
        for hook, order in _ORDER.items():
            pytest.hookimpl(**order)(getattr(Worker, hook))
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - as plain as a plugin of others can be
            config.pluginmanager.register(Worker(json.load(file)), "cairn-suite-worker")


class Worker:
    """Selects the tests of one pytest process, and keeps its journal."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._journal: str = options["journal"]
        self._only = None if options["only"] is None else frozenset(options["only"])
        self._finished = frozenset(options["finished"])
        piece = options["piece"]
        self._piece = piece and {**piece, **{key: frozenset(piece[key]) for key in ("tests", "others")}}
        self._off: dict[str, str] = options.get("off", {})
        self._pid, self._parent = _pid_of(), _parent_of()
        self._test: dict[str, Any] = {}
        self._awaits_report = False
        self._counter: Any = None  # the plugin that counts what is collected
        self._device: dict[int, int] = {}

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Write this process's id, since it may have to be ended, and the pytest and plugins that run."""
        loaded = (item[1] for item in session.config.pluginmanager.list_plugin_distinfo())
        plugins = sorted({f"{item.project_name} {item.version}" for item in loaded})
        self._tell(
            event="start", pid=self._pid, pytest=[f"pytest {sys.modules['pytest'].__version__}", *plugins]
        )

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Select tests after all other plugins."""
        selected: list[pytest.Item] = []
        deselected: list[pytest.Item] = []
        for item in items:
            (selected if self._runs(plain(item.nodeid)) else deselected).append(item)
        if deselected:
            config.hook.pytest_deselected(items=deselected)
            items[:] = selected

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Write which tests will run, how many were collected, and who deselected the others."""
        self._counter = session.config.pluginmanager.get_plugin(_COUNTER)
        tests = [item.nodeid for item in session.items]
        self._tell(event="collected", tests=tests, **self._counter.answer(session.items))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Write what could not be collected: a module that fails to import has no test to report it."""
        if report.failed:
            self._tell(event="broken", test=report.nodeid, **_why(report))
        elif report.skipped and report.nodeid:  # a module that skips itself
            self._tell(event="absent", test=report.nodeid, **_why(report))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Write which test begins; each attempt of a test that a plugin reruns may begin anew."""
        if nodeid != self._test.get("test"):
            self._end()
            self._device = _allocations()
            self._test = {"test": nodeid, "outcome": "", "reason": "", "detail": "", "seconds": 0.0}
            self._test |= {"runs": 0, "first": "", "overruled": ""}
        self._awaits_report = False
        self._tell(event="begin", test=nodeid)

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Count how often the test is run: other plugins may rerun it until it passes."""
        if item.nodeid == self._test.get("test"):
            self._test["runs"] += 1

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the report of one phase of a test, or of a part of it."""
        outcome = "error" if report.failed and report.when != "call" else report.outcome
        test = self._test
        if report.nodeid != test.get("test"):
            return
        if outcome not in _RANK:  # "rerun" of a plugin: what counts comes after it
            test["first"] = test["first"] or _why(report)["reason"]
            return
        test["seconds"] += report.duration
        test["overruled"] = test["overruled"] or _line(self._counter.overruled(report))
        if outcome == "passed" and report.when != "call":  # a test passes by what it did itself
            return
        if not test["outcome"] or _RANK.index(outcome) > _RANK.index(test["outcome"]):
            test["outcome"] = outcome
            test |= _why(report) if outcome != "passed" else {"reason": "", "detail": ""}

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Write the outcome of the test, and its device."""
        # flaky, and pytest-rerunfailures from 16.6.1, finish each attempt, and report the last one alone.
        self._awaits_report = not self._test.get("outcome")
        if not self._awaits_report:
            self._end()
        if _parent_of() != self._parent and _pid_of() == self._pid:
            self._parent = _parent_of()
            self._tell(event="orphaned", test=nodeid)

    def _end(self) -> None:
        """Write the end of the test that was begun, if there is one."""
        if not self._test:
            return
        device = _used(self._device, _allocations())
        if not self._test["outcome"]:  # a plugin of others took the test away without a report
            self._test |= {"outcome": "error", "reason": "the test ended without a report"}
        self._tell(event="end", device=device, **self._test)
        self._test = {}

    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        """Write that pytest finished, after all other plugins have run."""
        if self._awaits_report:
            self._end()
        result = yield
        self._tell(
            event="finish",
            exit=int(session.exitstatus),
            stopped=str(session.shouldfail or session.shouldstop or ""),
            needed=self._needed(session),
            hooks=self._counter.hooks() if self._counter else [],
        )
        return result

    def _needed(self, session: pytest.Session) -> list[str]:
        """Return the plugins that are off, and that the tests import, or whose mark they have."""
        lines = session.config.getini("markers")
        registered = {line.partition(":")[0].partition("(")[0].strip() for line in lines}
        marks = {mark.name for item in session.items for mark in item.iter_markers()} - registered
        plugins = session.config.pluginmanager.get_plugins()
        loaded = {getattr(plugin, "__name__", "").partition(".")[0] for plugin in plugins}
        imported = sys.modules.keys() - self._counter.early - loaded
        return sorted(name for name, module in self._off.items() if module in imported or name in marks)

    def _runs(self, test: str) -> bool:
        if test in self._finished or (self._only is not None and test not in self._only):
            return False
        if self._piece is None or test in self._piece["tests"]:
            return True
        return test not in self._piece["others"] and self._piece["low"] <= place(test) < self._piece["high"]

    def _tell(self, **event: Any) -> None:  # noqa: ANN401 - JSON
        # A test that forks and does not end its child leaves a second pytest; what that does is not ours.
        if _pid_of() != self._pid:
            return
        data = json_line(event)
        file = _open(
            self._journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666
        )
        try:
            while data:
                data = data[_write(file, data) :]
        finally:
            _close(file)


def _why(report: pytest.CollectReport | pytest.TestReport) -> dict[str, str]:
    """Return the line with the reason, and the full text."""
    if isinstance(report.longrepr, tuple):  # of a skip: file, line, reason
        return {"reason": _line(report.longrepr[2].removeprefix("Skipped: ")), "detail": ""}
    if reason := getattr(report, "wasxfail", ""):
        return {"reason": _line(f"expected to fail: {reason}"), "detail": ""}
    text = report.longreprtext
    crash = getattr(report.longrepr, "reprcrash", None)
    message = crash.message if crash is not None else next(iter(reversed(text.strip().splitlines())), "")
    sections = "".join(f"\n--- {name} ---\n{content[-_MOST_OUTPUT:]}" for name, content in report.sections)
    detail = text if len(text) <= _MOST_DETAIL else f"…{text[-_MOST_DETAIL:]}"
    return {"reason": _line(message), "detail": detail + sections[-_MOST_DETAIL:]}


def _line(text: str) -> str:
    first = " ".join(next(iter(text.strip().splitlines()), "").split())
    return first if len(first) <= _MOST_REASON else f"{first[:_MOST_REASON]}…"


def _allocations() -> dict[int, int]:
    """Return the number of allocations on each GPU so far; empty if torch has not initialized one."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    try:
        if cuda is None or not cuda.is_initialized():
            return {}
        count = "allocation.all.allocated"  # it only grows; `reset_accumulated_memory_stats` sets it to 0
        return {device: cuda.memory_stats(device).get(count, 0) for device in range(cuda.device_count())}
    except Exception:  # noqa: BLE001 - a GPU that hangs or is gone raises all sorts; the test will say it
        return {}


def _used(before: Mapping[int, int], after: Mapping[int, int]) -> str:
    """Return the names of the GPUs with allocations in between, each once: `gfx942`, or `sm_90` for CUDA."""
    used = [device for device, count in after.items() if count != before.get(device, 0)]
    if not used:
        return ""
    names = []
    for device in used:
        properties = sys.modules["torch"].cuda.get_device_properties(device)
        gfx = getattr(properties, "gcnArchName", "").partition(":")[0]
        names.append(gfx if gfx.startswith("gfx") else f"sm_{properties.major}{properties.minor}")
    return ", ".join(dict.fromkeys(names))
