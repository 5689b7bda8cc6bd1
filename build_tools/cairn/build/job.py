"""Run a build from beginning to end: check it, resolve it into a request, plan it, run it, write its outputs.

`run` is the whole of it, for all variants of one run. The pipeline, which makes its own ROCm SDK between the
steps, calls `check`, `install_rocm` and `build` in this order.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from msgspec import structs
from packaging.utils import parse_wheel_filename

from cairn import files, platforms, venv
from cairn import targets as gpu
from cairn.build import execution, plan, preflight, rocm_sdk, variants
from cairn.build.inputs import downloads, machine, variables
from cairn.build.model import BuildRequest, BuiltWheel, InstalledSdk, Job
from cairn.errors import CairnError, UsageError
from cairn.output import console
from cairn.rocm import install as rocm
from cairn.sources import checkout_stack
from cairn.sources.checkout import describe
from cairn.sources.checkout.describe import Checkout
from cairn.sources.manifest import manifest
from cairn.sources.manifest.manifest import Manifest
from cairn.stack import Stack, recipe
from cairn.venv import PackageSource
from cairn.wheels import build_statement, wheels_to_set
from cairn.wheels import wheelset as wheel_sets
from cairn.wheels.metadata import rocm_version
from cairn.wheels.wheelset import BUILDER_FILE

_LOCK_WAIT = 12 * 3600.0  # seconds; the other build may be at torch


def plans_of(jobs: Sequence[Job]) -> tuple[plan.Plan, ...]:
    """Plan the jobs of all variants, without installing anything.

    Raises:
        SourceError: a checkout is missing.
        PrerequisiteError: no ROCm SDK is installed yet.
    """
    jobs = tuple(_for_cpu(job) for job in jobs)
    preflight.run(preflight.checks(jobs))
    _say_skipped(jobs)
    requests = [resolve(job, _existing_sdk(job)) for job in jobs]
    return plan.make_all(
        [
            request
            if request.shared_cache is None  # to look at a plan, nothing is fetched from what machines share
            else structs.replace(request, shared_cache=structs.replace(request.shared_cache, fetched=False))
            for request in requests
        ]
    )


def run(jobs: Sequence[Job]) -> tuple[tuple[BuiltWheel, ...], ...]:
    """Build the wheels of each variant into its own folder, `manifest.json` and `set.json` beside them.

    The sets of one release line are of one manifest, as the index demands of the wheels of one version.

    Raises:
        CairnError: of whatever stopped it.
    """
    jobs = check(jobs)
    with contextlib.ExitStack() as held:
        for folder in sorted({job.environments() for job in jobs}):
            held.enter_context(alone(folder))
        return build(jobs, [sdk_of(job) for job in jobs])


def check(jobs: Sequence[Job]) -> tuple[Job, ...]:
    """Report everything that is known to be wrong before anything is installed or built.

    Returns:
        The jobs, without the projects that cannot be built for the CPU.

    Raises:
        CairnError: the only problem.
        ProblemsError: several.
    """
    jobs = tuple(_for_cpu(job) for job in jobs)
    places = {folder: check for job in jobs for folder, check in preflight.places(job).items()}
    absent = {place for folder in places for place in (folder, *folder.parents) if not place.exists()}
    try:
        preflight.run([*preflight.machine_checks(jobs), *preflight.checks(jobs), *places.values()])
    except CairnError:
        for place in sorted(absent, reverse=True):  # a refused build leaves no empty folders
            with contextlib.suppress(OSError):
                place.rmdir()
        raise
    passed = {text.partition("=")[0] for job in jobs for text in job.build_env}
    flags = [variables.TARGETS_FLAG] if all(job.targets is not None for job in jobs) else []
    if unseen := variables.unseen_by_builds(jobs[0].stack, passed, flags=flags):
        console.current().info(
            f"set in this shell, and not seen by builds: {', '.join(unseen)}; name what they need with "
            "--build-env"
        )
    _say_skipped(jobs)
    return jobs


def install_rocm(job: Job, *, log: Path | None = None) -> InstalledSdk:
    """Install the SDK for later builds of the same stack; `log` receives pip's output."""
    with alone(job.environments()):
        return _install(job, log)


