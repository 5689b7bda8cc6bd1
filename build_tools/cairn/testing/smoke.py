"""Smoke tests: a set, installed the way a user installs it, into an environment that has nothing else."""

from __future__ import annotations

import os
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from packaging.utils import canonicalize_name

from cairn import files, owned, venv
from cairn.errors import ProcessError, TestsFailedError, UsageError
from cairn.output import Progress
from cairn.targets import CPU
from cairn.testing import gpus as testing_gpus
from cairn.testing import junit, pytest_runs, record, smoke_facts
from cairn.testing.junit import JUnit
from cairn.testing.pytest_runs import Bench, Run
from cairn.testing.record import Skip, TestedWheel, TestRecord, Verdict
from cairn.testing.verdict import Judgement, judge
from cairn.venv import InstalledFile, Isolation, PackageSource, VirtualEnvironment
from cairn.wheels.wheelset import WheelSet

_SHOWN_FAILURES = 5
_INSTALL_TIMEOUT = 3600.0  # seconds; a real set with its ROCm libraries is several gigabytes
_FILES = ("facts.json", "junit.xml", "record.json", "smoke.log")
_FOLDERS = ("builtin", "pytest", "stack", "venv")
_PHRASES: Mapping[Verdict, str] = {
    "failed": "failed",
    "invalid": "prove nothing",
    "untested": "did not take place",
}


@dataclass(frozen=True, kw_only=True)
class SmokeRequest:
    """What to test, where to get it, and how.

    Attributes:
        wheel_set: the set; each of its files must be installed with exactly its bytes.
        work_dir: holds the environment, the log, the results and the record, which replace those of an
            earlier run; nothing else in it is touched.
        index_url: the only index; None where `find_links` has everything.
        find_links: folders or pages that pip looks into as well.
        requirements: installed too, such as `rocm[libraries]==7.10.0`.
        extra_wheels: likewise; a stack's own list of wheels that it does not build.
        smoke_tests: the stack's own tests, folders of pytest files.
        imports: distribution to the modules that must import; by default its top-level ones.
        siblings: distribution to the version that every requirement on it must pin; by default the set's own.
        environment: variables for the installation and the tests.
        python: the interpreter that the environment is made from; ours by default.
        pytest_args: further arguments for the stack's own tests.
        timeout: seconds for each of the two runs of pytest.
        floor: fewest tests that must have run.
        log: receives the output of every program; by default in `work_dir`.
        gpus: where the kernel describes the GPUs of the machine.
        devices: the wheels' ROCm can reach a GPU; where it cannot, the machine's GPUs count as absent.
    """

    wheel_set: WheelSet
    work_dir: Path
    index_url: str | None = None
    find_links: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()
    extra_wheels: tuple[str, ...] = ()
    smoke_tests: tuple[Path, ...] = ()
    imports: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    siblings: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    python: Path | None = None
    pytest_args: tuple[str, ...] = ()
    timeout: float = 1800.0
    floor: int = 1
    log: Path | None = None
    gpus: Path = testing_gpus.KFD_NODES
    devices: bool = True


@dataclass(frozen=True, kw_only=True)
class SmokeResult:
    """What came of it.

    Attributes:
        record: what was run on which bytes, and the verdict.
        record_path: the record as a file.
        junit_path: the results of every test; missing where the run left none.
        environment: the environment's folder.
        log: the output of every program.
        failures: the first tests that failed, with the reason.
    """

    record: TestRecord
    record_path: Path
    junit_path: Path
    environment: Path
    log: Path
    failures: tuple[str, ...] = ()


