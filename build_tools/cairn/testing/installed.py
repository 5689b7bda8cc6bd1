"""Smoke tests of what is installed beside us: no set, no index, no new environment."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from cairn import isolation
from cairn.errors import UsageError
from cairn.output import Progress
from cairn.targets import CPU
from cairn.testing import pytest_runs
from cairn.testing.gpus import kernel
from cairn.testing.gpus.visible import visible_gpus
from cairn.testing.junit import JUnit
from cairn.testing.pytest_runs import Session
from cairn.testing.verdict import Judgement, judge


@dataclass(frozen=True, kw_only=True)
class InstalledResult:
    """The verdict, and the results where the run left any."""

    judgement: Judgement
    outcome: JUnit | None


def run_installed(
    tests: Path,
    arguments: tuple[str, ...],
    *,
    targets: tuple[str, ...] = (),
    timeout: float = 3600.0,
    on_line: Progress | None = None,
) -> InstalledResult:
    """Run a folder of tests in this interpreter's own environment.

    They run from a copy, in a process of its own, so that no source tree on the way is imported in place of
    what is installed.

    Args:
        tests: the folder.
        arguments: pytest's.
        targets: the hardware that they are to run on; none for whatever this machine has.
        timeout: seconds.
        on_line: called with each line of output.

    Raises:
        UsageError: there are no such tests.
    """
    if not tests.is_dir():
        raise UsageError(f"there are no smoke tests at {tests}")
    with tempfile.TemporaryDirectory(prefix="cairn-smoke-") as folder:
        work = Path(folder)
        (work / "home").mkdir()
        run = pytest_runs.run_beside(
            Session(
                folder=work / "session",
                tests={tests.name: tests},
                arguments=arguments,
                variables=isolation.variables(isolation.Isolation.TEST, work / "home"),
                timeout=timeout,
                log=work / "log",
                on_line=on_line,
            )
        )
    hardware = visible_gpus(kernel.seen(), os.environ.get("ROCR_VISIBLE_DEVICES"))
    # No set says what the wheels are for, so the GPUs of this machine count as the targets.
    judgement = judge(
        run.outcome,
        exit_code=run.exit_code,
        targets=targets or hardware or (CPU,),
        hardware=hardware,
        deselected=run.deselected,
    )
    if run.problem and run.outcome is None:
        judgement = replace(judgement, reason=run.problem)
    return InstalledResult(judgement=judgement, outcome=run.outcome)
