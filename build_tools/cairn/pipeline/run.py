"""Runs the trail of a stack, each stage with the values of the stage before.

Nothing is done twice: checkouts, SDK packages and wheels are found by what went into them, the verdict of the
smoke tests and of the installation by all that they rest on (`verdict_cache`), and a promoted set stays
promoted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar, get_args

from cairn import files, venv
from cairn import targets as gpu
from cairn.build import job, preflight, rocm_sdk
from cairn.build.environments import pip_install
from cairn.build.inputs import variables
from cairn.build.model import BuiltWheel, Job, SdkRequest
from cairn.errors import StoreError, SystemFailureError
from cairn.output import console
from cairn.pipeline import report, staging, verdict_cache
from cairn.pipeline.request import StageSpan, TrailRequest, TrailResult
from cairn.release import promote
from cairn.release import records as kept_records
from cairn.release.gate import evidence, install_check
from cairn.release.index import keys
from cairn.release.index.snapshot import Index
from cairn.release.ledger.chain import NameTakenError
from cairn.release.provenance.objects import KeyAttester
from cairn.release.publish import mirror_lock
from cairn.release.publish.compatibility import Platform
from cairn.release.serve import server as serve_server
from cairn.sources import checkout_stack
from cairn.sources.checkout.checkout import CheckoutRequest
from cairn.sources.checkout.describe import Checkout
from cairn.sources.manifest import manifest
from cairn.stack import Stack
from cairn.store import folder as store_folder
from cairn.testing import record as records
from cairn.testing import smoke
from cairn.venv import PackageSource
from cairn.wheels import wheelset as wheel_sets
from cairn.wheels.metadata import device_names
from cairn.wheels.wheelset import WheelSet

_T = TypeVar("_T")

STAGING, RELEASE = "staging", "release"
_INSTALLERS: tuple[install_check.Installer, ...] = get_args(install_check.Installer)
_LOCK_WAIT = 2.0  # seconds: a run takes minutes, and the user who starts a second should not wait in silence


class Timeline:
    """Shows stages on the console and remembers them."""

    def __init__(self) -> None:
        self.spans: list[StageSpan] = []

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[console.Stage]:
        """A stage that is shown while it runs."""
        start = time.time()
        with console.current().stage(name) as stage:
            yield stage
        self.add(name, start, time.time(), mark=stage.mark, detail=stage.note)

    def kept(self, name: str, note: str) -> None:
        """Add a stage that need not run, since its earlier result still holds."""
        console.current().kept(name, note)
        self.add(name, time.time(), time.time(), mark="kept", detail=note)

    def add(
        self, name: str, start: float, end: float, *, mark: console.Mark = "done", detail: str = ""
    ) -> None:
        """Remember a stage that was shown elsewhere."""
        self.spans.append(StageSpan(name=name, start=start, end=end, mark=mark, detail=detail))


def run(request: TrailRequest) -> TrailResult:
    """Run the trail of a stack from its repositories to an install from the release index.

    What is finished is kept: a run after an interrupt, or with nothing changed, does only what is left.

    Raises:
        CairnError: of the stage that failed; what was promoted before stays as it was.
        UsageError: the stack does not bring the SDK that it needs, or a variable for the builds is refused.
        SystemFailureError: another run is under way in the same work folder, or its disk is too full for one.
    """
    request = dataclasses.replace(request, work_dir=request.work_dir.absolute())
    require_disk(request.work_dir, request.stack.disk)
    # What is wrong with the request is said here, rather than after the checkout.
    variables.parse_build_env(request.build_env, request.stack)
    if request.with_rocm:
        rocm_sdk.recipe(request.stack)
    with (
        files.locked(request.work_dir / "run.lock", timeout=_LOCK_WAIT),
        console.current().steps(_count_steps(request)),
    ):
        return _run(request, Timeline())


def require_disk(work_dir: Path, needed: int | None) -> None:
    """Refuse to begin where the work folder's disk has no room for a run.

    Args:
        work_dir: the work folder; what it holds already need not be free.
        needed: bytes that a first run leaves; None where no one measured it.

    Raises:
        SystemFailureError: there is too little.
    """
    if needed is None:
        return
    existing = next(folder for folder in (work_dir, *work_dir.parents) if folder.is_dir())
    free = shutil.disk_usage(existing).free
    if free >= needed:
        return
    # Measured only now: counting what is there takes longer than all the rest of a run with nothing to do.
    if free + sum(status.st_size for _, status in files.statuses(work_dir)) < needed:
        raise SystemFailureError(
            f"the run needs {console.size(needed)} of disk, and {work_dir} has {console.size(free)} free",
            tip="free some space, or name a folder on a different disk with --work-dir",
        )


def _count_steps(request: TrailRequest) -> int:
    """How many stages there will be: those of every stack, and those that only some need."""
    stack = request.stack
    of_the_sdk = ("make", "publish", "install") if request.with_rocm else ()
    of_every_stack = ("check out", "stage", "smoke-test", "promote", "install")
    built = [project for project in stack.projects if request.with_rocm or not project.rocm_only]
    return len(of_every_stack) + len(of_the_sdk) + len(built) + int(_hipifies_by_torch(request))


def _run(request: TrailRequest, timeline: Timeline) -> TrailResult:
    stack, work_dir = request.stack, request.work_dir
    preflight.targets(build_job(request, {}))
    checkouts = _check_out(request, timeline)
    # What would stop the build is reported before minutes go into the SDK.
    build = job.check(build_job(request, {c.project.name: c.path for c in checkouts}))
    sdk_dists: tuple[Path, ...] = ()
    if request.with_rocm:
        with timeline.stage("make the ROCm SDK") as stage:
            log = request.logs_dir / "sdk.log"
            sdk_dists = rocm_sdk.make(stack, request.targets, work_dir / "sdk", log=log, say=stage.update)
    opened = store_folder.LocalStore(request.store_dir)

    def publish_sdk() -> None:
        if sdk_dists:
            staging.publish_sdk(opened, STAGING, sdk_dists)

    with timeline.stage("publish the ROCm SDK to staging") if sdk_dists else contextlib.nullcontext():
        _retry_in_new_store(opened, publish_sdk)
    # pip and uv read the staging channel over HTTP, as users do.
    with serve_server.serving(opened) as server:
        staging_url = keys.index_url(server.url, STAGING)
        installed = None
        if sdk_dists:
            began, log = time.time(), request.logs_dir / "install-sdk.log"
            installed = staging.install_sdk(build, sdk_dists, staging_url, log=log)
            timeline.add("install the ROCm SDK", began, time.time())
        wheels = job.build(build, installed, trees=checkouts)
        for wheel in wheels:  # they were shown by the engine, side by side
            mark: console.Mark = "kept" if wheel.cached else "done"
            detail = "from the cache" if wheel.cached else ""
            timeline.add(f"build {wheel.project}", wheel.started, wheel.ended, mark=mark, detail=detail)
        with timeline.stage("stage the set"):
            stage_set = functools.partial(_stage, opened, request, wheels)
            wheel_set = _retry_in_new_store(opened, stage_set, before=publish_sdk)
        record = _smoke(request, opened, wheel_set, server.url, timeline)
    promotion = _promote(request, opened, wheel_set, record, timeline)
    _install(request, opened, wheel_set, timeline)
    names = _pip_requirements(stack, wheels)
    release_url = keys.index_url(request.store_dir.as_uri(), RELEASE)
    result = TrailResult(
        checkouts=checkouts,
        wheels=wheels,
        wheel_set=wheel_set,
        rocm_version=installed.info.version if installed else None,
        record=record,
        promotion=promotion,
        untested_note=_untested_note(promotion),
        installers=_INSTALLERS,
        pip_line=shlex.join(["pip", "install", "--index-url", release_url, *names]),
        uv_line=shlex.join(["uv", "pip", "install", "--index-url", release_url, *names]),
        report=request.work_dir / "report.html",
        spans=tuple(timeline.spans),
    )
    report.write(request, result)
    return result


def _check_out(request: TrailRequest, timeline: Timeline) -> tuple[Checkout, ...]:
    stack = request.stack
    python = _hipify_python(request, timeline) if _hipifies_by_torch(request) else None
    with timeline.stage(f"check out {stack.line}") as stage:
        requests = [
            CheckoutRequest(
                project=project,
                checkout_dir=request.work_dir / "src" / project.checkout_dir,
                jobs=request.jobs,
                force=request.force,
                python=python,
            )
            for project in stack.projects
        ]
        return checkout_stack.checkout_stack(stack, requests, say=stage.update)


def _pip_requirements(stack: Stack, wheels: Sequence[BuiltWheel]) -> tuple[str, ...]:
    """The requirements that install the wheels, and all device wheels of those that were split."""
    names = stack.install or tuple(stack.project(wheel.project).distribution for wheel in wheels)
    split = {stack.project(wheel.project).distribution for wheel in wheels if wheel.devices}
    return tuple(f"{name}[{device_names.EVERY}]" if name in split else name for name in names)


def _hipifies_by_torch(request: TrailRequest) -> bool:
    return any(p.hipify == "torch-utils" for p in request.stack.projects)


def build_job(request: TrailRequest, checkouts: Mapping[str, Path]) -> Job:
    """The build job of a run; the source of its SDK is added later."""
    sdk = request.stack.sdk
    return Job(
        stack=request.stack,
        line=request.stack.line,
        checkouts=checkouts,
        output_dir=request.wheels_dir,
        sdk=SdkRequest(version=sdk.version if sdk else None, family=gpu.family_of(request.targets)),
        install_rocm=request.with_rocm,
        targets=",".join(request.targets),
        jobs=request.jobs,
        build_env=request.build_env,
        compiler_cache=request.compiler_cache,
        split=request.split,
        env_dir=request.work_dir / "envs",
    )


def _hipify_python(request: TrailRequest, timeline: Timeline) -> Path:
    """An interpreter that has the stack's own torch, for a checkout that is hipified with it."""
    name = f"install {', '.join(request.stack.extra_wheels)} for hipify"
    folder = request.work_dir / "tools"
    marker = folder / "cairn-tools"
    requirements = "\n".join(request.stack.extra_wheels)
    env = venv.describe(folder)
    if marker.is_file() and marker.read_text(encoding="utf-8") == requirements:
        timeline.kept(name, "installed already")
    else:
        with timeline.stage(name) as stage:
            env = venv.create(folder)
            pip_install(
                env,
                request.stack.extra_wheels,
                PackageSource(),
                log=request.logs_dir / "tools.log",
                on_line=stage.update,
            )
            marker.write_text(requirements, encoding="utf-8")
    return env.python


