"""`cairn ci night suite` and `merge`: a night's runs of the projects' own tests, in shards, and judged."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cairn import converters
from cairn.cli import fields, signing
from cairn.cli.answer import Answer
from cairn.cli.binder import command
from cairn.cli.ci.night import options as common
from cairn.errors import TestsFailedError
from cairn.options import option
from cairn.output import console

_TIMEOUT = 18000.0  # seconds: a shard that ends by itself keeps what it has; one whose job is ended does not


@dataclass(frozen=True, kw_only=True)
class Suite(common.LegOptions):
    """What `cairn ci night suite` is asked for.

    The tests are of the commit that the night froze, and the wheel must say that it was built from it.
    `cairn ci night merge` judges the shards together. What the skip-tests folder beside the stack.toml
    names is left out.

        cairn ci night suite --night latest --leg nightly-gfx94X-dcgpu-py3.12-linux_x86_64
        --test-config default --shard 1 --stack external-builds/sample --store ./store
    """

    test_config: str = fields.test_config()
    shard: int = common.shard(default=1)
    work_dir: Path = fields.work_dir()
    timeout: float = option(
        f"for all tests together (default: {_TIMEOUT:g})",
        metavar="SECONDS",
        convert=converters.seconds,
        default=_TIMEOUT,
    )
    later: bool = common.later()


@dataclass(frozen=True, kw_only=True)
class Merge(signing.SignOptions, common.NightOptions):
    """What `cairn ci night merge` is asked for.

    A shard that left no result is a failure. Exit code 8 where a suite did not pass, and its leg is not
    expected to fail.

        cairn ci night merge --night latest --stack external-builds/sample --store ./store
    """

    work_dir: Path = fields.work_dir()
    json: bool = fields.json()


def _suite(request: Suite) -> None:
    from cairn.pipeline.night import handover
    from cairn.pipeline.night.suite import ShardTest, run_shard
    from cairn.testing.options import Limits

    run = request.load_run()
    shard = common.shard_of(run, run.plan.leg(request.leg), request.test_config, request.shard)
    job = ShardTest(
        run=run,
        shard=shard,
        work_dir=request.work_dir.absolute(),
        limits=Limits(all=request.timeout),
        later=request.later,
    )
    folder = job.results if request.later else None
    if folder is not None:
        handover.forget(folder)
    with common.noted(run, shard.leg, "test", folder, part=shard.part):
        merged = run_shard(job)
    console.current().out(f"{shard.name}: {merged.judgement.reason}")


def _merge(request: Merge) -> Answer:
    from cairn.pipeline.night.merge import merge_night

    run = request.load_run()
    with console.current().stage(f"judge the suites of the night {run.plan.night}") as stage:
        merges = merge_night(run, request.work_dir.absolute(), signer=request.signer(), say=stage.update)
    bad = [one for one in merges if not one.good and not one.leg.expect_failure]
    error = TestsFailedError(
        f"{len(bad)} of {len(merges)} suites did not pass: {'; '.join(one.name for one in bad)}",
        tip="run the failed shards again: those that are done stay done",
    )
    return Answer(
        [{"leg": m.leg.id, "config": m.config, "good": m.good, "reason": m.reason} for m in merges],
        [("done" if one.good else "failed", f"{one.name}: {one.reason}") for one in merges],
        error=error if bad else None,
    )


COMMANDS = {
    "suite": command(Suite, _suite),
    "merge": command(Merge, _merge),
}