def sdk_of(job: Job) -> InstalledSdk | None:
    """Return a job's SDK: installed now with `install_rocm`, else the existing one; None for `cpu`.

    The caller must be `alone` in its environments.
    """
    return _install(job, None) if job.install_rocm and not job.for_cpu() else _existing_sdk(job)


def alone(folder: Path) -> contextlib.AbstractContextManager[None]:
    """Keep other builds from the environments in a folder, which those of one stack share."""
    return files.locked(
        folder / "build.lock",
        timeout=_LOCK_WAIT,
        on_wait=lambda: console.current().info(f"waiting for another build that uses {folder}"),
    )


def build(
    jobs: Sequence[Job],
    installed: Sequence[InstalledSdk | None],
    *,
    trees: Sequence[Checkout] | None = None,
) -> tuple[tuple[BuiltWheel, ...], ...]:
    """Build jobs that were checked, with the SDKs that are installed for them.

    Args:
        jobs: what to build.
        installed: the SDK of each; None for `cpu`.
        trees: the checkouts of all projects, where the caller has just made them; read again otherwise.
    """
    requests = [resolve(job, sdk) for job, sdk in zip(jobs, installed, strict=True)]
    for request in requests:
        refuse_other_manifest(request)
    plans = plan.make_all(requests)
    for step, frozen in [(step, step.request.frozen) for each in plans for step in each]:
        if frozen is not None:  # what the cache has was chosen by the trees as they are now
            manifest.require(frozen, step.project.name, step.checkout)
    if any(step.hit is None for each in plans for step in each):
        # The modules that build are loaded where something is built: it takes longer than all else here.
        from cairn.build import backend  # noqa: PLC0415

        backend.require_resolvable(plans)

    if trees is not None:
        of_line = dict.fromkeys((request.stack.line for request in requests), tuple(trees))
    else:
        of_line = trees_of(requests)

    @functools.cache
    def manifests() -> tuple[Manifest, ...]:
        return manifests_of(requests, of_line)

    def write(number: int, wheels: tuple[BuiltWheel, ...]) -> None:
        write_outputs(requests[number], wheels, jobs[number].frozen or manifests()[number])

    built = execution.run_all(
        plans,
        labels=variants.labels(jobs),
        # Several variants have one file of events, above their folders for line, family and Python.
        output_dir=requests[0].output_dir.parents[2] if jobs[0].variant else None,
        on_whole=write,
    )
    requests[0].wheel_cache.bound()
    return built


def install(job: Job, wheels: Sequence[BuiltWheel], python: Path) -> None:
    """Install the SDK that a job was built with, then its wheels, into an environment of the user's.

    The SDK comes from where the build had it, all else that the wheels need from the user's own index. Wheels
    that were there already with the same version, from an earlier build, are replaced.

    Args:
        job: the job that was built.
        wheels: its wheels.
        python: the interpreter of the environment.

    Raises:
        CairnError: pip refused.
    """
    log = job.output_dir.absolute() / "logs" / "install.log"
    environment = structs.replace(venv.describe(python.parent.parent), python=python)
    paths = [path.absolute() for wheel in wheels for path in wheel.files]
    before = venv.installed_versions(environment.sites)
    wheel_names = {path: parse_wheel_filename(path.name) for path in paths}
    same = [str(path) for path, (name, version, *_) in wheel_names.items() if (name, str(version)) in before]
    with console.current().stage(f"install the wheels into {environment.path}") as stage:
        source = PackageSource(offline=job.sdk.source.offline, cache_dir=job.sdk.source.cache_dir)
        if (sdk := _existing_sdk(job)) is not None:
            stage.update(f"rocm {sdk.info.version}")
            source = dataclasses.replace(source, find_links=sdk.source.find_links)
            request = rocm.InstallRequest(
                python=python,
                source=dataclasses.replace(source, index_url=sdk.source.index_url),
                version=sdk.info.version,
                extras=job.sdk.extras,
                family=job.sdk.family,
            )
            rocm.install(request, log=log)
        if same:
            options = ("--force-reinstall", "--no-deps")
            venv.install(environment, same, source, log=log, options=options, on_line=stage.update)
        venv.install(environment, [str(path) for path in paths], source, log=log, on_line=stage.update)


