"""Run smoke tests of a set, installed in a new environment as a user does, or of the current environment."""

from __future__ import annotations

import dataclasses
import functools
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import structs

from cairn import datafile, files, interpreters, isolation, owned, process
from cairn.errors import PrerequisiteError, ProcessError, TestsFailedError, UsageError
from cairn.isolation import Isolation
from cairn.output import Progress
from cairn.stack import Floor, Stack
from cairn.targets import CPU
from cairn.testing import install_set, junit_writer, pytest_runs, record, smoke_facts
from cairn.testing.gpus import hangs, kernel
from cairn.testing.gpus.attest import Attestation, attest
from cairn.testing.gpus.hangs import Answering
from cairn.testing.gpus.visible import visible_gpus
from cairn.testing.junit import JUnit
from cairn.testing.pytest_runs import Run, Session
from cairn.testing.record import HostTests, TestedWheel, TestPolicy, TestRecord, Verdict
from cairn.testing.smoke_facts import SmokeFacts
from cairn.testing.verdict import Judgement, judge, passed_by_target
from cairn.venv import PackageSource
from cairn.wheels.wheelset import WheelSet

_SHOWN_FAILURES = 5
_FILES = ("facts.json", record.JUNIT, record.FILE, "smoke.log")
_FOLDERS = ("builtin", "home", "pytest", "stack", "venv")
_PHRASES: Mapping[Verdict, str] = {
    "failed": "failed",
    "invalid": "prove nothing",
    "untested": "used no GPU",
}


class SmokeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A set to test, its index, and options of the run.

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
        hanging: the kernel's nodes of GPUs that are known to hang.
        devices: the wheels' ROCm can reach a GPU; where it cannot, the machine's GPUs count as absent.
        translate: the wheel of TorchDevice, through which the stack's own tests run; none of them counts for
            a GPU then, and the record never passes.
        policy: what the record says of the stack; None where none was named.
    """

    wheel_set: WheelSet
    work_dir: Path
    index_url: str | None = None
    find_links: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()
    extra_wheels: tuple[str, ...] = ()
    smoke_tests: tuple[Path, ...] = ()
    imports: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    siblings: Mapping[str, str] = msgspec.field(default_factory=dict)
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)
    python: Path | None = None
    pytest_args: tuple[str, ...] = ()
    timeout: float = 1800.0
    floor: int = 1
    log: Path | None = None
    gpus: Path = kernel.KFD_NODES
    hanging: tuple[int, ...] = ()
    devices: bool = True
    translate: Path | None = None
    policy: TestPolicy | None = None

    def of_stack(self, stack: Stack) -> SmokeRequest:
        """Return a copy with a stack's tests, modules that must import, and further wheels."""
        return structs.replace(
            self,
            extra_wheels=stack.extra_wheels,
            smoke_tests=tuple(Path(folder) for folder in stack.smoke_tests),
            imports={project.distribution: project.smoke_imports for project in stack.projects},
            devices=stack.reaches_gpus,
            policy=TestPolicy.of(stack),
        )

    @property
    def record(self) -> Path:
        """The path of the record."""
        return self.work_dir / record.FILE

    @property
    def junit(self) -> Path:
        """The path of the JUnit XML."""
        return self.work_dir / record.JUNIT


class SmokeResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of smoke tests.

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
    if absent := [tests for tests in request.smoke_tests if not tests.exists()]:
        raise UsageError(
            f"there are no smoke tests at {absent[0]}", tip="see `smoke_tests` of the stack.toml"
        )
    pytest_runs.translation_name(request.translate)
    with owned.alone_in(request.work_dir):
        return _run(request, on_line)