def run_smoke(request: SmokeRequest, *, on_line: Progress | None = None) -> SmokeResult:
    """Install a set into a fresh environment and test it; a verdict is returned, not raised.

    Raises:
        UsageError: no index was named, or a folder of tests is missing.
        NetworkError: the index could not be reached.
        TestsFailedError: the set cannot be installed from there, or other bytes came than the set names.
    """
    if request.index_url is None and not request.find_links:
        raise UsageError("no index to install from", tip="name one with --index-url")
    for tests in request.smoke_tests:
        if not tests.exists():
            raise UsageError(
                f"there are no smoke tests at {tests}", tip="see `smoke_tests` of the stack.toml"
            )
    started, began = datetime.now(UTC), time.monotonic()
    owned.empty_places(request.work_dir, of_files=_FILES, of_folders=_FOLDERS)
    # The `rocm` sdist chooses its libraries when it is installed: by this, else by the GPU it sees.
    family = request.wheel_set.family
    choice = {} if family == CPU else {"ROCM_SDK_TARGET_FAMILY": family}
    bench = Bench(
        work_dir=request.work_dir,
        variables={**venv.variables(Isolation.TEST), **choice, **request.environment},
        timeout=request.timeout,
        log=request.log or request.work_dir / "smoke.log",
        on_line=on_line,
    )
    environment, installed = _install(request, bench)
    facts = smoke_facts.collect(
        request.wheel_set,
        python=environment.python,
        site_packages=environment.sites,
        imports=request.imports,
        siblings=request.siblings,
    )
    runs = [pytest_runs.run_builtin(bench, facts)]
    if request.smoke_tests:
        runs.append(pytest_runs.run_stack(bench, environment, request.smoke_tests, request.pytest_args))
    junit_path, record_path = request.work_dir / "junit.xml", request.work_dir / "record.json"
    # Runs that left nothing to believe are judged by their absence; they have no place in the results.
    if whole := [run.junit for run in runs if run.outcome is not None]:
        junit.merge(whole, junit_path)
    made = _record(request, runs, installed, junit_path, started=started, seconds=time.monotonic() - began)
    record.write(record_path, made)
    failed = [case for case in _together(runs).cases if case.outcome in ("failed", "error")]
    return SmokeResult(
        record=made,
        record_path=record_path,
        junit_path=junit_path,
        environment=environment.path,
        log=bench.log,
        failures=tuple(f"{c.name}: {c.reason}" for c in failed[:_SHOWN_FAILURES]),
    )


def require_passed(result: SmokeResult) -> None:
    """Raise what the user should read when the verdict is not `passed`.

    Raises:
        TestsFailedError: always, then.
    """
    if result.record.verdict == "passed":
        return
    raise TestsFailedError(
        f"the smoke tests {_PHRASES[result.record.verdict]}: {result.record.reason}",
        tip=f"read {result.log}",
    )


def _install(request: SmokeRequest, bench: Bench) -> tuple[VirtualEnvironment, tuple[TestedWheel, ...]]:
    environment = venv.create(request.work_dir / "venv", python=request.python, environ=bench.variables)
    source = PackageSource(
        index_url=request.index_url, find_links=request.find_links, no_index=request.index_url is None
    )
    # By version, not by path: what is tested is the index, as users meet it.
    exact = tuple(f"{wheel.distribution}=={wheel.version}" for wheel in request.wheel_set.wheels)
    report = environment.path / "pip-report.json"
    try:
        venv.install(
            environment,
            (*exact, *request.requirements, *request.extra_wheels),
            source,
            # Without pip's cache: that would hand out a wheel which an earlier run made of an sdist whose
            # dependencies depend on the machine, as those of `rocm` do.
            options=("--report", str(report), "--no-cache-dir", "--progress-bar=off"),
            environ=bench.variables,
            log=bench.log,
            on_line=bench.on_line,
            timeout=_INSTALL_TIMEOUT,
        )
    except ProcessError as error:
        lines = (line.strip() for line in reversed(error.output.splitlines()))
        reason = next((line for line in lines if line.startswith("ERROR:")), str(error))
        raise TestsFailedError(
            f"the set cannot be installed from {source} alone: {reason.removeprefix('ERROR: ')}",
            tip=f"read the whole log: {bench.log}",
        ) from error
    installed = venv.installed_files(report)
    _check_bytes(request.wheel_set, installed, str(source))
    tested = [
        TestedWheel(file_name=_file_name(file.url), sha256=file.sha256) for file in installed if file.sha256
    ]
    return environment, tuple(sorted(tested, key=lambda file: file.file_name))