def install_line(job: Job, wheels: Sequence[BuiltWheel]) -> str:
    """Return the command line that does what `install` does, in the environment that is active then."""
    pip = ["python", "-m", "pip", "install"]
    wheel_files = [str(path) for wheel in wheels for path in wheel.files]
    words = [*pip]
    if (sdk := _existing_sdk(job)) is not None:
        words += ["--extra-index-url", sdk.source.index_url] if sdk.source.index_url else []
        words += [word for link in sdk.source.find_links for word in ("--find-links", link)]
        words.append(f"rocm[{','.join(job.sdk.extras)}]=={sdk.info.version}")
    # pip leaves an installed wheel of the same version alone, even where it is given another file.
    replace = [*pip, "--force-reinstall", "--no-deps", *wheel_files]
    return f"{shlex.join(replace)} && {shlex.join([*words, *wheel_files])}"


def resolve(job: Job, installed: InstalledSdk | None) -> BuildRequest:
    """Make the request for a job with the installed SDK; only here are the user's words interpreted.

    Raises:
        UsageError: the SDK is of a different channel, or the job names a target that does not exist, or that
            the SDK has no code for.
    """
    if installed is not None:
        preflight.sdk_targets(job, installed.info.targets)
        preflight.channel(job, installed.info.version)
        preflight.runtime_of_device_wheels(job, installed.info.version)
    # What the user did not say follows from the SDK, and where there is none from the stack.
    suffix = job.version_suffix
    if suffix is None:
        suffix = rocm_version.suffix(installed.info.version) if installed else job.stack.version_suffix or ""
    targets = gpu.parse_targets(job.targets or (installed.info.targets if installed else job.stack.targets))
    checkouts = {name: path.absolute() for name, path in job.checkouts.items() if path.is_dir()}
    changed = {
        "stack": job.stack.for_line(job.line or checkout_stack.line_of(job.stack, checkouts)),
        "checkouts": checkouts,
        "output_dir": job.output_dir.absolute(),
    }
    return BuildRequest(
        **(job.settings() | changed),
        work_dir=job.environments(),
        cache_dir=files.cache_dir() / _cache_name(job),
        targets=targets,
        sdk=installed,
        version_suffix=suffix,
        features=features(job.stack, targets, checkouts, job.features),
        jobs=job.jobs or os.cpu_count() or 1,
        build_env=variables.parse_build_env(job.build_env, job.stack),
        pip=job.sdk.source.without_index(),  # an index of ROCm has no setuptools
    )


def _cache_name(job: Job) -> str:
    """The folder of the wheels that a build may take from this machine.

    Where only those of some builders count, it is theirs, so that nothing that came otherwise, or was signed
    by one who is none any more, is in it. Builds of reviewed sources alone have one of their own again.
    """
    vouch = job.shared_cache.vouch if job.shared_cache else None
    return f"wheels-night-{job.vouched}" if job.vouched else f"wheels-{vouch.name}" if vouch else "wheels"


