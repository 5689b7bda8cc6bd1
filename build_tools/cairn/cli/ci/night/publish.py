"""`cairn ci night stage`, `test` and `promote`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import fields, signing
from cairn.cli.answer import Answer, Piece
from cairn.cli.binder import command
from cairn.cli.ci.night import options as common
from cairn.errors import GateError
from cairn.options import flag, option
from cairn.output import console

if TYPE_CHECKING:
    from cairn.pipeline.night.promote import LegPromotion


@dataclass(frozen=True, kw_only=True)
class Stage(common.AttestedNightOptions):
    """What `cairn ci night stage` is asked for.

    A set that is not what the night expects is refused; one leg does not hold up the others. Outputs of
    the step: `test` (the legs that a runner is to test, for a matrix), `test_count`, `suite` (the shards
    of their suites that are yet to run, for a matrix), `suite_count`, `merge_count` (how many suites are
    to be judged), `staged_count`.

        cairn ci night stage --night latest --stack external-builds/sample --store ./store --artifacts
        artifacts
    """

    artifacts: Path = option(
        "a folder `wheels-<leg>-<attempt>` for each; the last attempt of a leg counts",
        metavar="DIR",
        convert=converters.any_path,
        required=True,
    )
    json: bool = fields.json()


@dataclass(frozen=True, kw_only=True)
class SmokeLeg(signing.SignOptions, common.LegOptions):
    """What `cairn ci night test` is asked for.

    A machine whose GPUs are not those of the leg is refused before anything is installed. Where `compat`
    is set in the matrix.toml, what the compatibility pages claim is measured too.

        cairn ci night test --night latest --leg nightly-gfx94X-dcgpu-py3.12-linux_x86_64 --stack
        external-builds/sample --store ./store
    """

    work_dir: Path = fields.work_dir()
    timeout: float = option(
        "for each run of pytest", metavar="SECONDS", convert=converters.seconds, default=1800.0
    )
    later: bool = common.later()


@dataclass(frozen=True, kw_only=True)
class Promote(common.AttestedNightOptions):
    """What `cairn ci night promote` is asked for.

    Ready is what the store has a staged set and passed records of; it can be run at any time, and again.
    Exit code 10 where the gate refused one.

        cairn ci night promote --night latest --stack external-builds/sample --store ./store
    """

    to: str | None = common.to_channel()
    whole: bool = flag(
        "every leg or none: nothing is promoted while one that may come is not ready, or is refused"
    )
    trust: tuple[str, ...] = signing.trust("whose signature each test record must have to count")
    json: bool = fields.json()


def _stage(request: Stage) -> Answer:
    from cairn.output import github
    from cairn.pipeline.night import shards, standing
    from cairn.pipeline.night.stage import stage_night

    with (
        request.attested_run() as run,
        console.current().stage(f"stage the night {run.plan.night}") as stage,
    ):
        results = stage_night(run, request.artifacts, say=stage.update)
    stood = [standing.look(run, leg) for leg in run.plan.legs]
    testable = [one.leg for one in stood if one.state in ("untested", "failed") and one.leg.test_runs_on]
    to_run = [shard for leg in testable for shard in shards.due(run, leg)]
    suites = {(shard.leg.id, shard.config) for leg in testable for shard in shards.expected(run.stack, leg)}
    staged = sum(one.set_id is not None for one in stood)
    github.write_outputs(
        {
            **common.outputs("test", testable),
            **common.shard_outputs(to_run),
            "merge_count": str(len(suites)),
            "staged_count": str(staged),
        }
    )
    text: list[Piece] = []
    for one in results:
        if one.set_id is None:
            text.append(("failed", f"{one.leg.name}: {one.reason}"))
        else:
            text.append(("kept" if one.kept else "done", f"{one.leg.name}: set {one.set_id[:12]}"))
    return Answer(
        [{"leg": one.leg.id, "set": one.set_id, "kept": one.kept, "reason": one.reason} for one in results],
        text,
    )


def _test(request: SmokeLeg) -> None:
    from cairn.pipeline.night import handover
    from cairn.pipeline.night.smoke import LegTest, smoke_leg

    run = request.load_run()
    leg = run.plan.leg(request.leg)
    job = LegTest(
        run=run,
        leg=leg,
        work_dir=request.work_dir.absolute() / "smoke",
        timeout=request.timeout,
        signer=request.signer(),
        later=request.later,
    )
    folder = job.work_dir if request.later else None
    if folder is not None:
        handover.forget(folder)
    with common.noted(run, leg, "test", folder):
        record = smoke_leg(job)
    console.current().out(f"{leg.name}: {record.verdict}: {record.reason}")


def _promote(request: Promote) -> Answer:
    from cairn.pipeline.night.promote import promote_night

    with (
        request.attested_run() as run,
        console.current().stage(f"promote the night {run.plan.night}") as stage,
    ):
        promotion = promote_night(run, whole=request.whole, say=stage.update)
    for set_id in promotion.strangers:
        console.current().warn(
            f"the staged set {set_id[:12]} is of the night's manifest, and is not expected"
        )
    legs = [{"leg": p.before.leg.id, "promoted": p.promoted, "reason": p.reason} for p in promotion.legs]
    refused = [one for one in promotion.legs if one.refused]
    error = GateError(
        f"the gate refused {len(refused)} of {len(promotion.legs)} legs of the night {run.plan.night}",
        reasons=tuple(f"{one.before.leg.name}: {one.reason}" for one in refused),
        tip="the others are where they should be; fix what is named and run it again",
    )
    return Answer(
        {"night": run.plan.night, "legs": legs, "strangers": promotion.strangers},
        [(_mark(one), f"{one.before.leg.name}: {one.reason or 'in the index'}") for one in promotion.legs],
        error=error if refused else None,
    )


def _mark(leg: LegPromotion) -> console.Mark:
    if leg.before.state == "promoted":
        return "kept"
    if leg.promoted and leg.before.bypass is not None:
        return "bypassed"
    return "done" if leg.promoted else "failed"


COMMANDS = {
    "stage": command(Stage, _stage),
    "test": command(SmokeLeg, _test),
    "promote": command(Promote, _promote),
}
