"""Checks before a build starts: all problems at once, before the SDK is downloaded.

`checks` and `places` list the checks for jobs; `run` makes them all and raises what they found.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path

from packaging.version import InvalidVersion, Version

from cairn import extras, files, platforms
from cairn import targets as gpu
from cairn.build import rocm_sdk
from cairn.build.inputs import machine, source_tree, variables
from cairn.build.model import Job
from cairn.errors import (
    CairnError,
    PrerequisiteError,
    ProblemsError,
    SourceError,
    SystemFailureError,
    UsageError,
    WheelError,
)
from cairn.output import console
from cairn.sources import checkout_stack
from cairn.sources.checkout import describe, hipify_step
from cairn.sources.git.repository import root_at
from cairn.sources.hipify import run as hipify_run
from cairn.sources.worktree import journal
from cairn.stack import Cost, Project
from cairn.wheels.metadata import rocm_version

Check = Callable[[], object]

SDK = "sdk"
"""The ROCm SDK in a stack's table of costs."""
_MINUTE, _HOUR = 60, 3600
_ROOM = 100_000_000  # bytes that even the smallest build needs for its environment


def run(checks: Iterable[Check]) -> None:
    """Run all checks, and raise their problems.

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
    # Variants share most of what may be wrong.
    problems = list({str(problem): problem for problem in problems}.values())
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise ProblemsError(f"{len(problems)} problems, and nothing was built", problems=problems)


def machine_checks(jobs: Sequence[Job]) -> Iterator[Check]:
    """The checks that the machine, and this installation of Cairn, have all that builds run."""
    yield functools.partial(extras.demand, "build")
    yield functools.partial(_programs, jobs)
    for job in jobs:
        yield functools.partial(_warn_of_disk, job)


def _programs(jobs: Sequence[Job]) -> None:
    lacking = {} if shutil.which("git") else {"git": "git"}
    of_host = [job for job in jobs if job.stack.host_compiler and job.stack.sdk is not None]
    if of_host and platforms.here.stack_section() != "windows":  # ROCm's clang-cl compiles all there
        names = {name for job in of_host for name, _, _ in (text.partition("=") for text in job.build_env)}
        if "CXX" not in names and not any(map(shutil.which, ("c++", "g++", "clang++"))):
            lacking["a C++ compiler"] = "g++"
        for python in {job.python.version: job.python for job in of_host}.values():
            if not python.has_headers:
                package = f"python{python.version}-dev"
                lacking[f"Python.h of {python.path} ({package} on Debian)"] = package
    if lacking:
        apt = f"apt install {' '.join(lacking.values())}" if shutil.which("apt") else None
        root = not hasattr(os, "geteuid") or os.geteuid() == 0
        raise PrerequisiteError(
            f"this machine lacks {', '.join(lacking)}",
            tip="`cairn doctor --for build` says how to install it here",
            line=apt if root or apt is None else f"sudo {apt}",
        )


def first_build(job: Job, names: Iterable[str], targets: Collection[str]) -> Cost:
    """Return what first builds of projects take, with the SDK, as far as the stack estimates it."""
    with_sdk = job.install_rocm and not job.for_cpu()
    costs = [job.stack.costs.get(name, Cost()) for name in (*names, *((SDK,) if with_sdk else ()))]
    number = 0 if job.for_cpu() else len(targets)
    return Cost(
        disk=sum(cost.disk for cost in costs),
        cpu_hours=sum(cost.cpu_hours + cost.hours_per_target * number for cost in costs),
    )


def rough_time(job: Job, cpu_hours: float) -> str:
    """Return how long a build takes on the cores of its job: `about 9 h on 16 cores, less where …`."""
    cores = job.jobs or os.cpu_count() or 1
    minutes = max(1, round(cpu_hours * _HOUR / _MINUTE / cores))
    time = f"{minutes} min" if minutes < 90 else f"{round(minutes / _MINUTE)} h"  # noqa: PLR2004 - 1.5 hours
    return f"about {time} on {cores} cores, less where wheels are in Cairn's cache"


def estimate(jobs: Sequence[Job]) -> str:
    """Return a line about disk and time that first builds take; empty where the stack estimates nothing."""
    names = {name: None for job in jobs for name in _first(job)}
    costs = [first_build(job, _first(job), _probable_targets(job)) for job in jobs]
    disk = max(cost.disk for cost in costs)  # Pythons and families share the checkouts
    hours = sum(cost.cpu_hours for cost in costs)
    if not names or not (disk or hours):
        return ""
    takes = f"about {console.size(disk)} of disk, and {rough_time(jobs[0], hours)}"
    return f"first builds of {', '.join(names)} take {takes}"


def _first(job: Job) -> list[str]:
    """Return the projects of a job that were not built in their checkouts before."""
    trees = {name: folder for name, folder in job.checkouts.items() if folder.is_dir()}
    return [name for name, folder in trees.items() if not (folder / "build").is_dir()]


def _probable_targets(job: Job) -> tuple[str, ...]:
    """Return the targets of a job, else those of its SDK where they can be read, else those of the stack."""
    served: tuple[str, ...] = ()
    with contextlib.suppress(CairnError):  # `checks` reports it
        if job.targets is None and not job.for_cpu():
            if not job.install_rocm:
                served = rocm_sdk.existing(job.environments() / "sdk", job.python).info.targets
            elif not job.sdk.source.offline:
                served = rocm_sdk.offered_targets(job.sdk)
        return served or gpu.parse_targets(job.targets or job.stack.targets)
    return ()


def _warn_of_disk(job: Job) -> None:
    """Warn where first builds of the projects fill the disk; a wheel of the cache takes less."""
    names = [*_first(job), *([SDK] if job.install_rocm and not job.for_cpu() else [])]
    needed = first_build(job, _first(job), ()).disk
    place = existing_folder(job.environments())
    if (free := shutil.disk_usage(place).free) < needed:
        console.current().warn(
            f"{console.size(free)} are free at {place}, and {', '.join(names)} take about "
            f"{console.size(needed)} the first time"
        )


def existing_folder(folder: Path) -> Path:
    """Return the folder, or the nearest existing one above it."""
    return next(place for place in (folder.absolute(), *folder.absolute().parents) if place.is_dir())


def checks(jobs: Iterable[Job]) -> Iterator[Check]:
    """The checks before the SDK of any job is installed; they only read, a tree that jobs share only once."""
    checked: set[object] = set()
    for job in jobs:
        yield from _checks_of(job, checked)


def _checks_of(job: Job, checked: set[object]) -> Iterator[Check]:
    suffix = job.version_suffix
    if suffix is None and job.stack.sdk is None:
        suffix = job.stack.version_suffix
    for_cpu = job.for_cpu()
    # In the order in which they are reported; each stands alone, so that one that fails hides no other.
    yield functools.partial(targets, job)
    if job.sdk.exact is not None and not for_cpu:
        yield functools.partial(channel, job, job.sdk.exact)
    yield functools.partial(variables.parse_build_env, job.build_env, job.stack)
    yield functools.partial(_present, job)
    if (trees := (job.line, *job.checkouts.values())) not in checked:
        yield functools.partial(checkout_stack.line_of, job.stack, job.checkouts, line=job.line)
        checked.add(trees)
    for project in job.stack.projects:
        folder = job.checkouts.get(project.name)
        if folder is not None and folder.is_dir() and (tree := (folder, suffix, for_cpu)) not in checked:
            checked.add(tree)
            yield functools.partial(_checkout, project, folder.absolute(), suffix=suffix, rocm=not for_cpu)
    if for_cpu:
        passed = dict(text.partition("=")[::2] for text in job.build_env)
        yield functools.partial(machine.require_host_compiler, passed)
    if not for_cpu:
        yield functools.partial(_sdk, job)


def places(job: Job) -> dict[Path, Check]:
    """Return the folders of a job, and the checks that they can be written to; these create the folders."""
    rooms = {job.output_dir.absolute(): 0, job.environments(): _ROOM, files.cache_dir(): 0}
    return {folder: functools.partial(_writable, folder, room=room) for folder, room in rooms.items()}


def _sdk(job: Job) -> None:
    """Check that there is an SDK, or that the index of the one to come has packages for the targets."""
    if not job.install_rocm:
        sdk_targets(job, rocm_sdk.existing(job.environments() / "sdk", job.python).info.targets)
    elif job.targets is not None:
        sdk_targets(job, rocm_sdk.offered_targets(job.sdk))


def sdk_targets(job: Job, served: Sequence[str]) -> None:
    """Check that an SDK has code for the targets that the job names.

    Args:
        job: whose targets the user named; without any, it is built for those of the SDK.
        served: targets of the SDK; none where that is not known yet.

    Raises:
        UsageError: it has none for some: torch would be compiled for hours, and its first kernel would fail.
    """
    if job.targets is None or not served or job.for_cpu():
        return
    here = {name for target in served for name in gpu.that_run(gpu.parse_target_id(target).processor)}
    requested = gpu.parse_targets(job.targets)
    if lacking := [name for name in requested if gpu.parse_target_id(name).processor not in here]:
        raise UsageError(
            f"the ROCm SDK has no code for {', '.join(lacking)}: it is for {', '.join(served)}",
            tip="leave them out of the targets, or install an SDK for them: --install-rocm --index-url URL",
        )


def channel(job: Job, version: str) -> None:
    """Check that a version of ROCm is of the channel that the job asks for.

    Raises:
        UsageError: it is of a different one, or is not a version of ROCm.
    """
    try:
        version_channel = rocm_version.channel_of(version)
    except WheelError as error:
        raise UsageError(f"{version!r} is not a version of ROCm: {error}", tip=error.tip) from error
    if job.channel not in (None, version_channel):
        raise UsageError(
            f"a {job.channel} release was asked for, but ROCm {version} is {version_channel}",
            tip="install the SDK of that channel, or leave --release-type out",
        )


def runtime_of_device_wheels(job: Job, version: str) -> None:
    """Check that a version of ROCm finds the code of the device wheels that the job asks for.

    Raises:
        UsageError: it is older than the stack says.
    """
    floor = job.stack.device_wheels.runtime
    if job.split and rocm_version.is_before(version, floor):
        raise UsageError(
            f"ROCm {version} finds no code in device wheels: {job.stack.name} splits for {floor} or later",
            tip="leave --split out, or build with that ROCm",
        )


def targets(job: Job) -> None:
    """Check that the targets exist, and that the stack can be built for them.

    Raises:
        UsageError: they do not, or it cannot.
    """
    names = gpu.parse_targets(job.targets or job.stack.targets)
    if job.stack.sdk is None and names != (gpu.CPU,):
        raise UsageError(
            f"the stack {job.stack.name} is built without ROCm, and not for {', '.join(names)}",
            tip="leave the targets out, or name cpu",
        )


def _present(job: Job) -> None:
    present = [name for name, path in job.checkouts.items() if path.is_dir()]
    missing = [name for name in job.checkouts if name in job.required and name not in present]
    if missing:
        where = ", ".join(f"{name} at {job.checkouts[name]}" for name in missing)
        raise SourceError(f"there is no checkout of {where}", tip="check it out first, or name its folder")
    if not present:
        folders = ", ".join(str(path) for path in job.checkouts.values())
        raise SourceError(
            f"there is nothing to build: no checkout at {folders}",
            tip="check the projects out first, or name their folders",
        )


def _checkout(project: Project, folder: Path, *, suffix: str | None, rocm: bool) -> None:
    """Check the tree of a project: finished, buildable, and with a version that a wheel can have.

    Args:
        project: of the stack.
        folder: its checkout.
        suffix: what is added to its version; None where that is not known yet.
        rocm: it is built for GPUs, and must be hipified where it does not do so itself.

    Raises:
        SourceError: it is unfinished, not hipified, or has nothing to build.
        UsageError: the suffix cannot follow its version.
    """
    describe.require_finished(project, folder)
    if rocm and hipify_run.runs_at_checkout(project.hipify):
        root = root_at(folder)
        if not hipify_step.is_done(root, journal.read(root.git_dir), project.hipify):
            raise SourceError(
                f"the checkout {folder} of {project.name} is not hipified, as a build for ROCm needs",
                tip="hipify it, with --hipify or the `hipify` command of its script; or build for cpu",
            )
    source_tree.source_dir(project, folder)
    base = describe.base_version(project, folder)
    if base is not None and suffix:
        try:
            Version(base + suffix)
        except InvalidVersion:
            raise UsageError(
                f"{base + suffix!r} would be the version of {project.name}, and is not a valid one (PEP 440)",
                tip="change --version-suffix, or the version file of the checkout",
            ) from None


def _writable(folder: Path, *, room: int = 0) -> None:
    """Make a folder, and check that it can be written to.

    Args:
        folder: which.
        room: bytes that must be free there.

    Raises:
        SystemFailureError: it cannot, or no space is left there.
    """
    # Permissions do not tell: a file system may be read-only, or full, or another user's (root of NFS).
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise SystemFailureError(
            f"cannot write to {folder}: {error.strerror}", tip="name a different folder, or free space there"
        ) from error
    free = shutil.disk_usage(folder).free
    if free < room:
        raise SystemFailureError(
            f"only {console.size(free)} are free at {folder}",
            tip="free some space there, or name a different folder",
        )
