"""`cairn ci night freeze` and `build`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import fields
from cairn.cli.answer import Answer, Table
from cairn.cli.binder import command
from cairn.cli.ci.night import options as common
from cairn.errors import UsageError
from cairn.options import option, part
from cairn.output import console
from cairn.pipeline.options import FreezeOptions, LegBuildOptions

if TYPE_CHECKING:
    from cairn.matrix.legs import Leg
    from cairn.stack import Stack


@dataclass(frozen=True, kw_only=True)
class Freeze(common.NightOptions):
    """What `cairn ci night freeze` is asked for.

    A night of that id that is there already goes on, with the manifest that it has. Outputs of the step,
    under GitHub Actions: `night`, `to`, `image` (of its manifest), `build` (the legs that are yet to be
    built, for a matrix) and `build_count`.

        cairn ci night freeze --night 2026-01-31 --stack external-builds/sample --store ./store
        --matrix matrix.json
    """

    matrix: Path = option(
        "what `cairn matrix --json` printed: the legs that are expected; those of other lines are not",
        metavar="FILE",
        convert=converters.file,
        required=True,
    )
    how: FreezeOptions = part(FreezeOptions)
    dry_run: bool = fields.dry_run()
    json: bool = fields.json()


@dataclass(frozen=True, kw_only=True)
class Build(common.LegOptions):
    """What `cairn ci night build` is asked for.

    Reads the store and writes nothing into it: the wheels, their set.json and how it went (step.json) are
    left in the output folder.

        cairn ci night build --night latest --leg nightly-gfx94X-dcgpu-py3.12-linux_x86_64 --stack
        external-builds/sample --store ./store --output-dir wheels
    """

    output_dir: Path = fields.output_dir()
    how: LegBuildOptions = part(LegBuildOptions)
    cache_store: str = option(
        "where built wheels are kept for other machines, such as s3://bucket/cache; empty for nowhere",
        metavar="URL",
        default="",
    )


def _freeze(request: Freeze) -> Answer:
    from cairn.output import github
    from cairn.pipeline.night import plan, standing
    from cairn.pipeline.night.freeze import FreezeRequest, freeze

    (stack, legs), store = _stack_and_legs(request), request.open_store()
    freeze_request = FreezeRequest(night=request.night, stack=stack, legs=legs, **vars(request.how))
    with console.current().stage(f"freeze {stack.name}, {stack.line}") as stage:
        night = freeze(store, freeze_request, dry_run=request.dry_run, say=stage.update)
    run = plan.NightRun(store=store, plan=night, stack=stack)
    stood = [standing.look(run, leg) for leg in night.legs]
    missing = [one.leg for one in stood if one.state == "missing"]
    image = "" if request.dry_run else plan.manifest_of(store, night).toolchain.get("image", "")
    if request.how.image and not request.dry_run and image != request.how.image:
        note = f"builds run in {image or 'no container'}, as the manifest says, not in {request.how.image}"
        console.current().warn(note)
    begun = {"night": night.night, "to": night.release, "image": image}
    github.write_outputs({**begun, **common.outputs("build", missing)})
    text = (
        f"night {night.night}: {night.stack}, {night.line}, manifest {night.manifest_sha256[:12]}",
        Table(("leg", "stands at"), [(one.leg.id, one.state) for one in stood]),
    )
    return Answer(night, text, more={"missing": [leg.id for leg in missing]})


def _stack_and_legs(request: Freeze) -> tuple[Stack, tuple[Leg, ...]]:
    """The stack on the line of the night, and the legs of that line.

    Where the matrix has one line, it is the night's, unless the user names another.

    Raises:
        UsageError: none of the legs is of the line of the night.
    """
    from cairn import datafile
    from cairn import stack as stacks
    from cairn.matrix.legs import Matrix

    legs = datafile.read(request.matrix, Matrix).legs
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
    return stack.for_line(line), tuple(leg for leg in legs if leg.line == line)


def _build(request: Build) -> Answer:
    from cairn.build.cache import SharedCache
    from cairn.cli.build.run import built_wheels
    from cairn.pipeline.night.build import LegBuild, build_leg
    from cairn.pipeline.night.stage import NOTE_FILE
    from cairn.pipeline.staging import SET_FILE

    run = request.load_run()
    leg = run.plan.leg(request.leg)
    cache = SharedCache(url=request.cache_store, endpoint_url=request.endpoint_url, read_only=False)
    job = LegBuild(
        run=run,
        leg=leg,
        output_dir=request.output_dir.absolute(),
        shared_cache=cache if request.cache_store else None,
        **vars(request.how),
    )
    for name in (NOTE_FILE, SET_FILE):  # of an earlier build in the same folder
        (job.output_dir / name).unlink(missing_ok=True)
    with common.noted(run, leg, "build", job.output_dir):
        wheels = build_leg(job)
    return built_wheels(wheels)


COMMANDS = {
    "freeze": command(Freeze, _freeze),
    "build": command(Build, _build),
}
