"""A build from beginning to end: checked, resolved into a request, planned, run, and its outputs written.

`run` is the whole of it. The pipeline, which makes its own ROCm SDK between the steps, calls `check`,
`install_rocm` and `build` in this order.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from cairn import files
from cairn import targets as gpu
from cairn.build import plan, preflight, rocm_sdk, scheduler
from cairn.build.inputs import overrides, toolchain
from cairn.build.model import (
    BuildRequest,
    BuiltWheel,
    InstalledSdk,
    Job,
)
from cairn.errors import UsageError
from cairn.output import console
from cairn.sources.checkout import describe, release_line
from cairn.sources.checkout.describe import Checkout
from cairn.sources.manifest import manifest
from cairn.sources.manifest.manifest import Manifest
from cairn.stack import Stack
from cairn.wheels import wheels_to_set
from cairn.wheels import wheelset as wheel_sets
from cairn.wheels.metadata import rocm_version


def plan_of(job: Job) -> plan.Plan:
    """What the job would build; nothing is installed.

    Raises:
        SourceError: a checkout is missing.
        PrerequisiteError: no ROCm SDK is installed yet.
    """
    job = _without_rocm_only(job)
    preflight.run(preflight.checks(job))
    return plan.make(resolve(job, _existing_sdk(job)))


def run(job: Job) -> tuple[BuiltWheel, ...]:
    """Build the wheels, and write `manifest.json` and `set.json` beside them.

    Raises:
        CairnError: of whatever stopped it.
    """
    job = check(job)
    with _alone(job):  # builds of one stack share their environments
        installed = _install(job, None) if job.install_rocm and not job.for_cpu() else _existing_sdk(job)
        return build(job, installed)


def check(job: Job) -> Job:
    """Report everything that is known to be wrong before anything is installed or built.

    Returns:
        The job, without the projects that cannot be built for the CPU.

    Raises:
        CairnError: the only problem.
        ProblemsError: several.
    """
    job = _without_rocm_only(job)
    preflight.run([*preflight.checks(job), *preflight.places(job)])
    if unseen := overrides.not_passed():
        console.current().info(f"builds do not see {', '.join(unseen)}: name what they need with --build-env")
    return job


def install_rocm(job: Job, *, log: Path | None = None) -> InstalledSdk:
    """Install the SDK for later builds of the same stack; `log` receives pip's output."""
    with _alone(job):
        return _install(job, log)


def build(
    job: Job, installed: InstalledSdk | None, *, trees: Sequence[Checkout] | None = None
) -> tuple[BuiltWheel, ...]:
    """Build a job that was checked, with the SDK that is installed for it.

    Args:
        job: what to build.
        installed: the SDK; None for `cpu`.
        trees: the checkouts of all projects, where the caller has just made them; read again otherwise.
    """
    request = resolve(job, installed)
    if job.frozen is not None:
        _refuse_other_manifest(job.frozen, request)
    made = plan.make(request)
    wheels = scheduler.run(made)
    names = {step.project.name for step in made.steps}
    if trees is None:  # after the build, which may have hipified a tree
        trees = [describe.describe(step.project, step.checkout) for step in made.steps]
    request.wheel_cache.bound()
    built_from = [tree for tree in trees if tree.project.name in names]
    write_outputs(request, wheels, job.frozen or _manifest_of(request, built_from))
    return wheels


