"""What can be known before a build, said before it: before the SDK is downloaded, and all at once."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from packaging.version import InvalidVersion, Version

from cairn.build import plan
from cairn.build.inputs import toolchain
from cairn.build.model import CompilerCache
from cairn.errors import (
    CairnError,
    PrerequisiteError,
    ProblemsError,
    SourceError,
    SystemFailureError,
    UsageError,
)
from cairn.output import console
from cairn.sources.checkout import hipify_step, inspect
from cairn.sources.git.repository import root_at
from cairn.sources.hipify import run as hipify_run
from cairn.sources.worktree import state
from cairn.stack import Project

Check = Callable[[], object]

ROOM = 100_000_000
"""Bytes that even the smallest build needs for its environment. What others need is not known."""


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


def checkout(project: Project, folder: Path, *, suffix: str | None, gpu: bool) -> None:
    """Check the tree of a project: finished, buildable, and with a version that a wheel can have.

    Args:
        project: of the stack.
        folder: its checkout.
        suffix: what is added to its version; None where that is not known yet.
        gpu: it is built for GPUs, and must be hipified where it does not do so itself.

    Raises:
        SourceError: it is not so.
        UsageError: the suffix cannot follow its version.
    """
    inspect.require_finished(project, folder)
    if gpu and hipify_run.runs_at_checkout(project.hipify) and not _is_hipified(project, folder):
        raise SourceError(
            f"the checkout {folder} of {project.name} is not hipified, and it is to be built for ROCm",
            tip="hipify it, with --hipify or the `hipify` command of its script; or build for cpu",
        )
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


def _is_hipified(project: Project, folder: Path) -> bool:
    root = root_at(folder)
    by_hand = state.State(
        project=project.name, origin="", hashtag="", commit="", phase="placed", hipify=False
    )
    return hipify_step.is_done(root, state.read(root.git_dir) or by_hand, project.hipify)


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


def writable(folder: Path, *, room: int = 0) -> None:
    """Make a folder, and check that it can be written to.

    Args:
        folder: which.
        room: bytes that must be free there.

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
    if free < room:
        raise SystemFailureError(
            f"only {console.size(free)} are free at {folder}",
            tip="free some space there, or name another folder",
        )
