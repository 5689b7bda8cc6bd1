"""What can be known before a build, said before it: before the SDK is downloaded, and all at once."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from packaging.version import InvalidVersion, Version

from cairn import console
from cairn.build import plan, toolchain
from cairn.build.request import CompilerCache
from cairn.errors import CairnError, PrerequisiteError, ProblemsError, SystemFailureError, UsageError
from cairn.sources import inspection
from cairn.stack import Project

Check = Callable[[], object]

_ROOM = (
    100_000_000  # bytes: less than the smallest build needs, with its environment; how much more is unknown
)


def run(checks: Iterable[Check]) -> None:
    """Make all checks, and raise what they found.

    Raises:
        CairnError: the only problem.
        ProblemsError: several.
    """
    problems: list[CairnError] = []
    for check in checks:
        try:
            check()
        except ProblemsError as error:
            problems += error.problems
        except CairnError as error:
            problems.append(error)
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise ProblemsError(f"{len(problems)} problems, and nothing was built", problems=problems)


def checkout(project: Project, folder: Path, *, suffix: str | None) -> None:
    """Check the tree of a project: finished, buildable, and with a version that a wheel can have.

    Args:
        project: of the stack.
        folder: its checkout.
        suffix: what is added to its version; None where that is not known yet.

    Raises:
        SourceError: it is not so.
        UsageError: the suffix cannot follow its version.
    """
    inspection.require_finished(project, folder)
    plan.source_dir(project, folder)
    base = plan.read_version(project, folder)
    if base is not None and suffix:
        try:
            Version(base + suffix)
        except InvalidVersion:
            raise UsageError(
                f"{base + suffix!r} would be the version of {project.name}, and is not a valid one (PEP 440)",
                tip="change --version-suffix, or the version file of the checkout",
            ) from None


def tools(*, for_cpu: bool, launcher: CompilerCache | None) -> None:
    """Check that the programs are there which a build takes from the machine.

    Raises:
        PrerequisiteError: one is missing.
    """
    if for_cpu:
        toolchain.require_host_compiler()
    if launcher is not None and shutil.which(launcher) is None:
        raise PrerequisiteError(
            f"{launcher} is not on this machine", tip=f"install it, or leave --use-{launcher} out"
        )


def writable(folder: Path) -> None:
    """Make a folder, and check that it can be written to.

    Raises:
        SystemFailureError: it cannot, or no space is left there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise SystemFailureError(
            f"cannot write to {folder}: {error.strerror}", tip="name another folder, or make room there"
        ) from error
    free = shutil.disk_usage(folder).free
    if free < _ROOM:
        raise SystemFailureError(
            f"only {console.size(free)} are free at {folder}",
            tip="free some space there, or name another folder",
        )
