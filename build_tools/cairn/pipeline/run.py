"""Run the trail of a stack, each stage with the results of the previous one.

Nothing is done twice: checkouts, SDK packages and wheels are looked up by their inputs, and so are the
verdicts of the smoke tests and of the installation (`verdict_cache`); a promoted set stays promoted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import get_args

from cairn import files
from cairn import targets as gpu
from cairn.build import job, preflight, rocm_sdk
from cairn.build.inputs import variables
from cairn.build.model import BuiltWheel, Job, SdkRequest
from cairn.errors import StoreError, SystemFailureError
from cairn.output import console
from cairn.pipeline import staging, trail, verdict_cache
from cairn.pipeline.trail import StageSpan, TrailRequest, TrailResult
from cairn.release import promote, weighing
from cairn.release import records as kept_records
from cairn.release.gate import installation
from cairn.release.index import keys
from cairn.release.index.generation import FileRef
from cairn.release.index.reading import read_current
from cairn.release.index.snapshot import Index
from cairn.release.ledger import NameTakenError
from cairn.release.provenance.attest import KeyAttester
from cairn.release.publish import mirror_lock
from cairn.release.publish.compatibility import Platform
from cairn.release.serve import serving
from cairn.sources import checkout_stack
from cairn.sources.checkout.checkout import CheckoutRequest
from cairn.sources.checkout.describe import Checkout
from cairn.sources.manifest import manifest
from cairn.store import folder as store_folder
from cairn.testing import record as records
from cairn.testing import smoke
from cairn.wheels import wheelset as wheel_sets
from cairn.wheels.metadata import device_names
from cairn.wheels.wheelset import WheelSet

STAGING, RELEASE = "staging", "release"
_INSTALLERS: tuple[installation.Installer, ...] = get_args(installation.Installer)
_LOCK_WAIT = 2.0  # seconds: a run takes minutes, and the user who starts a second should not wait in silence


def run(request: TrailRequest) -> TrailResult:
    """Run the trail of a stack from its repositories to an install from the release index.

    Finished stages are kept: a run after an interrupt, or with nothing changed, does only the rest.

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
    stages = _Stages(request)
    with (
        files.locked(request.work_dir / "run.lock", timeout=_LOCK_WAIT),
        console.current().steps(stages.count()),
    ):
        return stages.run()


