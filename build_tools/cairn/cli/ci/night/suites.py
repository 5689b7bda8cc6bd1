"""`cairn ci night suite` and `merge`: a night's runs of the projects' own tests, in shards, and judged."""

from __future__ import annotations

import argparse

from cairn import converters
from cairn.cli import arguments, signing
from cairn.cli.ci.night import options as common
from cairn.cli.parser import Subparsers, add_command
from cairn.errors import CairnError, TestsFailedError
from cairn.output import console

_TIMEOUT = 18000.0  # seconds: a shard that ends by itself keeps what it has; one whose job is ended does not


def add_to(commands: Subparsers) -> None:
    """Add the commands."""
    _add_suite(commands)
    _add_merge(commands)


def _add_suite(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "suite",
        _suite,
        about="run a shard of the project's own tests on the staged set of one leg, and keep its results",
        more="The tests are of the commit that the night froze, and the wheel must say that it was built "
        "from it. `cairn ci night merge` judges the shards together. What the skip-tests folder beside the "
        "stack.toml names is left out.",
        example="cairn ci night suite --night latest --leg nightly-gfx94X-dcgpu-py3.12-linux_x86_64 "
        "--test-config default --shard 1 --stack external-builds/sample --store ./store",
    )
    common.add_leg(parser)
    common.add_shard(parser, default=1)
    common.add_work_dir(parser)
    parser.add_argument(
        "--timeout",
        type=converters.seconds,
        default=_TIMEOUT,
        metavar="SECONDS",
        help="for all tests together (default: %(default)g)",
    )
    common.add_later(parser)


def _add_merge(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "merge",
        _merge,
        about="judge the shards of a night's suites together, and keep a record of each suite in the store",
        more="A shard that left no result is a failure. Exit code 8 where a suite did not pass, and its leg "
        "is not expected to fail.",
        example="cairn ci night merge --night latest --stack external-builds/sample --store ./store",
    )
    arguments.add_stack(parser)
    common.add_night(parser)
    common.add_work_dir(parser)
    signing.add_sign_key(parser)
    arguments.add_json(parser)


def _suite(options: argparse.Namespace) -> int:
    from cairn.pipeline.night import handover
    from cairn.pipeline.night.suite import ShardTest, run_shard
    from cairn.release.index.generation import now
    from cairn.testing.suite.attempt import Limits

    run, started = common.run_of(options), now()
    shard = common.shard_of(options, run)
    request = ShardTest(
        run=run,
        shard=shard,
        work_dir=options.work_dir.absolute(),
        limits=Limits(all=options.timeout),
        later=options.later,
    )
    folder = request.results if options.later else None
    if folder is not None:
        handover.forget(folder)
    try:
        merged = run_shard(request)
    except (CairnError, OSError) as error:
        said = common.note(run.plan, shard.leg, "test", started, error, part=shard.part)
        common.keep_note(run, said, folder)
        raise
    said = common.note(run.plan, shard.leg, "test", started, part=shard.part)
    common.keep_note(run, said, folder)
    console.current().out(f"{shard.name}: {merged.judgement.reason}")
    return 0


def _merge(options: argparse.Namespace) -> int:
    from cairn.pipeline.night.merge import merge_night

    run, screen = common.run_of(options), console.current()
    with screen.stage(f"judge the suites of the night {run.plan.night}") as stage:
        done = merge_night(run, options.work_dir.absolute(), signer=signing.signer(options), say=stage.update)
    if options.json:
        screen.json(
            [
                {"leg": one.leg.id, "config": one.config, "good": one.good, "reason": one.reason}
                for one in done
            ]
        )
    else:
        for one in done:
            screen.item("done" if one.good else "failed", f"{one.name}: {one.reason}")
    if bad := [one for one in done if not one.good and not one.leg.expect_failure]:
        raise TestsFailedError(
            f"{len(bad)} of {len(done)} suites did not pass: {'; '.join(one.name for one in bad)}",
            tip="run the failed shards again: those that are done stay done",
        )
    return 0