def _retry_in_new_store(
    opened: store_folder.LocalStore, act: Callable[[], _T], *, before: Callable[[], None] = lambda: None
) -> _T:
    """Act on the store; where other sources or targets gave different bytes under a name, begin a new store.

    A name never changes its bytes, but on a developer's machine versions stay the same while the sources
    change. The old store is kept beside the new one, whole.
    """
    try:
        return act()
    except NameTakenError:
        old = store_folder.retire(opened)
        console.current().info(
            f"starting a new index: the old one, with different bytes under the same names, is at {old}"
        )
        before()
        return act()


def _stage(opened: store_folder.LocalStore, request: TrailRequest, wheels: Sequence[BuiltWheel]) -> WheelSet:
    """Seal the set that the build has left in its folder, and publish it."""
    folder = request.wheels_dir
    sealed = staging.stage_set(
        opened,
        STAGING,
        folder,
        [file for wheel in wheels for file in wheel.files],
        stack=request.stack,
        platform=Platform.here(),
        manifest=manifest.read(folder / "manifest.json").canonical(),
        attester=KeyAttester(request.signer) if request.signer else None,
    )
    wheel_sets.write(folder / staging.SET_FILE, sealed)
    return sealed


def _smoke(
    request: TrailRequest,
    opened: store_folder.LocalStore,
    wheel_set: WheelSet,
    server_url: str,
    timeline: Timeline,
) -> records.TestRecord:
    name, work_dir = "smoke-test the installed wheels", request.work_dir / "smoke"
    tests = smoke.SmokeRequest(
        wheel_set=wheel_set,
        index_url=keys.set_url(server_url, wheel_set.id),
        work_dir=work_dir,
    ).of_stack(request.stack)
    # The verdict of an earlier run is taken where nothing that it rests on has changed. Its note is removed
    # before the tests run again, so that a run that fails, or is killed, leaves none behind.
    marker = request.work_dir / "kept" / "smoke.json"
    key = verdict_cache.key_of_smoke(
        opened, tests, staged=Index(opened, STAGING).load().set(wheel_set.id).added
    )
    if (verdict := verdict_cache.find(marker, key)) is not None:
        timeline.kept(name, f"record of {verdict.when}")
        return records.read(work_dir / records.FILE)
    marker.unlink(missing_ok=True)
    with timeline.stage(name) as stage:
        result = smoke.run_smoke(tests, on_line=stage.update)
        smoke.require_passed(result, or_untested=True)
    verdict_cache.write(marker, key, evidence=(result.record_path, result.junit_path))
    return result.record