def _file_name(url: str) -> str:
    return urllib.parse.unquote(urllib.parse.urlsplit(url).path.rpartition("/")[2])


def _check_bytes(wheel_set: WheelSet, installed: tuple[InstalledFile, ...], where: str) -> None:
    """The verdict is about these bytes, so nothing else may have been installed under their names."""
    named = wheel_set.sha256s
    # An open set does not know yet what it installs besides its own wheels.
    for file in installed if wheel_set.set_id is not None else ():
        name = _file_name(file.url)
        if named.get(name) != file.sha256:
            what = (
                f"other bytes for {name} than the set names"
                if name in named
                else f"{name}, which is not of the set"
            )
            raise TestsFailedError(
                f"{where} gave {what}",
                tip=f"test it from its own index: …/sets/{wheel_set.set_id}/simple/",
            )
    digests = {canonicalize_name(file.distribution): file.sha256 for file in installed}
    for wheel in wheel_set.wheels:
        if digests.get(canonicalize_name(wheel.distribution)) != wheel.sha256:
            raise TestsFailedError(
                f"{where} gave other bytes for {wheel.distribution} {wheel.version} than the set names",
                tip="test the set from an index that has its files",
            )


def _judge(request: SmokeRequest, runs: Sequence[Run], gpus: tuple[str, ...]) -> Judgement:
    """The first verdict of a single run that is not `passed`, else that of all tests together.

    One by one first: checks of imports must not outweigh a stack whose own tests were all skipped.
    """
    targets = request.wheel_set.targets
    for run in runs:
        single = judge(run.outcome, exit_code=run.exit_code, targets=targets, hardware=gpus)
        if single.verdict != "passed":
            return Judgement(verdict=single.verdict, reason=run.problem or single.reason)
    # On a machine with a GPU of the set, tests that all avoided it prove nothing about the kernels.
    device_floor = 1 if gpus and request.smoke_tests and CPU not in targets else 0
    together = _together(runs)
    return judge(
        together,
        exit_code=0,
        targets=targets,
        hardware=gpus,
        floor=request.floor,
        device_floor=device_floor,
    )


def _together(runs: Sequence[Run]) -> JUnit:
    outcomes = [run.outcome for run in runs if run.outcome is not None]
    cases = tuple(case for outcome in outcomes for case in outcome.cases)
    return JUnit(cases=cases, announced=sum(outcome.announced for outcome in outcomes))


def _record(
    request: SmokeRequest,
    runs: Sequence[Run],
    installed: tuple[TestedWheel, ...],
    junit_path: Path,
    *,
    started: datetime,
    seconds: float,
) -> TestRecord:
    wheel_set = request.wheel_set
    gpus: tuple[str, ...] = ()
    if request.devices:
        gpus = testing_gpus.visible(testing_gpus.seen(request.gpus), os.environ.get("ROCR_VISIBLE_DEVICES"))
    verdict, results = _judge(request, runs, gpus), _together(runs)
    return TestRecord(
        set_id=wheel_set.set_id,
        wheels=installed,
        kind="smoke",
        family=wheel_set.family,
        targets=wheel_set.targets,
        hardware=gpus,
        counts=results.counts,
        junit_sha256=files.sha256_of(junit_path) if junit_path.exists() else None,
        started=started.strftime("%Y-%m-%dT%H:%M:%SZ"),
        duration_seconds=round(seconds, 3),
        verdict=verdict.verdict,
        reason=verdict.reason,
        skips=tuple(Skip(test=c.name, reason=c.reason) for c in results.cases if c.outcome == "skipped"),
        pytest_args=request.pytest_args,
    )