def resolve(job: Job, installed: InstalledSdk | None) -> BuildRequest:
    """The request that follows from a job and the SDK that is there: the one way from what a user wrote.

    Raises:
        UsageError: the SDK is of a different channel, or the job names a target that does not exist.
    """
    if installed is not None:
        preflight.channel(job, installed.info.version)
    # What the user did not say follows from the SDK, and where there is none from the stack.
    suffix = job.version_suffix
    if suffix is None:
        suffix = rocm_version.suffix(installed.info.version) if installed else job.stack.version_suffix or ""
    targets = gpu.parse_targets(job.targets or (installed.info.targets if installed else job.stack.targets))
    checkouts = {name: path.absolute() for name, path in job.checkouts.items() if path.is_dir()}
    for name, path in job.checkouts.items():
        if name not in checkouts:
            console.current().info(f"skipping {name}: no checkout at {path}")
    return BuildRequest(
        stack=job.stack.for_line(release_line.line_of(job.stack, checkouts, asked=job.line)),
        checkouts=checkouts,
        output_dir=job.output_dir.absolute(),
        work_dir=job.environments(),
        cache_dir=files.cache_dir() / "wheels",
        shared_cache=job.shared_cache,
        targets=targets,
        sdk=installed,
        version_suffix=suffix,
        build_number=job.build_number,
        features=features(job.stack, targets, checkouts, job.features),
        jobs=job.jobs or os.cpu_count() or 1,
        python=job.python,
        clean=job.clean,
        compiler_cache=job.compiler_cache,
        build_env=overrides.parse(job.build_env, job.stack),
        pip=job.sdk.source.without_index(),  # an index of ROCm has no setuptools
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


def _without_rocm_only(job: Job) -> Job:
    """The job without the projects that cannot be built for the CPU; says which checkouts are skipped.

    Raises:
        UsageError: one was asked for by name.
    """
    own = [p.name for p in job.stack.projects if p.rocm_only and p.name in job.checkouts]
    if not own or not job.for_cpu():
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


def _alone(job: Job) -> contextlib.AbstractContextManager[None]:
    folder = job.environments()
    return files.locked(
        folder / "build.lock",
        on_wait=lambda: console.current().info(f"waiting for another build that uses {folder}"),
    )


def _existing_sdk(job: Job) -> InstalledSdk | None:
    return None if job.for_cpu() else rocm_sdk.existing(job.environments() / "sdk")


def _install(job: Job, log: Path | None) -> InstalledSdk:
    log = log or job.environments() / "logs" / "install-rocm.log"
    with console.current().stage("install the ROCm SDK") as stage:
        return rocm_sdk.install(
            job.environments() / "sdk", job.sdk, python=job.python, log=log, say=stage.update
        )


def write_outputs(request: BuildRequest, wheels: Sequence[BuiltWheel], frozen: Manifest) -> None:
    """Write the manifest of what was built from, and the (open) set that the wheels form."""
    manifest.write(request.output_dir / "manifest.json", frozen)
    wheel_set = wheels_to_set.make(
        [wheel.wheel for wheel in wheels],
        manifest_sha256=frozen.digest(),
        stack=request.stack.name,
        line=request.stack.line,
        python=request.python.version,
        platform=request.python.platform,
        family=gpu.family_of(request.targets),
        targets=request.targets,
        requirements=rocm_sdk.runtime_requirements(request.sdk) if request.sdk else (),
    )
    wheel_sets.write(request.output_dir / "set.json", wheel_set)


def _manifest_of(request: BuildRequest, checkouts: Sequence[Checkout]) -> Manifest:
    """The manifest of a build that is given none: of what was built from, for its own Python and platform."""
    return manifest.create(
        checkouts,
        stack=request.stack.name,
        line=request.stack.line,
        targets=request.targets,
        pythons=(request.python.version,),
        platform=request.python.platform,
        sdk_version=request.sdk.info.version if request.sdk else None,
        build_env=request.build_env,
        toolchain=toolchain.of_manifest(request.python, host_compiler=request.sdk is None),
    )


def _refuse_other_manifest(frozen: Manifest, request: BuildRequest) -> None:
    """Refuse a manifest that the build cannot be of; whether its trees are here, the caller has looked.

    Raises:
        UsageError: it was frozen for something else than what is asked for.
    """
    has_sdk = request.sdk.info.version if request.sdk else None
    wrong = [
        f"{what} {frozen_as}, not {asked}"
        for what, frozen_as, asked in (
            ("stack", frozen.stack, request.stack.name),
            ("line", frozen.line, request.stack.line),
            ("ROCm SDK", frozen.sdk_version, has_sdk if request.sdk else frozen.sdk_version),
            ("variables", dict(frozen.build_env), dict(request.build_env)),
        )
        if frozen_as != asked
    ]
    for what, known, asked_for in (
        ("Python", frozen.pythons, (request.python.version,)),
        ("platform", frozen.every_platform, (request.python.platform,)),
        ("targets", frozen.targets, request.targets),
    ):
        if lacking := [name for name in asked_for if name not in known]:
            wrong.append(f"{what} {', '.join(known)}, not {', '.join(lacking)}")
    if wrong:
        raise UsageError(
            f"the manifest was frozen for something else: {'; '.join(wrong)}",
            tip="freeze one for this build, or build what it was frozen for",
        )
