"""Install exactly the bytes of a set, as a user does, into an environment of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from packaging.utils import canonicalize_name

from cairn import isolation, owned, venv
from cairn.errors import ProcessError, TestsFailedError
from cairn.output import Progress
from cairn.targets import CPU
from cairn.testing import pytest_runs
from cairn.testing.record import TestedWheel
from cairn.venv import InstalledFile, PackageSource, VirtualEnvironment
from cairn.wheels.wheelset import WheelSet

_TIMEOUT = 3600.0  # seconds; a real set with its ROCm libraries is several gigabytes

_LOG = "install.log"
_FOLDERS = ("home", "venv", "tools")
_TOOLS_TIMEOUT = 1200.0  # seconds


def test_variables(wheel_set: WheelSet, more: Mapping[str, str], *, home: Path) -> dict[str, str]:
    """Return the variables for installing and testing a set, with `more`; creates the folder `home`."""
    home.mkdir(parents=True, exist_ok=True)
    # The `rocm` sdist chooses its libraries when it is installed: by this, else by the GPU it sees.
    choice = {} if wheel_set.family == CPU else {"ROCM_SDK_TARGET_FAMILY": wheel_set.family}
    return {**isolation.variables(isolation.Isolation.TEST, home), **choice, **more}


def install(  # noqa: PLR0913 - each is one independent property of the installation
    wheel_set: WheelSet,
    *,
    folder: Path,
    source: PackageSource,
    requirements: Sequence[str],
    python: Path | None,
    variables: Mapping[str, str],
    log: Path,
    on_line: Progress | None = None,
) -> tuple[VirtualEnvironment, tuple[TestedWheel, ...]]:
    """Install a set from an index into a new environment; return both it and every installed wheel.

    Args:
        wheel_set: the set.
        folder: of the environment.
        source: the only place where pip looks.
        requirements: further requirements to install.
        python: the interpreter that the environment is made from; ours by default.
        variables: what pip sees.
        log: receives pip's output.
        on_line: called with each line of it.

    Raises:
        NetworkError: the index could not be reached.
        TestsFailedError: the set cannot be installed from there, or other bytes came than the set names.
    """
    environment = venv.create(folder, python=python, environ=variables)
    # By version, not by path: what is tested is the index, as users meet it.
    exact = tuple(f"{wheel.distribution}=={wheel.version}" for wheel in wheel_set.wheels)
    report = environment.path / "pip-report.json"
    try:
        venv.install(
            environment,
            (*exact, *requirements),
            source,
            # Without pip's cache: that would hand out a wheel which an earlier run made of an sdist whose
            # dependencies depend on the machine, as those of `rocm` do. With bytecode, as users get it: tests
            # cannot write it there, and each of their processes would compile torch again, in two seconds.
            options=("--report", str(report), "--no-cache-dir", "--progress-bar=off", "--compile"),
            environ=variables,
            log=log,
            on_line=on_line,
            timeout=_TIMEOUT,
        )
    except ProcessError as error:
        lines = (line.strip() for line in reversed(error.output.splitlines()))
        reason = next((line for line in lines if line.startswith("ERROR:")), str(error))
        raise TestsFailedError(
            f"the set cannot be installed from {source} alone: {reason.removeprefix('ERROR: ')}",
            tip=f"read the whole log: {log}",
        ) from error
    installed = venv.installed_files(report)
    _check_bytes(wheel_set, installed, str(source))
    tested = [TestedWheel(file_name=file.file_name, sha256=file.sha256) for file in installed if file.sha256]
    return environment, tuple(sorted(tested, key=lambda file: file.file_name))


def _check_bytes(wheel_set: WheelSet, installed: tuple[InstalledFile, ...], where: str) -> None:
    """Check that nothing but the set's bytes was installed under its file names."""
    expected = wheel_set.sha256s
    # An open set does not know yet what it installs besides its own wheels.
    for file in installed if wheel_set.set_id is not None else ():
        name = file.file_name
        if expected.get(name) != file.sha256:
            content = (
                f"other bytes for {name} than the set names"
                if name in expected
                else f"{name}, which is not of the set"
            )
            raise TestsFailedError(
                f"{where} gave {content}",
                tip=f"test it from its own index: …/sets/{wheel_set.set_id}/simple/",
            )
    digests = {canonicalize_name(file.distribution): file.sha256 for file in installed}
    for wheel in wheel_set.wheels:
        if digests.get(canonicalize_name(wheel.distribution)) != wheel.sha256:
            raise TestsFailedError(
                f"{where} gave other bytes for {wheel.distribution} {wheel.version} than the set names",
                tip="test the set from an index that has its files",
            )


