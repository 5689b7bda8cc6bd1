"""Make the wheels of a leg of a night, or of all families of a line and Python, for the next job.

Left in a folder are the wheels, and for each leg an open set of those that are its own. A leg with a build of
its own has that at the top, the others in a folder of their id.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from cairn import files, interpreters
from cairn import targets as gpu
from cairn.build import cache, job, preflight
from cairn.build.cache import SharedCache
from cairn.build.model import BuiltWheel, InstalledSdk, Job, SdkRequest
from cairn.errors import PrerequisiteError, SourceError, UsageError
from cairn.interpreters import Interpreter
from cairn.matrix.legs import Build, Leg
from cairn.output import console
from cairn.pipeline import staging
from cairn.pipeline.night import plan, signed
from cairn.pipeline.night.plan import NightRun
from cairn.pipeline.night.versions import sdk_url
from cairn.pipeline.pipeline_options import LegBuildOptions
from cairn.pipeline.staging import SET_FILE
from cairn.release.publish import mirror_lock, sdk_index
from cairn.release.publish.compatibility import Platform
from cairn.rocm import install as rocm
from cairn.sources import checkout_stack
from cairn.sources.checkout.checkout import CheckoutRequest
from cairn.sources.checkout.describe import Checkout
from cairn.sources.git import url as git_url
from cairn.sources.manifest import manifest, restore
from cairn.sources.manifest.manifest import Manifest, ProjectSource
from cairn.stack import Stack
from cairn.targets import CPU
from cairn.venv import PackageSource
from cairn.wheels import build_statement, wheels_to_set, wheelset
from cairn.wheels.wheelset import BUILDER_FILE

_LOCK_WAIT = 12 * 3600.0  # seconds; the other build may be at torch

SDK_FOLDER = "rocm-sdk"
"""Below the wheels: the ROCm SDK packages that a stack made itself, which are staged with them."""


@dataclass(frozen=True, kw_only=True)
class LegBuild(LegBuildOptions):
    """A build of a night to make on this machine.

    Attributes:
        run: the night.
        build: one of its builds.
        output_dir: receives the wheels, their sets, `manifest.json` and the SDK that a stack made itself.
        shared_cache: where built wheels are kept for other machines; None for nowhere.
    """

    run: NightRun
    build: Build
    output_dir: Path
    shared_cache: SharedCache | None = None

    @property
    def stack(self) -> Stack:
        """The stack of the night, on its line."""
        return self.run.stack

    @property
    def own_dir(self) -> Path:
        """The build's own part of the work folder."""
        return self.work_dir.absolute() / self.build.id

    @property
    def for_cpu(self) -> bool:
        """Whether it is built without ROCm."""
        return self.stack.sdk is None or plan.targets_of(self.build) == (CPU,)


def build_leg(request: LegBuild) -> tuple[BuiltWheel, ...]:
    """Make the wheels of a build from exactly the frozen inputs of the night, and the set of each leg of it.

    Raises:
        PrerequisiteError: this is a different Python or platform than the leg's.
        SourceError: the checkouts cannot be made as they were frozen.
        BuildError: a project did not become a wheel.
    """
    build, python = request.build, interpreters.find(request.build.python)
    if python.platform != build.platform:  # first: nothing is downloaded for a machine that cannot build it
        raise PrerequisiteError(
            f"{build.name} is for {build.platform}, and this machine builds for {python.platform}",
            tip=f"give the runner labels {', '.join(build.build_runs_on)} to machines of that kind",
        )
    # A run of another night would move the trees under this one.
    waiting = functools.partial(
        console.current().info, f"waiting for another build of {build.id} in {request.work_dir}"
    )
    with files.locked(request.own_dir / "leg.lock", timeout=_LOCK_WAIT, on_wait=waiting):
        frozen = plan.frozen(request.run)
        trees = checkouts(
            request.stack,
            frozen,
            request.own_dir / "src",
            name=f"check out what the night {request.run.plan.night} froze",
        )
        build_job = _job(request, frozen, python)
        preflight.targets(build_job)
        (build_job,) = job.check((build_job,))
        installed = None if request.for_cpu else _install_sdk(request, build_job, frozen)
        (wheels,) = job.build((build_job,), (installed,), trees=trees)
        _write_sets(request)
        return wheels


def set_folder(folder: Path, leg: Leg) -> Path:
    """Return where a build that left its wheels in `folder` left the set of a leg."""
    return folder if leg.build_id == leg.id else folder / leg.id


def _write_sets(request: LegBuild) -> None:
    """Write the sets of legs that share a build: the host wheels, and the device wheels of their targets."""
    folder = request.output_dir
    for leg in map(request.run.plan.leg, request.build.legs):
        if (place := set_folder(folder, leg)) != folder:
            whole, statement = wheelset.read(folder / SET_FILE), build_statement.beside(folder / SET_FILE)
            part = wheels_to_set.part_of(whole, plan.targets_of(leg))
            place.mkdir(parents=True, exist_ok=True)
            files.write_bytes(place / BUILDER_FILE, build_statement.of_part(statement, part))
            wheelset.write(place / SET_FILE, part)


