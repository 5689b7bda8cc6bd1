"""`cairn ci night step`: what a night asks of one machine, in the phases fetch, run and keep."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import common_options as common
from cairn.cli import signing
from cairn.cli.answer import Answer
from cairn.cli.binder import command
from cairn.cli.ci import night_options
from cairn.errors import UsageError
from cairn.options import argument, option, part, repeated
from cairn.output import console
from cairn.output.wording import short_id
from cairn.pipeline.pipeline_options import LegBuildOptions

if TYPE_CHECKING:
    from cairn.pipeline.night.plan import NightRun
    from cairn.pipeline.night.steps import Kind, LegStep

_SMOKE = 1800.0  # seconds for each run of pytest
_SUITE = 18000.0  # a shard that ends by itself keeps what it has; one whose job is ended does not


@dataclass(frozen=True, kw_only=True)
class Step(signing.SignOptions, night_options.NightOptions):
    """Options of `cairn ci night step`.

    `build` makes the wheels of a build, `test` smoke-tests the staged set of a leg and, where the matrix.toml
    has `compat`, measures what the compatibility pages claim, `suite` runs a shard of its suites. Their
    phases: `fetch` copies what the step reads from the store into the output folder; `run` works there, with
    foreign code, and reads neither the store nor a key; `keep` writes what `run` left into the store, signed
    where a key is named. Without --phase, all three: `run` is a program of its own then, without credentials.
    `merge` has no phases: it judges the shards of all suites, and a shard that left no result is a failure.
    Exit code 8 where tests did not pass.

        cairn ci night step test --night latest --leg nightly-gfx94X-dcgpu-py3.12-linux_x86_64 --stack
        sample --store ./store
    """

    kind: Kind = argument("KIND", "build, test, suite or merge", choices=("build", "test", "suite", "merge"))
    phase: str | None = option(
        "one phase alone: fetch, run or keep (default: all)", choices=("fetch", "run", "keep")
    )
    store: str = common.store(required=False)
    only: tuple[str, ...] = repeated(
        "which leg, or which build by the id that `freeze` gave (default, of merge alone: all)",
        "--leg",
        metavar="ID",
        convert=converters.nonempty,
    )
    test_config: str = common.test_config()
    shard: int = option("which shard, from 1 (default: %(default)s)", convert=converters.positive, default=1)
    output_dir: Path = common.output_dir(default=Path("step"))
    how: LegBuildOptions = part(LegBuildOptions)
    cache_store: str = night_options.cache_store()
    timeout: float | None = option(
        f"for each run of pytest, or for a whole suite (default: {_SMOKE:g}, {_SUITE:g})",
        convert=converters.seconds,
    )

    def leg_step(self) -> LegStep:
        """The step, for what carries one out."""
        from cairn.pipeline.night.steps import LegStep, Settings

        if len(self.only) != 1:
            raise UsageError(f"a step {self.kind} is of one leg", tip="name it: --leg ID")
        return LegStep(
            kind=self.kind,
            night=self.night,
            leg=self.only[0],
            config=self.test_config,
            shard=self.shard,
            folder=self.output_dir.absolute(),
            settings=Settings(
                stack=Path(self.stack).absolute(),
                store=self.store,
                endpoint_url=self.endpoint_url,
                patience=self.patience,
                sign_key=self.sign_key,
                work_dir=self.how.work_dir.absolute(),
                cache_store=self.cache_store,
                cores=self.how.jobs,
            ),
        )


def _step(request: Step) -> Answer:
    from cairn.pipeline.night import step_run, steps

    if request.phase != "run" and not request.store:
        raise UsageError("--store is missing", tip="name the store, or with --phase run what `fetch` left")
    if request.kind == "merge":
        if request.phase:
            raise UsageError("merge has no phases", tip="leave --phase out")
        return _merge(request)
    step = request.leg_step()
    if request.phase == "run":
        fetched = str(step.folder / steps.FETCHED)
        here = dataclasses.replace(request, store=fetched, endpoint_url=None, only=())
        return _RUNS[request.kind](request, here.load_run(), step)
    name = f"{request.phase or 'do'} {step.name}"
    if request.phase is not None:
        run = dataclasses.replace(request, only=()).load_run()
        with console.current().stage(name):
            if request.phase == "fetch":
                step_run.fetch(step, run)
                return Answer({"step": step.name, "phase": "fetch"})
            left = step_run.keep(step, run, request.signer())
        text = "it is kept" if left else f"{step.name} has left nothing: it was ended"
        return Answer({"step": step.name, "phase": "keep", "kept": left}, [text])
    with console.current().stage(name) as stage:
        end = step_run.run_step(step_run.job_of(step, cores=request.how.jobs), say=stage.update)
        stage.end_as("failed" if end.code else "done", "")
    if end.code:
        tip = f"its log is {end.log}"
        console.current().error(f"{step.name} failed with exit code {end.code}", tip=tip, lines=end.tail)
    return Answer(
        {"step": step.name, "code": end.code, "seconds": end.seconds, "log": end.log},
        exit_code=end.code,
    )


def _build(request: Step, run: NightRun, step: LegStep) -> Answer:
    from cairn.build.cache import SharedCache
    from cairn.cli.build.run import built_wheels
    from cairn.pipeline.night import signed
    from cairn.pipeline.night.build import LegBuild, build_leg
    from cairn.pipeline.night.stage import NOTE_FILE
    from cairn.pipeline.staging import SET_FILE
    from cairn.release.trust import signers

    build, folder = run.plan.build(step.leg), step.left
    cache = None
    if request.cache_store:
        vouch = signed.vouch(run.trust, signers.chosen_signer(None) if run.has_root else None)
        cache = SharedCache(url=request.cache_store, endpoint_url=request.endpoint_url, vouch=vouch)
    job = LegBuild(run=run, build=build, output_dir=folder, shared_cache=cache, **vars(request.how))
    for name in (NOTE_FILE, SET_FILE, *(f"{leg}/{SET_FILE}" for leg in build.legs)):  # of an earlier build
        (folder / name).unlink(missing_ok=True)
    with night_options.note_ending(run, build, "build", folder):
        wheels = build_leg(job)
    return built_wheels(wheels)


def _test(request: Step, run: NightRun, step: LegStep) -> Answer:
    from cairn import files
    from cairn.pipeline.night import handover
    from cairn.pipeline.night.smoke import LegTest, smoke_leg
    from cairn.testing import record as test_record

    leg, folder = run.plan.leg(step.leg), step.left
    job = LegTest(run=run, leg=leg, work_dir=folder, timeout=request.timeout or _SMOKE)
    handover.forget(folder)
    with night_options.note_ending(run, leg, "test", folder):
        record = smoke_leg(job)
    digest = files.sha256_of(folder / test_record.FILE)
    plain = {"leg": leg.id, "set": record.set_id, "record": digest, "verdict": record.verdict}
    text = f"{leg.name}: {record.verdict}: {record.reason}; record {short_id(digest)}"
    return Answer({**plain, "reason": record.reason}, [text])


def _suite(request: Step, run: NightRun, step: LegStep) -> Answer:
    from cairn import files
    from cairn.pipeline.night import handover, shards
    from cairn.pipeline.night.suite import ShardTest, run_shard
    from cairn.testing.suite import suite_results
    from cairn.testing.testing_options import Limits

    shard = shards.shard_of(run, run.plan.leg(step.leg), step.config, step.shard)
    job = ShardTest(run=run, shard=shard, work_dir=step.folder, limits=Limits(all=request.timeout or _SUITE))
    handover.forget(job.results)
    with night_options.note_ending(run, shard.leg, "test", job.results, part=shard.part):
        merged = run_shard(job)
    digest, reason = files.sha256_of(job.results / suite_results.SHARD), merged.judgement.reason
    plain = {"leg": shard.leg.id, "config": shard.config, "shard": shard.number, "results": digest}
    return Answer({**plain, "reason": reason}, [f"{shard.name}: {reason}; results {short_id(digest)}"])


_RUNS: Mapping[str, Callable[[Step, NightRun, LegStep], Answer]] = {
    "build": _build,
    "test": _test,
    "suite": _suite,
}


def _merge(request: Step) -> Answer:
    from cairn.pipeline.night.suite import merge_night, refusal

    run, folder = request.load_run(), request.output_dir.absolute()
    with console.current().stage(f"judge the suites of the night {run.plan.night}") as stage:
        merges = merge_night(run, folder, signer=request.signer(), say=stage.update)
    return Answer(
        [
            {"leg": m.leg.id, "config": m.config, "good": m.good, "reason": m.reason, "record": m.record}
            for m in merges
        ],
        [
            (
                "done" if merge.good else "failed",
                f"{merge.name}: {merge.reason}"
                + (f"; record {short_id(merge.record)}" if merge.record else ""),
            )
            for merge in merges
        ],
        error=refusal(merges),
    )


COMMANDS = {"step": command(Step, _step, needs="release")}
