"""The two runs of pytest that make a smoke test: the built-in checks, and the stack's own tests."""

from __future__ import annotations

import importlib.resources
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cairn import jsonfile
from cairn.errors import TestsFailedError
from cairn.testing import facts as smoke_facts
from cairn.testing import junit, runner
from cairn.testing.environment import Environment
from cairn.testing.facts import SmokeFacts
from cairn.testing.junit import JUnit
from cairn.testing.runner import Ended, Session


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Where the runs take place, and what they have in common.

    Attributes:
        work_dir: holds the folder of each run.
        variables: the whole environment of every program.
        timeout: seconds for each run.
        log: receives the output of every program.
        on_line: called with each line of output.
    """

    work_dir: Path
    variables: Mapping[str, str]
    timeout: float
    log: Path
    on_line: Callable[[str], None] | None = None


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of pytest, ended and read.

    Attributes:
        exit_code: pytest's, -1 when it had to be killed.
        outcome: its results; None when it left none that can be believed.
        problem: why there are none, or why it was killed; empty otherwise.
        junit: its JUnit XML.
    """

    exit_code: int
    outcome: JUnit | None
    problem: str
    junit: Path


def run_builtin(bench: Bench, facts: SmokeFacts) -> Run:
    """Run the checks that hold for any stack, from outside the environment."""
    path = bench.work_dir / "facts.json"
    jsonfile.write(path, facts)
    variables = {**bench.variables, smoke_facts.VARIABLE: str(path)}
    session = _session(bench, "builtin", variables)
    checks = importlib.resources.files("cairn.testing").joinpath("builtin_smoke")
    with importlib.resources.as_file(checks) as folder:
        _copy_tests(folder, session.tests)
    return _read(session, runner.run_beside(session, bench.on_line))


def run_stack(
    bench: Bench, environment: Environment, tests: Sequence[Path], arguments: tuple[str, ...]
) -> Run:
    """Run a stack's own tests inside the environment, from a copy: the source tree must not be imported."""
    tools = bench.work_dir / "pytest"
    runner.copy_pytest(tools)
    session = _session(bench, "stack", bench.variables, arguments)
    for number, source in enumerate(tests):
        _copy_tests(source, session.tests / (source.stem if len(tests) == 1 else f"{source.stem}_{number}"))
    return _read(session, runner.run_inside(environment.python, tools, session, bench.on_line))


def _session(
    bench: Bench, name: str, variables: Mapping[str, str], arguments: tuple[str, ...] = ()
) -> Session:
    folder = bench.work_dir / name
    return Session(
        folder=folder / "run",
        tests=folder / name,
        junit=folder / "junit.xml",
        arguments=arguments,
        variables=variables,
        timeout=bench.timeout,
        log=bench.log,
    )


def _copy_tests(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    else:
        target.mkdir(parents=True)
        shutil.copy2(source, target / source.name)


def _read(session: Session, ended: Ended) -> Run:
    outcome: JUnit | None = None
    problem = ended.problem
    try:
        outcome = junit.read(session.junit)
    except TestsFailedError as error:
        problem = problem or str(error)
    return Run(exit_code=ended.exit_code, outcome=outcome, problem=problem, junit=session.junit)