def features(
    stack: Stack, targets: Collection[str], checkouts: Mapping[str, Path], chosen: Mapping[str, bool]
) -> frozenset[str]:
    """Return the enabled features: chosen by the user, else those that can work according to the stack."""
    able = set()
    for name, feature in stack.features.items():
        needs, system = feature.needs, platforms.here.stack_section()
        if system == "windows" and feature.needs_windows is not None:
            needs = feature.needs_windows
        if not set(needs) <= set(checkouts) or not any(t.startswith(feature.targets) for t in targets):
            continue
        states = (b for b in feature.broken if b.platform == system and b.project in checkouts)
        if broken := next((b for b in states if _has(checkouts[b.project] / b.file, b.text)), None):
            if name not in chosen:
                console.current().info(f"  without {name}: {broken.file} names {broken.text}")
            continue
        able.add(name)
    return frozenset(
        (able | {n for n, on in chosen.items() if on}) - {n for n, on in chosen.items() if not on}
    )


def _has(path: Path, text: str) -> bool:
    return path.is_file() and text in path.read_text(encoding="utf-8", errors="replace")


def _say_skipped(jobs: Sequence[Job]) -> None:
    missing = {path: name for job in jobs for name, path in job.checkouts.items() if not path.is_dir()}
    for path, name in missing.items():
        console.current().info(f"skipping {name}: no checkout at {path}")


def _for_cpu(job: Job) -> Job:
    """Drop the projects that cannot be built for the CPU from a job for the CPU.

    Raises:
        UsageError: one was asked for by name.
    """
    rocm_only = [p.name for p in job.stack.projects if p.rocm_only and p.name in job.checkouts]
    if not rocm_only or not job.for_cpu():
        return job
    if required := [name for name in rocm_only if name in job.required]:
        raise UsageError(
            f"{' and '.join(required)} cannot be built for the CPU", tip="leave it out, or name GPU targets"
        )
    for name in rocm_only:
        if job.checkouts[name].is_dir():
            console.current().info(f"skipping {name}: there is no build of it without ROCm")
    checkouts = {name: path for name, path in job.checkouts.items() if name not in rocm_only}
    return structs.replace(job, checkouts=checkouts)


def _existing_sdk(job: Job) -> InstalledSdk | None:
    return None if job.for_cpu() else rocm_sdk.existing(job.environments() / "sdk", job.python)


def _install(job: Job, log: Path | None) -> InstalledSdk:
    log = log or job.environments() / "logs" / "install-rocm.log"
    with console.current().stage("install the ROCm SDK") as stage:
        return rocm_sdk.install(
            job.environments() / "sdk", job.sdk, python=job.python, log=log, say=stage.update
        )


def write_outputs(request: BuildRequest, wheels: Sequence[BuiltWheel], frozen: Manifest) -> None:
    """Write the manifest of the sources, the (open) set of the wheels, and the builder's statement.

    Raises:
        WheelError: a wheel is not of the manifest's commits: a tree was moved meanwhile.
    """
    for name in ("set.json", BUILDER_FILE):  # of an earlier build; one that is refused leaves none
        (request.output_dir / name).unlink(missing_ok=True)
    manifest.write(request.output_dir / "manifest.json", frozen)
    wheel_set = wheels_to_set.make(
        [file for wheel in wheels for file in wheel.files],
        manifest_sha256=frozen.digest(),
        stack=request.stack.name,
        line=request.stack.line,
        python=request.python.version,
        platform=request.python.platform,
        family=gpu.family_of(request.targets),
        targets=request.targets,
        requirements=rocm_sdk.runtime_requirements(request.sdk, devices=not request.split)
        if request.sdk
        else (),
    )
    statement = build_statement.of_set(
        wheel_set,
        [file for wheel in wheels for file in wheel.files],
        manifest=frozen.canonical(),
        inputs={
            **(request.sdk.files if request.sdk else {}),
            **{wheel.project: wheel.first_key for wheel in wheels},
        },
    )
    wheel_sets.write(request.output_dir / "set.json", wheel_set)
    if edited := [wheel.project for wheel in wheels if wheel.edited]:
        console.current().warn(
            f"{', '.join(edited)} was edited while it was built: nobody can say what the set is of, and it "
            "cannot be published; build it again"
        )
        return
    files.write_bytes(request.output_dir / BUILDER_FILE, build_statement.encode(statement))