def _run(request: SmokeRequest, on_line: Progress | None) -> SmokeResult:
    started, began = datetime.now(UTC), time.monotonic()
    work_dir, wheel_set = request.work_dir, request.wheel_set
    owned.empty_places(work_dir, of_files=_FILES, of_folders=_FOLDERS)
    variables = install_set.test_variables(wheel_set, request.environment, home=work_dir / "home")
    log, index = request.log or work_dir / "smoke.log", request.index_url
    environment, installed = install_set.install(
        wheel_set,
        folder=work_dir / "venv",
        source=PackageSource(index_url=index, find_links=request.find_links, no_index=index is None),
        requirements=(*request.requirements, *request.extra_wheels),
        python=request.python,
        variables=variables,
        log=log,
        on_line=on_line,
    )
    facts = smoke_facts.collect(
        wheel_set,
        python=environment.python,
        site_packages=environment.sites,
        imports=request.imports,
        siblings=request.siblings,
    )
    # Before the tests run, since one of them may take a GPU with it.
    left = _answering(request, Answering(variables=variables), environment.python, log).require()
    attested = _attested(request, left, environment.python, log)
    session = Session(
        folder=work_dir, tests={}, variables=left.variables, timeout=request.timeout, log=log, on_line=on_line
    )
    runs = [_builtin_checks(session, facts)]
    if request.smoke_tests:
        runs.append(_own_tests(session, request, environment.python))
        if request.devices and runs[-1].exit_code == pytest_runs.TIMED_OUT:
            now = _answering(request, left, environment.python, log)
            if now.hanging != left.hanging and not now.is_empty:
                attested = _attested(request, now, environment.python, log)
                for name in ("pytest", "stack"):
                    shutil.rmtree(work_dir / name)
                again = structs.replace(session, variables=now.variables)
                runs[-1] = _own_tests(again, request, environment.python)
            left = now
    # Runs that left nothing to believe are judged by their absence; they have no place in the results.
    if whole := [run.junit for run in runs if run.outcome is not None]:
        junit_writer.merge((path.read_bytes() for path in whole), request.junit)
    result = _record(request, runs, installed, attested, started=record.time_of(started), began=began)
    seconds = _import_seconds(session, facts, environment.python)
    host = _host_tests(environment.python, facts, runs)
    result = structs.replace(result, hanging=left.hanging, import_seconds=seconds, host=host)
    record.write(request.record, result)
    failures = [f"{case.name}: {case.reason}" for case in _together(runs).cases if case.failed]
    return SmokeResult(
        record=result,
        record_path=request.record,
        junit_path=request.junit,
        environment=environment.path,
        log=log,
        failures=tuple(failures[:_SHOWN_FAILURES]),
    )


def _answering(request: SmokeRequest, before: Answering, python: Path, log: Path) -> Answering:
    """Return the GPUs that do not hang, of those that are left."""
    if not request.devices:
        return before
    now = hangs.hide(
        before.variables, python=python, log=log, nodes=request.gpus, hanging_nodes=request.hanging
    )
    return structs.replace(now, hanging=(*before.hanging, *now.hanging))


def _attested(request: SmokeRequest, left: Answering, python: Path, log: Path) -> Attestation:
    if not request.devices:
        return Attestation()
    return attest(left.variables, python=python, log=log, nodes=request.gpus, hanging=left.hanging)


def _builtin_checks(session: Session, facts: SmokeFacts) -> Run:
    """Run the built-in checks, from outside the environment."""
    path = session.folder / "facts.json"
    datafile.write(path, facts)
    run = pytest_runs.run_beside(
        structs.replace(
            session,
            folder=session.folder / "builtin",
            tests={"builtin": Path(__file__).with_name("builtin_smoke")},
            variables={**session.variables, smoke_facts.VARIABLE: str(path)},
        ),
        reads=[facts.python],
    )
    # What they pass over is our own doing, such as kernels where the set is for the CPU.
    return structs.replace(run, deselected=(), hooks=())


def _import_seconds(session: Session, facts: SmokeFacts, python: Path) -> float:
    """Return how long a new process takes to import all modules, once the checks have warmed the files.

    It is 0 where that cannot be told: one of them does not import, which the checks say.
    """
    modules = dict.fromkeys(module for wheel in facts.wheels for module in wheel.modules)
    began = time.monotonic()
    code = f"import {', '.join(modules)}" if modules else "raise SystemExit(1)"
    try:
        completed = process.run(
            [python, "-I", "-c", code],
            cwd=session.folder,
            env=session.variables,
            check=False,
            timeout=session.timeout,
            log=session.log,
        )
    except ProcessError:
        return 0.0
    return 0.0 if completed.returncode else round(time.monotonic() - began, 3)


