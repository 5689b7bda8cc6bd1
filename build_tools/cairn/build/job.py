"""A build as a person asks for it, turned into a request: which checkouts, which SDK, which targets."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cairn import files
from cairn import targets as gpu
from cairn.build import plan, preflight, rocm_sdk, scheduler, write_outputs
from cairn.build.inputs import overrides
from cairn.build.model import BuildRequest, BuiltWheel, CompilerCache, Sdk, python_tag
from cairn.build.plan import Plan
from cairn.errors import SourceError, UsageError, WheelError
from cairn.output import console
from cairn.sources.checkout import checkout, release_line
from cairn.stack import Stack
from cairn.wheels.metadata import rocm_version as metadata_rocm_version

_BUILD_NUMBER = re.compile(r"[0-9]{1,9}")  # torch's setup.py computes with it


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a person wants built.

    Attributes:
        stack: the stack, as loaded.
        line: release line that the person named; None takes that of the checkouts.
        checkouts: project name to folder.
        required: projects that must be built; others are left out where their checkout is missing.
        output_dir: where the wheels go.
        sdk: which ROCm SDK, if one is installed now.
        install_rocm: install it first.
        targets: as the person wrote them; None takes what the SDK serves, or the stack's.
        version_suffix: as the person wrote it; None derives it from the SDK.
        build_number: what upstream's `*_BUILD_NUMBER` variables get.
        features: features switched on or off; others as the stack says.
        channel: channel the SDK must be of, such as `nightly`; None takes any.
        jobs: compile jobs at once; 0 is one per processor.
        clean: build everything again.
        compiler_cache: program put in front of the compilers.
        build_env: variables for builds, as the person wrote them (`cairn.build.inputs.overrides`).
        env_dir: where environments are kept; None is a folder in the cache that belongs to the stack.
    """

    stack: Stack
    line: str | None = None
    checkouts: Mapping[str, Path]
    required: frozenset[str] = frozenset()
    output_dir: Path
    sdk: rocm_sdk.Wanted = field(default_factory=rocm_sdk.Wanted)
    install_rocm: bool = False
    targets: str | None = None
    version_suffix: str | None = None
    build_number: str = "1"
    features: Mapping[str, bool] = field(default_factory=dict)
    channel: str | None = None
    jobs: int = 0
    clean: bool = False
    compiler_cache: CompilerCache | None = None
    build_env: tuple[str, ...] = ()
    env_dir: Path | None = None

    def __post_init__(self) -> None:
        if self.version_suffix:
            metadata_rocm_version.check_suffix(self.version_suffix)
        if not _BUILD_NUMBER.fullmatch(self.build_number):
            raise UsageError(
                f"{self.build_number[:100]!r} is not a build number", tip="it is a number such as 1 or 2"
            )

    def environments(self) -> Path:
        """Where this job keeps its environments."""
        if self.env_dir is not None:
            return self.env_dir.absolute()
        name = hashlib.sha256(os.fsencode(self.stack.folder)).hexdigest()[:12]
        return files.cache_dir() / "envs" / f"{self.stack.name}-{name}-{python_tag()}"


def plan_of(job: Job) -> Plan:
    """What the job would build; nothing is installed.

    Raises:
        SourceError: a checkout is missing.
        PrerequisiteError: no ROCm SDK is installed yet.
    """
    job = _without_rocms_own(job)
    preflight.run(_checks(job))
    return plan.make(_request(job, _sdk(job, install=False)))


def run(job: Job) -> tuple[BuiltWheel, ...]:
    """Build the wheels, and write `manifest.json` and `set.json` beside them.

    Raises:
        CairnError: of whatever stopped it.
    """
    job = _without_rocms_own(job)
    rooms = {job.output_dir.absolute(): 0, job.environments(): preflight.ROOM, files.cache_dir(): 0}
    places = (functools.partial(preflight.writable, folder, room=room) for folder, room in rooms.items())
    preflight.run([*_checks(job), *places])
    if unseen := overrides.not_passed():
        console.current().info(f"builds do not see {', '.join(unseen)}: name what they need with --build-env")
    with _alone(job):
        request = _request(job, _sdk(job, install=job.install_rocm))
        made = plan.make(request)
        wheels = scheduler.run(made)
        trees = [checkout.inspect(step.project, step.checkout) for step in made.steps]
        write_outputs.write(request, wheels, trees)
        return wheels


def _checks(job: Job) -> Iterator[preflight.Check]:
    """What is looked at before the SDK is installed."""
    suffix = job.version_suffix
    if suffix is None and job.stack.sdk is None:
        suffix = job.stack.version_suffix
    yield functools.partial(_check_targets, job)
    yield functools.partial(_check_sdk_version, job)
    yield functools.partial(overrides.parse, job.build_env, job.stack)
    yield functools.partial(_check_present, job)
    yield functools.partial(release_line.line_of, job.stack, job.checkouts, asked=job.line)
    for_cpu = _is_for_cpu(job)
    for project in job.stack.projects:
        folder = job.checkouts.get(project.name)
        if folder is not None and folder.is_dir():
            yield functools.partial(
                preflight.checkout, project, folder.absolute(), suffix=suffix, gpu=not for_cpu
            )
    yield functools.partial(preflight.tools, for_cpu=for_cpu, launcher=None)
    yield functools.partial(preflight.tools, for_cpu=False, launcher=job.compiler_cache)
    if job.stack.sdk is not None and not for_cpu and not job.install_rocm:
        yield functools.partial(rocm_sdk.existing, job.environments() / "sdk")