def checkouts(
    stack: Stack, frozen: Manifest, folder: Path, *, name: str, exact: bool = True
) -> tuple[Checkout, ...]:
    """Check out what a manifest froze, and prove by the trees that it is the same.

    Args:
        stack: says how each project is checked out, and its order.
        frozen: the manifest.
        folder: receives a checkout for each project.
        name: of the stage on the console.
        exact: whether its trees are those of its commits; not if these were replaced.

    Raises:
        SourceError: the checkouts cannot be made as they were frozen.
    """
    folders = {p.name: folder / stack.project(p.name).checkout_dir for p in frozen.projects}
    with console.current().stage(name) as stage:
        tools, log = folder.parent / "tools", folder.parent / "logs" / "tools.log"
        python = staging.hipify_python(stack, tools, log=log, say=stage.update)
        requests = {
            source.name: CheckoutRequest(
                project=stack.project(source.name),
                checkout_dir=folders[source.name],
                origin=origin_of(stack, source),
                python=python,
            )
            for source in frozen.projects
        }
        trees = restore.reproduce(frozen, requests, say=stage.update)
        stage.update("comparing the trees")
        if exact and (problems := manifest.verify(frozen, folders)):
            raise SourceError(f"the checkouts are not what was frozen: {'; '.join(problems)}")
    order = {project.name: place for place, project in enumerate(stack.in_order())}
    return tuple(sorted(trees, key=lambda checkout: order[checkout.project.name]))


def origin_of(stack: Stack, source: ProjectSource) -> str:
    """Return this machine's origin of a frozen source; empty for the one in the manifest."""
    if not git_url.is_local(source.origin):
        return ""
    # An origin that the stack describes by a tree is made in the cache of each machine.
    return checkout_stack.materialized(stack.project(source.name)) or ""


def _job(request: LegBuild, frozen: Manifest, python: Interpreter) -> Job:
    stack, trust = request.stack, request.run.trust
    builders = None if trust is None else trust.builders
    return Job(
        stack=stack,
        line=stack.line,
        checkouts={p.name: request.own_dir / "src" / p.checkout_dir for p in stack.projects},
        output_dir=request.output_dir,
        sdk=SdkRequest(version=frozen.sdk_version, family=_sdk_family(request)),
        install_rocm=not request.for_cpu,
        targets=request.build.targets,
        jobs=request.jobs,
        build_env=tuple(f"{name}={value}" for name, value in frozen.build_env.items()),
        env_dir=request.own_dir / "envs",
        python=python,
        compiler_cache=request.compiler_cache,
        shared_cache=request.shared_cache,
        vouched="" if builders is None else signed.name_of(builders),
        split=request.build.split,
        version_suffix=plan.version_suffix(stack, frozen, plan.targets_of(request.build)),
        frozen=frozen,
    )


def _sdk_family(request: LegBuild) -> str | None:
    """Return the family of the SDK's libraries; None where they serve all families, or there are none."""
    if request.for_cpu or (request.build.split and not request.stack.makes_sdk):
        return None
    if request.build.split:
        return gpu.family_of(plan.targets_of(request.build))  # as its packages are named
    return request.build.families[0]


def _install_sdk(request: LegBuild, build_job: Job, frozen: Manifest) -> InstalledSdk:
    logs = request.own_dir / "logs"
    if request.stack.makes_sdk:
        return _install_own_sdk(request, build_job, logs)
    if not frozen.rocm_index_url:
        raise UsageError(
            f"the night {request.run.plan.night} names no index of the ROCm SDK {frozen.sdk_version}",
            tip="begin another: cairn ci night freeze --rocm-index-url URL",
        )
    url = sdk_url(frozen.rocm_index_url, request.build)
    sdk = structs.replace(build_job.sdk, source=PackageSource(index_url=url, pre=True))
    here = Platform(python=build_job.python.version, tag=build_job.python.platform)
    if request.run.has_root:
        lock = mirror_lock.of_root(request.stack)
        source = sdk_index.reviewed(url, lock, here, request.own_dir / "sdk-index")
        sdk = structs.replace(
            sdk, source=source, digest=cache.key_of(lock.sdk), reviewed=mirror_lock.locked_hashes(lock)
        )
    installed = job.install_rocm(structs.replace(build_job, sdk=sdk), log=logs / "install-sdk.log")
    if not request.build.split:
        return installed
    if rocm.device_packages(installed.environment) is None:
        raise UsageError(
            f"the ROCm SDK {frozen.sdk_version} of {url} is that of one family, and "
            f"{request.build.name} needs one that serves every target",
            tip="freeze with an index of such (--rocm-index-url), or take build_together out of matrix.toml",
        )
    processors = dict.fromkeys(gpu.parse_target_id(name).processor for name in plan.targets_of(request.build))
    devices = sdk_index.device_packages(url, installed.info.version, processors, here)
    return structs.replace(installed, files={**installed.files, **devices})


def _install_own_sdk(request: LegBuild, build_job: Job, logs: Path) -> InstalledSdk:
    """Install the ROCm SDK of a stack that makes its own, and hand its packages to the next job."""
    installed, dists = staging.install_own_sdk(
        build_job,
        plan.targets_of(request.build),
        request.work_dir.absolute(),
        logs=logs,
        index=request.run.plan.staging,
    )
    handed_over = request.output_dir / SDK_FOLDER
    handed_over.mkdir(parents=True, exist_ok=True)
    for path in dists:
        files.copy(path, handed_over / path.name)
    return installed
