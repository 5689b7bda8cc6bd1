"""`cairn ci night fetch` and `keep`: what a job does with the store, in steps of their own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cairn import converters
from cairn.cli import fields, signing
from cairn.cli.binder import command
from cairn.cli.ci.night import options as common
from cairn.options import option
from cairn.output import console


@dataclass(frozen=True, kw_only=True)
class Fetch(common.NightOptions):
    """What `cairn ci night fetch` is asked for.

    So the step that builds or tests needs no credentials. With --leg, it is what its tests read: the
    staged set and all that it installs; with --shard, also how long the tests of its suite took.

        cairn ci night fetch --night latest --stack external-builds/sample --store ./store
        --output-dir night
    """

    leg: str | None = option(
        "which leg of it (default: what builds read)", metavar="ID", convert=converters.nonempty
    )
    test_config: str = fields.test_config()
    shard: int | None = common.shard()
    output_dir: Path = fields.output_dir()


@dataclass(frozen=True, kw_only=True)
class Keep(signing.SignOptions, common.LegOptions):
    """What `cairn ci night keep` is asked for.

    cairn ci night keep --night latest --leg nightly-gfx94X-dcgpu-py3.12-linux_x86_64 --stack
    external-builds/sample --store ./store
    """

    test_config: str = fields.test_config()
    shard: int | None = common.shard()
    work_dir: Path = fields.work_dir()


def _fetch(request: Fetch) -> None:
    from cairn.pipeline.night import handover

    run, config = request.load_run(), request.test_config
    leg = run.plan.leg(request.leg) if request.leg else None
    shard = common.shard_of(run, leg, config, request.shard) if leg and request.shard else None
    with console.current().stage(f"fetch the night {run.plan.night}"):
        handover.fetch(run, request.output_dir.absolute(), leg, shard)


def _keep(request: Keep) -> None:
    from cairn.pipeline.night import handover

    run, work_dir = request.load_run(), request.work_dir.absolute()
    leg = run.plan.leg(request.leg)
    if request.shard:
        shard = common.shard_of(run, leg, request.test_config, request.shard)
        has_results = handover.keep_shard(run, shard, shard.results_in(work_dir))
    else:
        has_results = handover.keep_tests(run, leg, work_dir / "smoke", request.signer())
    console.current().out("it is kept" if has_results else "the tests have left nothing: they were ended")


COMMANDS = {
    "fetch": command(Fetch, _fetch),
    "keep": command(Keep, _keep),
}
