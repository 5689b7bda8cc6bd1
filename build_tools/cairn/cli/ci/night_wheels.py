"""`cairn ci night freeze`, `stage` and `promote`: from frozen sources to a channel."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import common_options as common
from cairn.cli import signing
from cairn.cli.answer import Answer, Note, Piece, Table
from cairn.cli.binder import command
from cairn.cli.ci import night_options
from cairn.errors import GateError, UsageError
from cairn.options import argument, flag, option, part
from cairn.output import console
from cairn.output.wording import short_id
from cairn.pipeline.pipeline_options import FreezeOptions

if TYPE_CHECKING:
    from cairn.matrix.legs import Leg
    from cairn.pipeline.night.plan import NightRun
    from cairn.pipeline.night.promote import LegPromotion
    from cairn.pipeline.night.standing import Listing, Standing
    from cairn.stack import Stack


@dataclass(frozen=True, kw_only=True)
class Freeze(night_options.NightOptions):
    """Options of `cairn ci night freeze`.

    A night of that id that is there already goes on, with the manifest that it has. Outputs of the step,
    under GitHub Actions: `night`, `to`, `image` (of its manifest), `build` (the builds that are yet to be
    made, for a matrix) and `build_count`; `to` is empty where sets stay where they are staged.

        cairn ci night freeze --night 2026-01-31 --stack sample --store ./store
        --matrix matrix.json
    """

    matrix: Path = option(
        "what `cairn matrix --json` printed: the legs that are expected; those of other lines are not",
        convert=converters.file,
        required=True,
    )
    how: FreezeOptions = part(FreezeOptions)
    dry_run: bool = common.dry_run()


def _freeze(request: Freeze) -> Answer:
    from cairn.output import github
    from cairn.pipeline.night import plan, standing
    from cairn.pipeline.night.freeze import freeze
    from cairn.pipeline.night.needs import FreezeRequest

    (stack, legs, others), store = _stack_and_legs(request), request.open_store()
    freeze_request = FreezeRequest(
        night=request.night, stack=stack, legs=legs, others=others, **vars(request.how)
    )
    with console.current().stage(f"freeze {stack.name}, {stack.line}") as stage:
        night = freeze(store, freeze_request, dry_run=request.dry_run, say=stage.update)
    run = plan.NightRun(store=store, plan=night, stack=stack)
    stood = [standing.look(run, leg) for leg in night.legs]
    missing = {leg_standing.leg.id for leg_standing in stood if leg_standing.state == "missing"}
    # With all targets of its legs, whichever of these are staged already: for fewer, other bytes would come.
    builds = [build for build in night.builds if not missing.isdisjoint(build.legs)]
    image = "" if request.dry_run else plan.manifest_of(store, night).toolchain.get("image", "")
    if request.how.image and not request.dry_run and image != request.how.image:
        note = f"builds run in {image or 'no container'}, as the manifest says, not in {request.how.image}"
        console.current().warn(note)
    begun = {"night": night.sealed_id, "to": "" if night.is_open else night.release, "image": image}
    github.write_outputs({**begun, **night_options.outputs("build", builds)})
    text = (
        f"night {night.night}: {night.stack}, {night.sources}, manifest {short_id(night.manifest_sha256)}",
        Table(("leg", "stands at"), [(leg_standing.leg.id, leg_standing.state) for leg_standing in stood]),
        Note(f"it is named, with what it is to build, by --night {night.sealed_id}"),
    )
    more = {
        "named": night.sealed_id,
        "missing": [leg.id for leg in night.legs if leg.id in missing],
        "build": builds,
    }
    return Answer(night, text, more=more)


def _stack_and_legs(request: Freeze) -> tuple[Stack, tuple[Leg, ...], tuple[Leg, ...]]:
    """Return the stack on the line of the night, the legs of that line, and those that were not asked for.

    If the matrix has only one line, it is the night's, unless the user names another.

    Raises:
        UsageError: none of the legs is of the line of the night.
    """
    from cairn import datafile
    from cairn import stack as stacks
    from cairn.matrix.legs import Matrix

    matrix = datafile.read(request.matrix, Matrix)
    legs = matrix.legs
    lines = sorted({leg.line for leg in legs})
    own_line = lines[0] if request.line is None and len(lines) == 1 else request.line
    stack = stacks.load(request.stack)
    line = own_line or stack.for_line(None).line
    if legs and line not in lines:
        reason = f"{line} is asked for" if own_line else f"without --line it is {line}"
        raise UsageError(
            f"a night has one line: {reason}, and {request.matrix} has no leg of it",
            tip=f"name one that it has: {' or '.join(f'--line {name}' for name in lines)}",
        )
    of_line, others = (tuple(leg for leg in of if leg.line == line) for of in (legs, matrix.others))
    return stack.for_line(line), of_line, others


@dataclass(frozen=True, kw_only=True)
class Stage(night_options.AttestedNightOptions):
    """Options of `cairn ci night stage`.

    A set that is not what the night expects is refused; one leg does not hold up the others. Exit code 10
    where no leg is staged, but for those that are expected to fail; the summary of the run shows each leg.
    Outputs of the step: `test` (the legs that a runner is to test, for a matrix), `test_count`, `suite` (the
    shards of their suites that are yet to run, for a matrix), `suite_count`, `merge_count` (how many suites
    are to be judged), `staged_count`.

        cairn ci night stage --night latest --stack sample --store ./store --artifacts
        artifacts
    """

    artifacts: Path | None = option(
        "a folder `wheels-<leg>-<attempt>` for each; the last attempt of a leg counts (default: what "
        "`step build` has left in the store)",
        metavar="DIR",
        convert=converters.any_path,
    )
    only: tuple[str, ...] = night_options.only()


@dataclass(frozen=True, kw_only=True)
class Promote(night_options.AttestedNightOptions):
    """Options of `cairn ci night promote`.

    Ready is what the store has a staged set and passed records of; it can be run at any time, and again.
    Exit code 10 where the gate refused one.

        cairn ci night promote --night latest --stack sample --store ./store
    """

    to: str | None = night_options.to_channel()
    whole: bool = flag(
        "every leg or none: nothing is promoted while one that may come is not ready, or is refused"
    )
    trust: tuple[str, ...] = signing.trust("whose signature each test record must have to count")
    only: tuple[str, ...] = night_options.only()


@dataclass(frozen=True, kw_only=True)
class Release(night_options.AttestedNightOptions):
    """Options of `cairn release night`.

    The sets go from the channel that the night was promoted to into another one, as the very bytes that were
    tested: nothing is built again. Every leg goes, or none; the gate judges each anew. Exit code 10 where one
    is not there, or is refused.

        cairn release night 2026-01-31 --stack pytorch --store ./store
    """

    night: str = argument("NIGHT", "its id; `latest` is the one that was frozen last")
    to: str = option("where its sets go (default: release)", metavar="CHANNEL", default="release")
    trust: tuple[str, ...] = signing.trust("whose signature each test record must have to count")
    only: tuple[str, ...] = night_options.only()


def _stage(request: Stage) -> Answer:
    from cairn.output import github, safe_text
    from cairn.pipeline.night import handover, standing
    from cairn.pipeline.night.stage import stage_night

    with (
        request.attested_run() as run,
        console.current().stage(f"stage the night {run.plan.night}") as stage,
    ):
        if request.artifacts is None:
            results = handover.stage_built(run, say=stage.update)
        else:
            results = stage_night(run, request.artifacts, say=stage.update)
        staged = sum(result.set_id is not None for result in results)
        stood = [standing.look(run, leg) for leg in run.legs]
        lost = [
            result
            for result, stands in zip(results, stood, strict=True)
            if not result.set_id and not result.leg.expect_failure and stands.state != "promoted"
        ]
        stage.end_as("failed" if lost else "done", f"{staged} of {len(results)} legs")
    github.write_outputs({**_to_test(run, stood), "staged_count": str(staged)})
    places = [
        None if run.dry_run or not result.set_id else standing.staged_in(run, result.leg)
        for result in results
    ]
    text: list[tuple[console.Mark, str]] = [
        ("failed", f"{result.leg.name}: {result.reason}")
        if result.set_id is None
        else ("kept" if result.kept else "done", f"{result.leg.name}: {result}{_in_index(place)}")
        for result, place in zip(results, places, strict=True)
    ]
    # The job has succeeded where one leg was staged: the summary of the run shows the others.
    signs = {"failed": "✗", "kept": "=", "done": "✓"}
    lines = (f"- {signs[mark]} {safe_text.markdown(words)}" for mark, words in text)
    github.add_summary("\n".join((f"## Staged of the night {run.plan.night}", "", *lines)))
    error = GateError(
        f"no leg of the night {run.plan.night} was staged",
        reasons=tuple(f"{result.leg.name}: {result.reason}" for result in lost),
        tip="see their builds: cairn ci night report",
    )
    return Answer(
        [
            {
                "leg": result.leg.id,
                "set": result.set_id,
                "index": place.index if place else None,
                "generation": place.generation if place else None,
                "kept": result.kept,
                "reason": result.reason,
                "sdk_size": result.measures.get("sdk_size", 0),
            }
            for result, place in zip(results, places, strict=True)
        ],
        text,
        error=error if lost and not staged else None,
    )


def _to_test(run: NightRun, stood: Sequence[Standing]) -> dict[str, str]:
    """Return the outputs that name the legs and the shards to test."""
    from cairn.pipeline.night import shards

    testable = [
        leg_standing.leg
        for leg_standing in stood
        if leg_standing.state in ("untested", "failed") and leg_standing.leg.smoke_runs_on
    ]
    to_run = [shard for leg in testable for shard in shards.due(run, leg)]
    suites = {(shard.leg.id, shard.config) for leg in testable for shard in shards.expected(run.stack, leg)}
    return {
        **night_options.outputs("test", testable, run.stack),
        **night_options.shard_outputs(to_run, run.stack),
        "merge_count": str(len(suites)),
    }


def _in_index(place: Listing | None) -> str:
    return f", in {place.index}, generation {place.generation}" if place else ""


def _promote(request: Promote) -> Answer:
    from cairn.pipeline.night.promote import promote_night
    from cairn.release.trust import anchor

    with (
        request.attested_run() as run,
        console.current().stage(f"promote the night {run.plan.night}") as stage,
    ):
        legs, strangers = promote_night(run, whole=request.whole, say=stage.update)
        _end(stage, legs)
        if ending := anchor.warning(run.store):
            console.current().warn(ending)
    return _promotion(legs, strangers, run.plan.night)


def _release(request: Release) -> Answer:
    from cairn.pipeline.night.promote import release_night

    act = "judge for" if request.dry_run else "bring to"
    # Which channel the night itself goes to is what the night says.
    with (
        dataclasses.replace(request, to=None).attested_run() as run,  # type: ignore[arg-type]
        console.current().stage(f"{act} {request.to} the night {run.plan.night}") as stage,
    ):
        legs, strangers = release_night(run, request.to, say=stage.update)
        _end(stage, legs)
    night = run.plan.night
    back = f"taking it back: cairn release yank --night {night} --store {request.store} --reason WHY"
    return _promotion(legs, strangers, night, Note("nothing was changed" if request.dry_run else back))


def _end(stage: console.Stage, legs: Sequence[LegPromotion]) -> None:
    promoted, refused = (sum(leg.promoted for leg in legs), any(p.refused for p in legs))
    mark: console.Mark = "done" if promoted == len(legs) else "failed" if refused else "skipped"
    stage.end_as(mark, f"{promoted} of {len(legs)} legs")


def _promotion(legs: Sequence[LegPromotion], strangers: Sequence[str], night: str, *notes: Piece) -> Answer:
    for set_id in strangers:
        console.current().warn(
            f"the staged set {short_id(set_id)} is of the night's manifest, and is not expected"
        )
    rows = [
        {
            "leg": p.before.leg.id,
            "promoted": p.promoted,
            "reason": p.reason,
            "set": p.before.set_id,
            "index": p.listing.index if p.listing else None,
            "generation": p.listing.generation if p.listing else None,
        }
        for p in legs
    ]
    refused = [leg for leg in legs if leg.refused]
    error = GateError(
        f"the gate refused {len(refused)} of {len(legs)} legs of the night {night}",
        reasons=tuple(f"{leg.before.leg.name}: {leg.reason}" for leg in refused),
        tip="the others are where they should be; fix what is named and run it again",
    )
    ends = ("; ".join(filter(None, (p.reason, str(p.listing or "")))) for p in legs)
    shown = [(_mark(leg), f"{leg.before.leg.name}: {end}") for leg, end in zip(legs, ends, strict=True)]
    return Answer(
        {"night": night, "legs": rows, "strangers": strangers},
        [*shown, *(() if refused else notes)],
        error=error if refused else None,
    )


def _mark(leg: LegPromotion) -> console.Mark:
    if leg.before.state == "promoted":
        return "kept"
    if leg.promoted and leg.before.bypass is not None:
        return "bypassed"
    return "done" if leg.promoted else "failed"


COMMANDS = {
    "night": command(Release, _release, needs="release"),
    "freeze": command(Freeze, _freeze, needs="release"),
    "stage": command(Stage, _stage, needs="release"),
    "promote": command(Promote, _promote, needs="release"),
}
