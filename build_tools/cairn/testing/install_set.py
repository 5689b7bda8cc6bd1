"""A set, installed as a user does it, into an environment that has nothing else: exactly its bytes."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from cairn import isolation, venv
from cairn.errors import ProcessError, TestsFailedError
from cairn.output import Progress
from cairn.targets import CPU
from cairn.testing.record import TestedWheel
from cairn.venv import InstalledFile, PackageSource, VirtualEnvironment
from cairn.wheels.wheelset import WheelSet

_TIMEOUT = 3600.0  # seconds; a real set with its ROCm libraries is several gigabytes


def variables(wheel_set: WheelSet, more: Mapping[str, str], *, home: Path) -> dict[str, str]:
    """What the installation and the tests of a set see, whose home is a folder made now; and `more`."""
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
    """Install a set from an index into a new environment; gives it, and every file that was installed.

    Args:
        wheel_set: the set.
        folder: of the environment.
        source: where pip looks, and nowhere else.
        requirements: installed too.
        python: the interpreter that the environment is made from; ours by default.
        variables: what pip sees.
        log: receives what it says.
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
            # dependencies depend on the machine, as those of `rocm` do.
            options=("--report", str(report), "--no-cache-dir", "--progress-bar=off"),
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