def _host_tests(python: Path, facts: SmokeFacts, runs: Sequence[Run]) -> HostTests:
    """Count what needs no GPU: a wheel's modules were imported where the check of it says that it passed."""
    interpreter = interpreters.ask(python)
    passed = [
        {case.test for case in run.outcome.cases if case.outcome == "passed"} if run.outcome else set()
        for run in runs
    ]
    return HostTests(
        python=interpreter.version,
        platform=interpreter.platform,
        imported={
            wheel.distribution: len(wheel.modules)
            for wheel in facts.wheels
            if any(test.endswith(f"::test_imports[{wheel.distribution}]") for test in passed[0])
        },
        own_tests=sum(map(len, passed[1:])),
    )


def _own_tests(session: Session, request: SmokeRequest, python: Path) -> Run:
    """Run a stack's own tests inside the environment.

    With TorchDevice's wheel, code that says "cuda" computes on the CPU, so no device it reports is a GPU.
    """
    tools, tests, arguments = session.folder / "pytest", request.smoke_tests, request.pytest_args
    pytest_runs.copy_pytest(tools)
    if request.translate is not None:
        pytest_runs.unpack_translation(request.translate, tools)
        arguments = ("-p", "torchdevice.pytest_plugin", "--torchdevice-to=cpu", *arguments)
    names = [path.stem if len(tests) == 1 else f"{path.stem}_{number}" for number, path in enumerate(tests)]
    copies = {f"stack/{name}": path for name, path in zip(names, tests, strict=True)}
    run = pytest_runs.run_inside(
        python,
        tools,
        structs.replace(session, folder=session.folder / "stack", tests=copies, arguments=arguments),
    )
    if request.translate is None or run.outcome is None:
        return run
    cases = tuple(structs.replace(case, device="") for case in run.outcome.listed)
    return structs.replace(run, outcome=dataclasses.replace(run.outcome, listed=cases))


def require_passed(result: SmokeResult, *, or_untested: bool = False) -> None:
    """Raise an error for the user unless the verdict is `passed`.

    Args:
        result: the verdict's.
        or_untested: also accept `untested`, where nothing failed and no GPU was used; the gate then needs a
            bypass.

    Raises:
        TestsFailedError: always, then.
    """
    if result.record.verdict == "passed" or (or_untested and result.record.verdict == "untested"):
        return
    raise TestsFailedError(
        f"the smoke tests {_PHRASES[result.record.verdict]}: {result.record.reason}",
        tip=f"read {result.log}",
    )


def _judge(request: SmokeRequest, runs: Sequence[Run], attested: Attestation) -> Judgement:
    """Judge each run by itself and, if none has a problem, all tests together.

    Each by itself first, so that import checks do not outweigh a stack's own tests that were all skipped. But
    the built-in checks use no GPU, so only all runs together can be `untested`.
    """
    verdict_on = functools.partial(
        judge,
        targets=request.wheel_set.targets,
        hardware=attested.hardware,
        disagreements=attested.disagreements,
    )
    for run in runs:
        single = verdict_on(run.outcome, exit_code=run.exit_code, deselected=run.deselected)
        if single.verdict not in ("passed", "untested"):
            return Judgement(verdict=single.verdict, reason=run.problem or single.reason)
    floor = _floor(request, attested)
    return verdict_on(
        _together(runs),
        exit_code=0,
        floor=floor.tests,
        device_floor=floor.device_tests,
        translated=pytest_runs.translation_name(request.translate),
        deselected=runs[-1].deselected,  # the built-in checks have none
        hooks=runs[-1].hooks,
    )


def _floor(request: SmokeRequest, attested: Attestation) -> Floor:
    # On a machine with a GPU of the set, tests that all avoided it prove nothing about the kernels.
    for_gpus = CPU not in request.wheel_set.targets and not request.translate
    uses_gpu = attested.hardware and request.smoke_tests and for_gpus
    return Floor(tests=request.floor, device_tests=1 if uses_gpu else 0)


def _together(runs: Sequence[Run]) -> JUnit:
    return JUnit.of(case for run in runs if run.outcome is not None for case in run.outcome.cases)


