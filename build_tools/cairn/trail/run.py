"""Runs the trail, each stage with the values of the stage before."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cairn import console, files
from cairn import targets as gpu
from cairn.build import cache, environment, job, outcome, plan, runner, sdk
from cairn.build.environment import PipSource
from cairn.build.request import BuildRequest, BuiltWheel, Sdk
from cairn.release import gate, layout, mirror, promote, publish, serve, store
from cairn.release import stage as staging
from cairn.sources import several
from cairn.sources.checkout import Checkout
from cairn.testing import record as records
from cairn.testing import smoke
from cairn.trail import report
from cairn.trail.install import install_from_release
from cairn.trail.request import TrailRequest, TrailResult
from cairn.trail.timeline import Timeline
from cairn.wheels import set as wheel_sets
from cairn.wheels import version
from cairn.wheels.set import WheelSet

STAGING, RELEASE = "staging", "release"
_LOCK_WAIT = 2.0  # seconds: a run takes minutes, and whoever starts another one should not wait in silence


def run(request: TrailRequest) -> TrailResult:
    """Run the trail of a stack from its repositories to an install from the release index.

    What is finished is kept: a run after an interrupt, or with nothing changed, does only what is left.

    Raises:
        CairnError: of the stage that failed; what was promoted before stays as it was.
        SystemFailureError: another run is under way in the same work folder.
    """
    with files.locked(request.work_dir / "run.lock", timeout=_LOCK_WAIT):
        return _run(request, Timeline())


def _run(request: TrailRequest, timeline: Timeline) -> TrailResult:
    tools = _tools(request, timeline)
    checkouts = _checkouts(request, tools, timeline)
    sdk_dists = _sdk_dists(request, timeline)
    opened = store.LocalStore(request.store_dir)
    with timeline.stage("publish the ROCm SDK to staging") if sdk_dists else contextlib.nullcontext():
        _in_fresh_store_where_taken(opened, lambda: _publish_sdk(opened, sdk_dists))
    with serve.serving(request.store_dir) as server:
        index_url = layout.index_url(server.url, STAGING)
        installed = _sdk(request, sdk_dists, index_url, timeline) if sdk_dists else None
        wheels = _build(request, checkouts, installed, timeline)
        wheel_set = wheel_sets.read(request.wheels_dir / "set.json")
        with timeline.stage("stage the set"):
            _in_fresh_store_where_taken(
                opened,
                lambda: _stage(opened, wheel_set, wheels),
                before=lambda: _publish_sdk(opened, sdk_dists),
            )
        record = _smoke(request, wheel_set, server.url, timeline)
    promotion = _promote(opened, wheel_set, record, timeline)
    with timeline.stage("install from the release index"):
        installers = install_from_release(request, wheel_set)
    pip_line = _pip_line(request)
    result = TrailResult(
        checkouts=checkouts,
        wheels=wheels,
        wheel_set=wheel_set,
        record=record,
        promotion=promotion,
        installers=installers,
        pip_line=pip_line,
        report=request.work_dir / "report.html",
        spans=tuple(timeline.spans),
    )
    report.write(request, result)
    return result


def _tools(request: TrailRequest, timeline: Timeline) -> Path | None:
    """An interpreter that has the stack's own torch, for a checkout that is hipified with it."""
    if not any(p.hipify == "torch-utils" for p in request.stack.projects):
        return None
    folder = request.work_dir / "tools"
    marker = folder / "cairn-tools"
    wanted = "\n".join(request.stack.extra_wheels)
    env = environment.describe(folder)
    if not marker.is_file() or marker.read_text(encoding="utf-8") != wanted:
        with timeline.stage(f"install {', '.join(request.stack.extra_wheels)} for hipify") as stage:
            env = environment.create(folder)
            environment.pip_install(
                env,
                request.stack.extra_wheels,
                PipSource(),
                log=request.logs_dir / "tools.log",
                on_line=stage.update,
            )
            marker.write_text(wanted, encoding="utf-8")
    return env.python


def _checkouts(request: TrailRequest, python: Path | None, timeline: Timeline) -> tuple[Checkout, ...]:
    with timeline.stage(f"check out {request.stack.line}") as stage:
        return several.checkout_stack(
            request.stack,
            request.work_dir / "src",
            options=several.Options(jobs=request.jobs, force=request.force, python=python),
            say=stage.update,
        )


def _sdk_dists(request: TrailRequest, timeline: Timeline) -> tuple[Path, ...]:
    if request.stack.sdk is None:
        return ()
    with timeline.stage("make the ROCm SDK") as stage:
        return sdk.make(
            request.stack,
            request.targets,
            request.work_dir / "sdk",
            log=request.logs_dir / "sdk.log",
            say=stage.update,
        )