def _without_rocms_own(job: Job) -> Job:
    """The job without the projects that a build for the CPU cannot have; those that are there are named.

    Raises:
        UsageError: one was asked for by name.
    """
    own = [p.name for p in job.stack.projects if p.rocm_only and p.name in job.checkouts]
    if not own or not _is_for_cpu(job):
        return job
    if asked := [name for name in own if name in job.required]:
        raise UsageError(
            f"{' and '.join(asked)} cannot be built for the CPU", tip="leave it out, or name GPU targets"
        )
    for name in own:
        if job.checkouts[name].is_dir():
            console.current().info(f"skipping {name}: there is no build of it without ROCm")
    checkouts = {name: path for name, path in job.checkouts.items() if name not in own}
    return dataclasses.replace(job, checkouts=checkouts)


def _check_targets(job: Job) -> None:
    targets = gpu.parse_targets(job.targets or job.stack.targets)
    if job.stack.sdk is None and targets != (gpu.CPU,):
        raise UsageError(
            f"the stack {job.stack.name} is built without ROCm, and not for {', '.join(targets)}",
            tip="leave the targets out, or name cpu",
        )


def _check_sdk_version(job: Job) -> None:
    if job.sdk.version is not None and job.stack.sdk is not None and not _is_for_cpu(job):
        _check_channel(job, job.sdk.version)


def _check_present(job: Job) -> None:
    present = [name for name, path in job.checkouts.items() if path.is_dir()]
    missing = [name for name in job.checkouts if name in job.required and name not in present]
    if missing:
        places = ", ".join(f"{name} at {job.checkouts[name]}" for name in missing)
        raise SourceError(f"there is no checkout of {places}", tip="check it out first, or name its folder")
    if not present:
        folders = ", ".join(str(path) for path in job.checkouts.values())
        raise SourceError(
            f"there is nothing to build: no checkout at {folders}",
            tip="check the projects out first, or name their folders",
        )


def _is_for_cpu(job: Job) -> bool:
    if job.stack.sdk is None:
        return True
    try:
        return job.targets is not None and gpu.parse_targets(job.targets) == (gpu.CPU,)
    except UsageError:
        return False  # `_check_targets` says so


def install_rocm(job: Job) -> Sdk:
    """Install the SDK for later builds of the same stack."""
    with _alone(job):
        return _installed(job)


def _alone(job: Job) -> contextlib.AbstractContextManager[None]:
    folder = job.environments()
    return files.locked(
        folder / "build.lock",
        on_wait=lambda: console.current().info(f"waiting for another build that uses {folder}"),
    )


def features(
    stack: Stack, targets: Collection[str], projects: Collection[str], chosen: Mapping[str, bool]
) -> frozenset[str]:
    """The features that are on: as chosen, else where the stack says that they work."""
    able = {
        name
        for name, feature in stack.features.items()
        if set(feature.needs) <= set(projects) and any(t.startswith(feature.targets) for t in targets)
    }
    return frozenset(
        (able | {n for n, on in chosen.items() if on}) - {n for n, on in chosen.items() if not on}
    )


def _sdk(job: Job, *, install: bool) -> Sdk | None:
    if _is_for_cpu(job):
        return None
    return _installed(job) if install else rocm_sdk.existing(job.environments() / "sdk")


def _installed(job: Job) -> Sdk:
    log = job.environments() / "logs" / "install-rocm.log"
    with console.current().stage("install the ROCm SDK") as stage:
        return rocm_sdk.install(job.environments() / "sdk", job.sdk, log=log, say=stage.update)


def _check_channel(job: Job, rocm_version: str) -> None:
    try:
        found = metadata_rocm_version.channel_of(rocm_version)
    except WheelError as error:
        raise UsageError(f"{rocm_version!r} is not a version of ROCm: {error}", tip=error.tip) from error
    if job.channel not in (None, found):
        raise UsageError(
            f"a {job.channel} release was asked for, but ROCm {rocm_version} is {found}",
            tip="install the SDK of that channel, or leave --release-type out",
        )


def _request(job: Job, installed: Sdk | None) -> BuildRequest:
    if installed is not None:
        _check_channel(job, installed.info.version)
    suffix = job.version_suffix
    if suffix is None:
        suffix = (
            metadata_rocm_version.suffix(installed.info.version)
            if installed
            else job.stack.version_suffix or ""
        )
    served = installed.info.targets if installed else job.stack.targets
    targets = gpu.parse_targets(job.targets or served)
    checkouts = _present(job)
    return BuildRequest(
        stack=job.stack.for_line(release_line.line_of(job.stack, checkouts, asked=job.line)),
        checkouts=checkouts,
        output_dir=job.output_dir.absolute(),
        work_dir=job.environments(),
        cache_dir=files.cache_dir() / "wheels",
        targets=targets,
        sdk=installed,
        version_suffix=suffix,
        build_number=job.build_number,
        features=features(job.stack, targets, checkouts, job.features),
        jobs=job.jobs or os.cpu_count() or 1,
        clean=job.clean,
        compiler_cache=job.compiler_cache,
        build_env=overrides.parse(job.build_env, job.stack),
        pip=job.sdk.source.without_index(),
    )


def _present(job: Job) -> dict[str, Path]:
    present = {name: path.absolute() for name, path in job.checkouts.items() if path.is_dir()}
    for name in job.checkouts.keys() - present.keys():
        console.current().info(f"no checkout of {name} at {job.checkouts[name]}: it is left out")
    return present