def trees_of(requests: Sequence[BuildRequest]) -> dict[str, tuple[Checkout, ...]]:
    """Describe the trees of each line as builds are about to find them.

    What a build leaves there is not in a manifest: whoever checks that out does not have it.
    """
    of_line = {request.stack.line: request for request in requests}
    return {
        line: tuple(describe.describe(p, job.checkouts[p.name]) for p in job.projects())
        for line, job in of_line.items()
    }


def manifests_of(
    requests: Sequence[BuildRequest], trees: Mapping[str, Sequence[Checkout]]
) -> tuple[Manifest, ...]:
    """Make the manifest of each build from its sources.

    Families and Pythons of one line and SDK share it: the index takes the wheels of one version from one
    manifest only.

    Args:
        requests: the builds of one run, now over.
        trees: the checkouts of each line, as they were before that.
    """
    groups: dict[tuple[str, str | None], list[BuildRequest]] = {}
    for request in requests:
        groups.setdefault(_shares(request), []).append(request)
    by_group = {key: _manifest_of(group, trees[key[0]]) for key, group in groups.items()}
    return tuple(by_group[_shares(request)] for request in requests)


def _shares(request: BuildRequest) -> tuple[str, str | None]:
    """Return the properties that builds of one manifest have in common."""
    return (request.stack.line, request.sdk.info.version if request.sdk else None)


def _manifest_of(group: Sequence[BuildRequest], trees: Sequence[Checkout]) -> Manifest:
    first = group[0]
    tools = [
        machine.toolchain_of_manifest(job.python, host_compiler=job.sdk is None, build_env=job.build_env)
        for job in group
    ]
    pythons = dict.fromkeys(tool["python"] for tool in tools)
    return manifest.create(
        [tree for tree in trees if tree.project.name in first.checkouts],
        stack=first.stack.name,
        line=first.stack.line,
        targets=gpu.in_order(target for job in group for target in job.targets)
        if len(group) > 1
        else first.targets,
        pythons=tuple(dict.fromkeys(job.python.version for job in group)),
        platform=first.python.platform,
        sdk_version=first.sdk.info.version if first.sdk else None,
        build_env=first.build_env,
        toolchain=tools[0] | {"python": "; ".join(pythons)},
        downloads=downloads.sources(group),
        recipe=recipe.digest_of(first.stack),
    )


def refuse_other_manifest(request: BuildRequest) -> None:
    """Refuse a manifest that the build cannot be of; whether its trees are here, `manifest.require` says.

    Raises:
        UsageError: it was frozen for something else than what is asked for.
    """
    if (frozen := request.frozen) is None:
        return
    has_sdk = request.sdk.info.version if request.sdk else None
    wrong = [
        f"{property_name} {frozen_as}, not {requested}"
        for property_name, frozen_as, requested in (
            ("stack", frozen.stack, request.stack.name),
            ("line", frozen.line, request.stack.line),
            ("ROCm SDK", frozen.sdk_version, has_sdk if request.sdk else frozen.sdk_version),
            ("variables", dict(frozen.build_env), dict(request.build_env)),
            ("recipe", frozen.recipe, recipe.digest_of(request.stack)),
        )
        if frozen_as != requested
    ]
    for property_name, frozen_values, asked_for in (
        ("Python", frozen.pythons, (request.python.version,)),
        ("platform", frozen.every_platform, (request.python.platform,)),
        ("targets", frozen.targets, request.targets),
    ):
        if lacking := [name for name in asked_for if name not in frozen_values]:
            wrong.append(f"{property_name} {', '.join(frozen_values)}, not {', '.join(lacking)}")
    if wrong:
        raise UsageError(
            f"the manifest was frozen for something else: {'; '.join(wrong)}",
            tip="freeze one for this build, or build what it was frozen for",
        )
