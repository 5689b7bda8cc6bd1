"""`cairn ci night test`, `suite` and `merge`, and the steps around a test: `fetch` and `keep`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cairn import converters
from cairn.cli import common_options as common
from cairn.cli import signing
from cairn.cli.answer import Answer, Piece
from cairn.cli.binder import command
from cairn.cli.ci import night_options
from cairn.errors import TestsFailedError
from cairn.options import fill, option
from cairn.output import console
from cairn.output.wording import short_id


@dataclass(frozen=True, kw_only=True)
class Fetch(night_options.NightOptions):
    """Options of `cairn ci night fetch`.

    So the step that builds or tests needs no credentials. With --leg, it is what its tests read: the
    staged set and all that it installs; with --shard, also how long the tests of its suite took.

        cairn ci night fetch --night latest --stack sample --store ./store
        --output-dir night
    """

    leg: str | None = option(
        "which leg of it (default: what builds read)", metavar="ID", convert=converters.nonempty
    )
    test_config: str = common.test_config()
    shard: int | None = night_options.shard()
    output_dir: Path = common.output_dir()


@dataclass(frozen=True, kw_only=True)
class Keep(signing.SignOptions, night_options.LegOptions):
    """Options of `cairn ci night keep`.

    With --built-dir, it is what a build has left, for `stage` where no workflow has artifacts.

        cairn ci night keep --night latest --leg nightly-gfx94X-dcgpu-py3.12-linux_x86_64 --stack
        sample --store ./store
    """

    test_config: str = common.test_config()
    shard: int | None = night_options.shard()
    work_dir: Path = common.work_dir()
    built_dir: Path | None = option(
        "the output folder of a build (default: what tests have left is kept)",
        metavar="DIR",
        convert=converters.any_path,
    )


def _fetch(request: Fetch) -> None:
    from cairn.pipeline.night import handover

    run, config = request.load_run(), request.test_config
    leg = run.plan.leg(request.leg) if request.leg else None
    shard = night_options.shard_of(run, leg, config, request.shard) if leg and request.shard else None
    with console.current().stage(f"fetch the night {run.plan.night}"):
        handover.fetch(run, request.output_dir.absolute(), leg, shard)


def _keep(request: Keep) -> list[Piece]:
    from cairn.pipeline.night import handover

    run, work_dir = request.load_run(), request.work_dir.absolute()
    if request.built_dir is not None:
        is_whole = handover.keep_built(run, request.leg, request.built_dir.absolute(), request.signer())
        return ["it is kept" if is_whole else "the build has left nothing: it was ended"]
    leg = run.plan.leg(request.leg)
    if request.shard:
        shard = night_options.shard_of(run, leg, request.test_config, request.shard)
        has_results = handover.keep_shard(run, shard, shard.results_in(work_dir), request.signer())
    else:
        has_results = handover.keep_tests(run, leg, work_dir / "smoke", request.signer())
    return ["it is kept" if has_results else "the tests have left nothing: they were ended"]


_TIMEOUT = 18000.0  # seconds: a shard that ends by itself keeps what it has; one whose job is ended does not


@dataclass(frozen=True, kw_only=True)
class SmokeLeg(signing.SignOptions, night_options.LegOptions):
    """Options of `cairn ci night test`.

    A machine whose GPUs are not those of the leg is refused before anything is installed. Where `compat`
    is set in the matrix.toml, what the compatibility pages claim is measured too.

        cairn ci night test --night latest --leg nightly-gfx94X-dcgpu-py3.12-linux_x86_64 --stack
        sample --store ./store
    """

    work_dir: Path = common.work_dir()
    timeout: float = option("for each run of pytest", convert=converters.seconds, default=1800.0)
    later: bool = night_options.later()


@dataclass(frozen=True, kw_only=True)
class Suite(night_options.LegOptions):
    """Options of `cairn ci night suite`.

    The tests are of the commit that the night froze, and the wheel must say that it was built from it.
    `cairn ci night merge` judges the shards together. What the skip-tests folder beside the stack.toml
    names is left out.

        cairn ci night suite --night latest --leg nightly-gfx94X-dcgpu-py3.12-linux_x86_64
        --test-config default --shard 1 --stack sample --store ./store
    """

    test_config: str = common.test_config()
    shard: int = night_options.shard(default=1)
    work_dir: Path = common.work_dir()
    timeout: float = option(
        f"for all tests together (default: {_TIMEOUT:g})", convert=converters.seconds, default=_TIMEOUT
    )
    later: bool = night_options.later()


@dataclass(frozen=True, kw_only=True)
class Merge(signing.SignOptions, night_options.NightOptions):
    """Options of `cairn ci night merge`.

    A shard that left no result is a failure. Exit code 8 where a suite did not pass, and its leg is not
    expected to fail.

        cairn ci night merge --night latest --stack sample --store ./store
    """

    work_dir: Path = common.work_dir()
    only: tuple[str, ...] = night_options.only()


def _test(request: SmokeLeg) -> Answer:
    from cairn import files
    from cairn.pipeline.night import handover
    from cairn.pipeline.night.smoke import LegTest, smoke_leg
    from cairn.testing import record as test_record

    run = request.load_run()
    leg = run.plan.leg(request.leg)
    work_dir = request.work_dir.absolute() / "smoke"
    job = fill(LegTest, request, run=run, leg=leg, work_dir=work_dir, signer=request.signer())
    folder = job.work_dir if request.later else None
    if folder is not None:
        handover.forget(folder)
    with night_options.note_ending(run, leg, "test", folder):
        record = smoke_leg(job)
    digest = files.sha256_of(work_dir / test_record.FILE)
    plain = {"leg": leg.id, "set": record.set_id, "record": digest, "verdict": record.verdict}
    text = f"{leg.name}: {record.verdict}: {record.reason}; record {short_id(digest)}"
    return Answer({**plain, "reason": record.reason}, [text])


def _suite(request: Suite) -> Answer:
    from cairn import files
    from cairn.pipeline.night import handover
    from cairn.pipeline.night.suite import ShardTest, run_shard
    from cairn.release.trust import signers
    from cairn.testing.suite import suite_results
    from cairn.testing.testing_options import Limits

    run = request.load_run()
    shard = night_options.shard_of(run, run.plan.leg(request.leg), request.test_config, request.shard)
    limits, work_dir = Limits(all=request.timeout), request.work_dir.absolute()
    job = fill(
        ShardTest,
        request,
        run=run,
        shard=shard,
        work_dir=work_dir,
        limits=limits,
        signer=signers.chosen_signer(None),
    )
    folder = job.results if request.later else None
    if folder is not None:
        handover.forget(folder)
    with night_options.note_ending(run, shard.leg, "test", folder, part=shard.part):
        merged = run_shard(job)
    digest, reason = files.sha256_of(job.results / suite_results.SHARD), merged.judgement.reason
    plain = {"leg": shard.leg.id, "config": shard.config, "shard": shard.number, "results": digest}
    return Answer({**plain, "reason": reason}, [f"{shard.name}: {reason}; results {short_id(digest)}"])


def _merge(request: Merge) -> Answer:
    from cairn.pipeline.night.suite import merge_night

    run = request.load_run()
    with console.current().stage(f"judge the suites of the night {run.plan.night}") as stage:
        merges = merge_night(run, request.work_dir.absolute(), signer=request.signer(), say=stage.update)
    bad = [one for one in merges if not one.good and not one.leg.expect_failure]
    error = TestsFailedError(
        f"{len(bad)} of {len(merges)} suites did not pass: {'; '.join(one.name for one in bad)}",
        tip="run the failed shards again: those that are done stay done",
    )
    return Answer(
        [
            {"leg": m.leg.id, "config": m.config, "good": m.good, "reason": m.reason, "record": m.record}
            for m in merges
        ],
        [
            (
                "done" if one.good else "failed",
                f"{one.name}: {one.reason}" + (f"; record {short_id(one.record)}" if one.record else ""),
            )
            for one in merges
        ],
        error=error if bad else None,
    )


COMMANDS = {
    "test": command(SmokeLeg, _test, needs="release"),
    "fetch": command(Fetch, _fetch, needs="release"),
    "keep": command(Keep, _keep, needs="release"),
    "suite": command(Suite, _suite, needs="release"),
    "merge": command(Merge, _merge, needs="release"),
}