def _publish_sdk(opened: store.LocalStore, dists: Sequence[Path]) -> None:
    if dists:
        publish.publish(opened, STAGING, dists)
        mirror.mirror(opened, STAGING, dists=dists)


def _in_fresh_store_where_taken(
    opened: store.LocalStore, act: Callable[[], None], *, before: Callable[[], None] = lambda: None
) -> None:
    """Act on the store; where other sources or targets gave other bytes under a name, begin a new store.

    A name never changes its bytes, and versions on a developer's machine stay while the sources change. The
    old store is kept beside, whole.
    """
    try:
        act()
    except publish.NameTakenError:
        kept = store.retire(opened)
        console.current().info(f"a new index begins: the last one has other bytes under these names ({kept})")
        before()
        act()


def _sdk(request: TrailRequest, dists: Sequence[Path], index_url: str, timeline: Timeline) -> Sdk:
    assert request.stack.sdk is not None  # noqa: S101 - the caller has its packages
    with timeline.stage("install the ROCm SDK") as stage:
        return sdk.install(
            request.work_dir / "envs" / "sdk",
            sdk.Wanted(
                source=PipSource(index_url=index_url),
                version=request.stack.sdk.version,
                family=gpu.family_of(request.targets),
                digest=cache.key_of({path.name: files.sha256_of(path) for path in dists}),
            ),
            log=request.logs_dir / "install-sdk.log",
            say=stage.update,
        )


def build_request(
    request: TrailRequest, checkouts: Mapping[str, Path], installed: Sdk | None
) -> BuildRequest:
    """What the trail asks of the build, with the features on where the stack says that they work."""
    suffix = version.suffix(installed.info.version) if installed else request.stack.version_suffix or ""
    return BuildRequest(
        stack=request.stack,
        checkouts=checkouts,
        output_dir=request.wheels_dir,
        work_dir=request.work_dir / "envs",
        cache_dir=request.cache_dir,
        targets=request.targets,
        sdk=installed,
        version_suffix=suffix,
        features=job.features(request.stack, request.targets, checkouts, {}),
        jobs=request.jobs,
    )


def _build(
    request: TrailRequest, checkouts: Sequence[Checkout], installed: Sdk | None, timeline: Timeline
) -> tuple[BuiltWheel, ...]:
    asked = build_request(request, {c.project.name: c.path for c in checkouts}, installed)
    wheels = runner.run(plan.make(asked))
    outcome.write(asked, wheels, checkouts)
    for wheel in wheels:
        detail = "from the cache" if wheel.cached else ""
        timeline.add(f"build {wheel.project}", wheel.started, wheel.ended, detail)
    return wheels


def _stage(opened: store.LocalStore, wheel_set: WheelSet, wheels: Sequence[BuiltWheel]) -> None:
    paths = [wheel.wheel for wheel in wheels]
    mirror.mirror(opened, STAGING, dists=paths)
    staging.stage_set(opened, STAGING, wheel_set, paths)


def _smoke(
    request: TrailRequest, wheel_set: WheelSet, server_url: str, timeline: Timeline
) -> records.TestRecord:
    with timeline.stage("smoke-test the installed wheels") as stage:
        result = smoke.run_smoke(
            smoke.SmokeRequest(
                wheel_set=wheel_set,
                index_url=layout.index_url(server_url, STAGING, wheel_set.set_id),
                work_dir=request.work_dir / "smoke",
                extra_wheels=request.stack.extra_wheels,
                devices=request.stack.sdk is None or request.stack.sdk.devices,
                smoke_tests=tuple(Path(folder) for folder in request.stack.smoke_tests),
                imports={p.distribution: p.smoke_imports for p in request.stack.projects},
            ),
            on_line=stage.update,
        )
        smoke.require_passed(result)
    return result.record


def _promote(
    opened: store.LocalStore, wheel_set: WheelSet, record: records.TestRecord, timeline: Timeline
) -> promote.Promotion:
    bypass = None
    if wheel_set.targets != (gpu.CPU,) and not record.counts.device_passed:
        # The smoke tests have passed, but device tests were skipped: the pages must say so.
        reason = "no GPU was used: the smoke tests passed, and their device tests were skipped"
        bypass = gate.Bypass(who="cairn ci run", reason=reason)
    with timeline.stage("pass the gate and promote") as stage:
        return promote.promote(
            opened,
            wheel_set.set_id,
            source=STAGING,
            target=RELEASE,
            records=(record,),
            bypass=bypass,
            on_step=stage.update,
        )


def _pip_line(request: TrailRequest) -> str:
    url = layout.index_url(request.store_dir.as_uri(), RELEASE)
    names = request.stack.install or tuple(p.distribution for p in request.stack.in_order())
    return shlex.join(["pip", "install", "--index-url", url, *names])