def _record(
    request: SmokeRequest,
    runs: Sequence[Run],
    installed: tuple[TestedWheel, ...],
    attested: Attestation,
    *,
    started: str,
    began: float,
) -> TestRecord:
    wheel_set = request.wheel_set
    verdict, results = _judge(request, runs, attested), _together(runs)
    return TestRecord(
        set_id=wheel_set.set_id,
        wheels=installed,
        kind="smoke",
        family=wheel_set.family,
        targets=wheel_set.targets,
        hardware=attested.hardware,
        gpus=attested.gpus,
        covered=passed_by_target(results, wheel_set.targets),
        counts=results.counts,
        junit_sha256=files.sha256_of(request.junit) if request.junit.exists() else None,
        started=started,
        duration_seconds=round(time.monotonic() - began, 3),
        verdict=verdict.verdict,
        reason=verdict.reason,
        skips=results.skips,
        pytest_args=request.pytest_args,
        deselected=runs[-1].deselected,
        hooks=runs[-1].hooks,
        flaky=tuple(case.name for case in results.cases if case.flaky),
        overruled=tuple(case.name for case in results.cases if case.overruled),
        translated=pytest_runs.translation_name(request.translate),
        pytest=tuple(dict.fromkeys(f"pytest {run.pytest}" for run in runs if run.pytest)),
        confinement=isolation.level(),
        policy=structs.replace(
            request.policy or TestPolicy.of(None),
            floor=_floor(request, attested),
            builtin_sha256=runs[0].tests_sha256,
            tests_sha256=runs[1].tests_sha256 if request.smoke_tests else None,
        ),
    )


def _require_torch(python: Path) -> None:
    interpreters.describe(python)  # refuses what does not run: that is not to count as a Python without torch
    find = "import sys, importlib.util as util; sys.exit(util.find_spec('torch') is None)"
    if process.run(
        [python, "-I", "-c", find], env=isolation.variables(Isolation.TOOL), check=False
    ).returncode:
        raise PrerequisiteError(
            f"{python} has no torch to test", tip="name the interpreter that has it: --python PYTHON"
        )


def run_installed(
    tests: Path,
    arguments: tuple[str, ...],
    *,
    python: Path,
    targets: tuple[str, ...] = (),
    timeout: float = 3600.0,
    on_line: Progress | None = None,
) -> Judgement:
    """Run a folder of tests in the environment of an interpreter, Cairn's own or a different one.

    They run from a copy, in a separate process, so that no source tree is imported in place of the installed
    packages.

    Args:
        tests: the folder.
        arguments: pytest's.
        python: the interpreter. Where it has no pytest, Cairn's is put at the end of its path.
        targets: the hardware that they must run on; none for whatever this machine has.
        timeout: seconds.
        on_line: called with each line of output.

    Raises:
        UsageError: there are no such tests, or the interpreter does not run.
        PrerequisiteError: the interpreter has no torch.
    """
    if not tests.is_dir():
        raise UsageError(f"there are no smoke tests at {tests}")
    _require_torch(python)
    with tempfile.TemporaryDirectory(prefix="cairn-smoke-") as folder:
        work = Path(folder)
        (work / "home").mkdir()
        session = Session(
            folder=work / "session",
            tests={tests.name: tests},
            arguments=arguments,
            variables=isolation.variables(Isolation.TEST, work / "home"),
            timeout=timeout,
            log=work / "log",
            on_line=on_line,
        )
        if python == Path(sys.executable):
            run = pytest_runs.run_beside(session)
        else:
            pytest_runs.copy_pytest(work / "pytest")
            run = pytest_runs.run_inside(python, work / "pytest", session)
    hardware = visible_gpus(kernel.gpu_names(), os.environ.get("ROCR_VISIBLE_DEVICES"))
    # No set says what the wheels are for, so the GPUs of this machine count as the targets.
    judgement = judge(
        run.outcome,
        exit_code=run.exit_code,
        targets=targets or hardware or (CPU,),
        hardware=hardware,
        deselected=run.deselected,
        hooks=run.hooks,
    )
    if run.problem and run.outcome is None:
        judgement = structs.replace(judgement, reason=run.problem)
    return judgement