class Tested(msgspec.Struct, frozen=True, kw_only=True):
    """An interpreter to run a suite with, and the wheels that are installed for it.

    Attributes:
        python: the interpreter that has it.
        variables: what its programs see, before the suite adds its own.
        tools: folders that hold pytest where the interpreter does not; they come last on its path.
        set_id: the sealed set that it was installed from; None where there is none.
        family: of the set.
        targets: what the wheels are for; empty where that is not known: the GPUs that are there then count.
        wheels: every distribution that was installed; empty where that is not known.
    """

    __test__ = False  # pytest would collect the name

    python: Path
    variables: Mapping[str, str]
    tools: tuple[Path, ...] = ()
    set_id: str | None = None
    family: str = ""
    targets: tuple[str, ...] = ()
    wheels: tuple[TestedWheel, ...] = ()


class SuiteSetRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A set to install for a suite, and the index that it comes from.

    Attributes:
        wheel_set: the set; each of its files must be installed with exactly its bytes.
        work_dir: receives the environment, in place of an earlier one.
        source: the only place where pip looks for the set.
        extra_wheels: further wheels to install, which the stack lists and does not build.
        requires: requirements of the tests, such as `pytest<9`. They are installed elsewhere and come last on
            the path, so that they hide no requirement that the wheels forgot; our own pytest if empty.
        requires_source: where pip finds that.
        python: the interpreter that the environment is made from; ours by default.
        environment: further variables.
    """

    wheel_set: WheelSet
    work_dir: Path
    source: PackageSource
    extra_wheels: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    requires_source: PackageSource = msgspec.field(default_factory=PackageSource)
    python: Path | None = None
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)


def install_for_suite(request: SuiteSetRequest, *, on_line: Progress | None = None) -> Tested:
    """Install a set, and the requirements of its tests.

    Raises:
        NetworkError: an index could not be reached.
        TestsFailedError: the set cannot be installed, or other bytes came than it names.
    """
    with owned.alone_in(request.work_dir):
        return _install_for_suite(request, on_line)


def _install_for_suite(request: SuiteSetRequest, on_line: Progress | None) -> Tested:
    work_dir, wheel_set, log = request.work_dir, request.wheel_set, request.work_dir / _LOG
    owned.empty_places(work_dir, of_files=(_LOG,), of_folders=_FOLDERS)
    variables = test_variables(wheel_set, request.environment, home=work_dir / "home")
    environment, wheels = install(
        wheel_set,
        folder=work_dir / "venv",
        source=request.source,
        requirements=request.extra_wheels,
        python=request.python,
        variables=variables,
        log=log,
        on_line=on_line,
    )
    tools = work_dir / "tools"
    if request.requires:
        beside = venv.create(tools, python=request.python)
        try:
            venv.install(
                beside,
                request.requires,
                request.requires_source,
                log=log,
                on_line=on_line,
                timeout=_TOOLS_TIMEOUT,
            )
        except ProcessError as error:
            raise TestsFailedError(
                f"what the tests need cannot be installed: {error}", tip=f"read {log}"
            ) from error
        sites = beside.sites
    else:
        pytest_runs.copy_pytest(tools)
        sites = (tools,)
    return Tested(
        python=environment.python,
        variables=variables,
        tools=tuple(dict.fromkeys(sites)),
        set_id=wheel_set.set_id,
        family=wheel_set.family,
        targets=wheel_set.targets,
        wheels=wheels,
    )
