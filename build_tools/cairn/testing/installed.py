"""Smoke tests of whatever is installed beside us: no set, no index, no new environment."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cairn.errors import TestsFailedError, UsageError
from cairn.output import Progress
from cairn.targets import CPU
from cairn.testing import gpus as testing_gpus
from cairn.testing import junit, pytest_runs
from cairn.testing.junit import JUnit
from cairn.testing.pytest_runs import Session
from cairn.testing.verdict import Judgement, judge


@dataclass(frozen=True, kw_only=True)
class HereResult:
    """What came of it: the verdict, and the results where the run left any."""

    judgement: Judgement
    outcome: JUnit | None


def run_here(
    tests: Path,
    arguments: tuple[str, ...],
    *,
    timeout: float = 3600.0,
    on_line: Progress | None = None,
) -> HereResult:
    """Run a folder of tests in this interpreter's own environment.

    They run from a copy, in a process of its own, so that no source tree on the way is imported in place of
    what is installed.

    Raises:
        UsageError: there are no such tests.
    """
    if not tests.is_dir():
        raise UsageError(f"there are no smoke tests at {tests}")
    with tempfile.TemporaryDirectory(prefix="cairn-smoke-") as folder:
        work = Path(folder)
        copy = work / "tests" / tests.name
        shutil.copytree(tests, copy, ignore=shutil.ignore_patterns("__pycache__", ".*"))
        session = Session(
            folder=work / "run",
            tests=copy,
            junit=work / "junit.xml",
            arguments=arguments,
            variables=dict(os.environ),
            timeout=timeout,
            log=work / "log",
        )
        ended = pytest_runs.run_beside(session, on_line)
        outcome, problem = _read(session.junit)
    return HereResult(judgement=_judge(outcome, ended.exit_code, ended.problem or problem), outcome=outcome)


def _judge(outcome: JUnit | None, exit_code: int, problem: str) -> Judgement:
    gpus = testing_gpus.visible(testing_gpus.seen(), os.environ.get("ROCR_VISIBLE_DEVICES"))
    # There is no set to say what the wheels are for, so what is here is what was meant.
    found = judge(outcome, exit_code=exit_code, targets=gpus or (CPU,), hardware=gpus)
    return Judgement(verdict=found.verdict, reason=problem) if problem and outcome is None else found


def _read(path: Path) -> tuple[JUnit | None, str]:
    try:
        return junit.read(path), ""
    except TestsFailedError as error:
        return None, str(error)
