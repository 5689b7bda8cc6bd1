"""A set to run a suite on: installed from its index, with what the tests need beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cairn import owned, venv
from cairn.errors import ProcessError, TestsFailedError
from cairn.output import Progress
from cairn.testing import install_set, pytest_runs
from cairn.testing.suite.run import Tested
from cairn.venv import PackageSource
from cairn.wheels.wheelset import WheelSet

_LOG = "install.log"
_FOLDERS = ("home", "venv", "tools")
_TOOLS_TIMEOUT = 1200.0  # seconds


@dataclass(frozen=True, kw_only=True)
class SetRequest:
    """Which set, from where.

    Attributes:
        wheel_set: the set; each of its files must be installed with exactly its bytes.
        work_dir: receives the environment, in place of an earlier one.
        source: where pip finds the set, and nothing else.
        extra_wheels: installed too; a stack's own list of wheels that it does not build.
        requires: requirements of the tests, such as `pytest<9`. They are installed elsewhere and come last on
            the path, so that they hide nothing that the wheels forgot to require; our own pytest where empty.
        requires_source: where pip finds that.
        python: the interpreter that the environment is made from; ours by default.
        environment: further variables.
    """

    wheel_set: WheelSet
    work_dir: Path
    source: PackageSource
    extra_wheels: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    requires_source: PackageSource = field(default_factory=PackageSource)
    python: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


def install(request: SetRequest, *, on_line: Progress | None = None) -> Tested:
    """Install a set and what its tests need.

    Raises:
        NetworkError: an index could not be reached.
        TestsFailedError: the set cannot be installed, or other bytes came than it names.
    """
    with owned.alone_in(request.work_dir):
        return _install(request, on_line)


def _install(request: SetRequest, on_line: Progress | None) -> Tested:
    work_dir, wheel_set, log = request.work_dir, request.wheel_set, request.work_dir / _LOG
    owned.empty_places(work_dir, of_files=(_LOG,), of_folders=_FOLDERS)
    variables = install_set.variables(wheel_set, request.environment, home=work_dir / "home")
    environment, wheels = install_set.install(
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
