"""`cairn ci night fetch` and `keep`: what a job does with the store, in steps of their own."""

from __future__ import annotations

import argparse

from cairn import converters
from cairn.cli import arguments, signing
from cairn.cli.ci.night import options as common
from cairn.cli.parser import Subparsers, add_command
from cairn.output import console


def add_to(commands: Subparsers) -> None:
    """Add the commands."""
    _add_fetch(commands)
    _add_keep(commands)


def _add_fetch(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "fetch",
        _fetch,
        about="bring what `build`, `test` or `suite` reads of a night into a folder, which is a store, too",
        more="So the step that builds or tests needs no credentials. With --leg, it is what its tests read: "
        "the staged set and all that it installs; with --shard, also how long the tests of its suite took.",
        example="cairn ci night fetch --night latest --stack external-builds/sample --store ./store "
        "--output-dir night",
    )
    arguments.add_stack(parser)
    common.add_night(parser)
    parser.add_argument("--leg", type=converters.nonempty, metavar="ID", help="which leg of it, to test")
    common.add_shard(parser, default=None, more=" (default: smoke tests)")
    arguments.add_output_dir(parser)


def _add_keep(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "keep",
        _keep,
        about="put into the store what `test --later` or `suite --later` has left in the work folder",
        example="cairn ci night keep --night latest --leg nightly-gfx94X-dcgpu-py3.12-linux_x86_64 "
        "--stack external-builds/sample --store ./store",
    )
    common.add_leg(parser)
    common.add_shard(parser, default=None, more=" (default: smoke tests)")
    common.add_work_dir(parser)
    signing.add_sign_key(parser)


def _fetch(options: argparse.Namespace) -> int:
    from cairn.pipeline.night import handover

    run = common.run_of(options)
    leg = run.plan.leg(options.leg) if options.leg else None
    shard = common.shard_of(options, run) if leg and options.shard else None
    with console.current().stage(f"fetch the night {run.plan.night}"):
        handover.fetch(run, options.output_dir.absolute(), leg, shard)
    return 0


def _keep(options: argparse.Namespace) -> int:
    from cairn.pipeline.night import handover

    run, work_dir = common.run_of(options), options.work_dir.absolute()
    if options.shard:
        shard = common.shard_of(options, run)
        left = handover.keep_shard(run, shard, shard.results_in(work_dir))
    else:
        leg = run.plan.leg(options.leg)
        left = handover.keep_tests(run, leg, work_dir / "smoke", signing.signer(options))
    console.current().out("it is kept" if left else "the tests have left nothing: they were ended")
    return 0