def require_disk(work_dir: Path, needed: int | None) -> None:
    """Refuse to begin if the work folder's disk has no room for a run.

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


class _Stages:
    """The stages of a run in order, shown on the console and recorded for the report."""

    def __init__(self, request: TrailRequest) -> None:
        self._request = request
        self._store = store_folder.LocalStore(request.store_dir)
        self._spans: list[StageSpan] = []
        self._hipifies_by_torch = any(p.hipify == "torch-utils" for p in request.stack.projects)

    def count(self) -> int:
        """Return the number of stages: those of every stack, and those that only some need."""
        with_rocm = self._request.with_rocm
        of_the_sdk = ("make", "publish", "install") if with_rocm else ()
        of_every_stack = ("check out", "stage", "smoke-test", "promote", "install")
        built = [project for project in self._request.stack.projects if with_rocm or not project.rocm_only]
        return len(of_every_stack) + len(of_the_sdk) + len(built) + int(self._hipifies_by_torch)

    def run(self) -> TrailResult:
        """Run all stages, each with the results of the previous one."""
        request, store = self._request, self._store
        preflight.targets(build_job(request, {}))
        checkouts = self._check_out(self._hipify_python() if self._hipifies_by_torch else None)
        # What would stop the build is reported before minutes go into the SDK.
        (build,) = job.check((build_job(request, {c.project.name: c.path for c in checkouts}),))
        sdk_dists = self._make_sdk() if request.with_rocm else ()
        # pip and uv read the staging channel over HTTP, as users do.
        with serving(store) as server:
            installed = None
            if sdk_dists:
                began, log = time.time(), request.logs_dir / "install-sdk.log"
                index_url = keys.index_url(server.url, STAGING)
                installed = staging.install_sdk(build, sdk_dists, index_url, log=log)
                self._remember("install the ROCm SDK", began, time.time())
            (wheels,) = job.build((build,), (installed,), trees=checkouts)
            for wheel in wheels:  # they were shown by the engine, side by side
                mark: console.Mark = "kept" if wheel.cached else "done"
                detail = "from the cache" if wheel.cached else ""
                self._remember(f"build {wheel.project}", wheel.started, wheel.ended, mark=mark, detail=detail)
            wheel_set = self._stage_set(wheels, sdk_dists)
            record = self._smoke(wheel_set, server.url)
        promotion = self._promote(wheel_set, record)
        self._install(wheel_set)
        words = ["install", "--index-url", keys.index_url(request.store_dir.as_uri(), RELEASE)]
        words += _requirements(request, wheels)
        result = TrailResult(
            checkouts=checkouts,
            wheels=wheels,
            wheel_set=wheel_set,
            rocm_version=installed.info.version if installed else None,
            record=record,
            promotion=promotion,
            untested_note=_untested_note(promotion),
            installers=_INSTALLERS,
            pip_line=shlex.join(["pip", *words]),
            uv_line=shlex.join(["uv", "pip", *words]),
            report=request.work_dir / "report.html",
            spans=tuple(self._spans),
        )
        trail.write_page(request, result)
        return result

    def _hipify_python(self) -> Path | None:
        """Return an interpreter that has the stack's own torch, for a checkout that is hipified with it."""
        request, stack = self._request, self._request.stack
        with self._stage(f"install {', '.join(stack.extra_wheels)} for hipify") as stage:
            folder, log = request.work_dir / "tools", request.logs_dir / "tools.log"
            return staging.hipify_python(stack, folder, log=log, say=stage.update)

    def _check_out(self, hipify_python: Path | None) -> tuple[Checkout, ...]:
        request, stack = self._request, self._request.stack
        with self._stage(f"check out {stack.line}") as stage:
            requests = [
                CheckoutRequest(
                    project=project,
                    checkout_dir=request.work_dir / "src" / project.checkout_dir,
                    jobs=request.jobs,
                    force=request.force,
                    python=hipify_python,
                    commit_hipify=False,  # builds write HEAD into wheels: it is upstream's commit
                )
                for project in stack.projects
            ]
            return checkout_stack.checkout_stack(stack, requests, say=stage.update)

    def _make_sdk(self) -> tuple[Path, ...]:
        """Make the packages of the ROCm SDK, and publish them to staging."""
        request, store = self._request, self._store
        with self._stage("make the ROCm SDK") as stage:
            log = request.logs_dir / "sdk.log"
            folder = request.work_dir / "sdk"
            dists = rocm_sdk.make(request.stack, request.targets, folder, log=log, say=stage.update)
        with self._stage("publish the ROCm SDK to staging"):
            try:
                staging.publish_sdk(store, STAGING, dists)
            except NameTakenError:
                self._begin_new_store()
                staging.publish_sdk(store, STAGING, dists)
        return dists

    def _begin_new_store(self) -> None:
        """Begin a new store, since the old one has a different build of the same version.

        A file name in a store never changes its bytes or its manifest, but on a developer's machine versions
        stay the same while the sources and the stack change. The old store is kept beside the new one.
        """
        old = store_folder.retire(self._store)
        console.current().info(
            f"starting a new index: the old one, with other builds of the same versions, is at {old}"
        )

    def _stage_set(self, wheels: Sequence[BuiltWheel], sdk_dists: Sequence[Path]) -> WheelSet:
        with self._stage("stage the set"):
            try:
                sealed = self._seal(wheels)
                staged = read_current(Index(self._store, STAGING))
                refs = [FileRef(filename=wheel.file_name, sha256=wheel.sha256) for wheel in sealed.wheels]
                # The gate refuses bytes that came with an earlier manifest, such as that of another recipe.
                if all(staged.entry(ref).build == sealed.manifest_sha256 for ref in refs):
                    return sealed
            except NameTakenError:
                pass
            self._begin_new_store()
            if sdk_dists:
                staging.publish_sdk(self._store, STAGING, sdk_dists)
            return self._seal(wheels)

    def _seal(self, wheels: Sequence[BuiltWheel]) -> WheelSet:
        """Seal the set that the build has written, and publish it."""
        request, folder = self._request, self._request.wheels_dir
        sealed = staging.stage_set(
            self._store,
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

    def _smoke(self, wheel_set: WheelSet, server_url: str) -> records.TestRecord:
        name, work_dir = "smoke-test the installed wheels", self._request.work_dir / "smoke"
        tests = smoke.SmokeRequest(
            wheel_set=wheel_set,
            index_url=keys.set_url(server_url, wheel_set.id),
            work_dir=work_dir,
        ).of_stack(self._request.stack)
        # The verdict of an earlier run is taken where nothing that it rests on has changed. Its note is
        # removed before the tests run again, so that a run that fails, or is killed, leaves none behind.
        marker = self._request.work_dir / "kept" / "smoke.json"
        staged = read_current(Index(self._store, STAGING)).set(wheel_set.id).added
        key = verdict_cache.key_of_smoke(self._store, tests, staged=staged)
        if (verdict := verdict_cache.find(marker, key)) is not None:
            self._keep(name, f"record of {verdict.when}")
            return records.read(work_dir / records.FILE)
        marker.unlink(missing_ok=True)
        with self._stage(name) as stage:
            result = smoke.run_smoke(tests, on_line=stage.update)
            smoke.require_passed(result, or_untested=True)
        verdict_cache.write(marker, key, evidence=(result.record_path, result.junit_path))
        return result.record

    def _promote(self, wheel_set: WheelSet, record: records.TestRecord) -> promote.Promotion:
        request, bypass = self._request, None
        if wheel_set.targets != (gpu.CPU,) and not record.counts.device_passed:
            # The record is untested, since device tests were skipped: everything must say so.
            reason = "no GPU was used: the smoke tests passed, and their device tests were skipped"
            bypass = weighing.Bypass(who="cairn ci run", reason=reason)
        with self._stage("pass the gate and promote") as stage:
            path = request.work_dir / "smoke" / records.FILE
            kept_records.add_file(
                self._store, path, name="the record of the smoke tests", signer=request.signer
            )
            promotion = promote.promote(
                self._store,
                wheel_set.id,
                stack=request.stack,
                source=STAGING,
                target=RELEASE,
                bypass=bypass,
                attester=KeyAttester(request.signer) if request.signer else None,
                mirror_lock=mirror_lock.of(request.stack),
                on_step=stage.update,
            )
            if (note := _untested_note(promotion)) is not None:
                stage.end_as("bypassed", note)
            elif promotion.already_present:
                stage.end_as("kept", f"in {RELEASE} already")
        return promotion

    def _install(self, wheel_set: WheelSet) -> None:
        name, marker = "install from the release index", self._request.work_dir / "kept" / "install.json"
        key = verdict_cache.key_of_install(self._store, RELEASE, wheel_set)
        if (verdict := verdict_cache.find(marker, key)) is not None:
            self._keep(name, f"unchanged since {verdict.when}")
            return
        marker.unlink(missing_ok=True)
        with self._stage(name):
            install_from_release(self._request, wheel_set)
        verdict_cache.write(marker, key)

    @contextlib.contextmanager
    def _stage(self, name: str) -> Iterator[console.Stage]:
        """Show a stage on the console while it runs."""
        start = time.time()
        with console.current().stage(name) as stage:
            yield stage
        self._remember(name, start, time.time(), mark=stage.mark, detail=stage.note)

    def _keep(self, name: str, note: str) -> None:
        """Add a stage that is skipped, since its earlier result is still valid."""
        console.current().say_kept(name, note)
        self._remember(name, time.time(), time.time(), mark="kept", detail=note)

    def _remember(
        self, name: str, start: float, end: float, *, mark: console.Mark = "done", detail: str = ""
    ) -> None:
        self._spans.append(StageSpan(name=name, start=start, end=end, mark=mark, detail=detail))


def build_job(request: TrailRequest, checkouts: Mapping[str, Path]) -> Job:
    """Return the build job of a run; the source of its SDK is added later."""
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


def _requirements(request: TrailRequest, wheels: Sequence[BuiltWheel]) -> Iterator[str]:
    """Yield the requirements that install the wheels, and all device wheels of those that were split."""
    stack = request.stack
    split = {stack.project(wheel.project).distribution for wheel in wheels if wheel.devices}
    for name in stack.install or tuple(stack.project(wheel.project).distribution for wheel in wheels):
        yield f"{name}[{device_names.EVERY}]" if name in split else name


def install_from_release(request: TrailRequest, wheel_set: WheelSet) -> None:
    """Install the set's projects from the release channel alone, with each installer, as a user does.

    Raises:
        StoreError: one could not; its reason is in the error.
    """
    url = keys.index_url(request.store_dir.absolute().as_uri(), RELEASE)
    names = [f"{wheel.distribution}=={wheel.version}" for wheel in wheel_set.wheels]
    for program in _INSTALLERS:
        result = installation.install(program, names, index_url=url)
        if result.problem:
            raise StoreError(
                f"{program} cannot install the set from {url}: {result.problem}",
                tip="`cairn index check` shows what is wrong with the index",
            )


def _untested_note(promotion: promote.Promotion) -> str | None:
    """Return a note of the targets that the gate found untested, or None if there are none."""
    return promotion.report.untested_note if promotion.report is not None else promotion.caveat