def _promote(
    request: TrailRequest,
    opened: store_folder.LocalStore,
    wheel_set: WheelSet,
    record: records.TestRecord,
    timeline: Timeline,
) -> promote.Promotion:
    bypass = None
    if wheel_set.targets != (gpu.CPU,) and not record.counts.device_passed:
        # The record is untested, since device tests were skipped: everything must say so.
        reason = "no GPU was used: the smoke tests passed, and their device tests were skipped"
        bypass = evidence.Bypass(who="cairn ci run", reason=reason)
    with timeline.stage("pass the gate and promote") as stage:
        path = request.work_dir / "smoke" / records.FILE
        kept_records.add_file(opened, path, name="the record of the smoke tests", signer=request.signer)
        promotion = promote.promote(
            opened,
            wheel_set.id,
            stack=request.stack,
            source=STAGING,
            target=RELEASE,
            bypass=bypass,
            attester=KeyAttester(request.signer) if request.signer else None,
            lock=mirror_lock.of(request.stack),
            on_step=stage.update,
        )
        if (note := _untested_note(promotion)) is not None:
            stage.end_as("bypassed", note)
        elif promotion.kept:
            stage.end_as("kept", f"in {RELEASE} already")
    return promotion


def _install(
    request: TrailRequest, opened: store_folder.LocalStore, wheel_set: WheelSet, timeline: Timeline
) -> None:
    name, marker = "install from the release index", request.work_dir / "kept" / "install.json"
    key = verdict_cache.key_of_install(opened, RELEASE, wheel_set)
    if (verdict := verdict_cache.find(marker, key)) is not None:
        timeline.kept(name, f"unchanged since {verdict.when}")
        return
    marker.unlink(missing_ok=True)
    with timeline.stage(name):
        install_from_release(request, wheel_set)
    verdict_cache.write(marker, key)


def install_from_release(request: TrailRequest, wheel_set: WheelSet) -> None:
    """Install the set's projects from the release channel alone, with each installer, as a user does.

    Raises:
        StoreError: one could not; its reason is in the error.
    """
    url = keys.index_url(request.store_dir.absolute().as_uri(), RELEASE)
    names = [f"{wheel.distribution}=={wheel.version}" for wheel in wheel_set.wheels]
    for program in _INSTALLERS:
        result = install_check.install(program, names, index_url=url)
        if result.problem:
            raise StoreError(
                f"{program} cannot install the set from {url}: {result.problem}",
                tip="`cairn index audit` shows what is wrong with the index",
            )


def _untested_note(promotion: promote.Promotion) -> str | None:
    """The targets that the set was not tested on, by the gate's judgement."""
    return promotion.report.untested_note if promotion.report is not None else promotion.untested
