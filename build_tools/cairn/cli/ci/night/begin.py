"""`cairn ci night freeze` and `build`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import arguments
from cairn.cli.ci.night import options as common
from cairn.cli.parser import Subparsers, add_command
from cairn.errors import CairnError, UsageError
from cairn.output import console

if TYPE_CHECKING:
    from cairn.build.cache import SharedCache
    from cairn.matrix.legs import Leg

EXAMPLE = (
    "cairn ci night freeze --night 2026-01-31 --stack external-builds/sample --store ./store "
    "--matrix matrix.json"
)


def add_to(commands: Subparsers) -> None:
    """Add the commands."""
    _add_freeze(commands)
    _add_build(commands)


def _add_freeze(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "freeze",
        _freeze,
        about="begin a night: freeze its sources in one manifest, and write down what is expected of it",
        more="A night of that id that is there already goes on, with the manifest that it has. Outputs of "
        "the step, under GitHub Actions: `night`, `to`, `image` (of its manifest), `build` (the legs that "
        "are yet to be built, for a matrix) and `build_count`.",
        example=EXAMPLE,
    )
    arguments.add_stack(parser)
    common.add_night(parser)
    parser.add_argument(
        "--matrix",
        type=converters.file,
        required=True,
        metavar="FILE",
        help="what `cairn matrix --json` printed: the legs that are expected; those of other lines are not",
    )
    parser.add_argument(
        "--staging", default="staging", metavar="CHANNEL", help="where sets wait (default: %(default)s)"
    )
    parser.add_argument(
        "--to", default="nightly", metavar="CHANNEL", help="where they go (default: %(default)s)"
    )
    parser.add_argument(
        "--like", default="", metavar="NIGHT", help="take the manifest of that night; empty for a new one"
    )
    parser.add_argument(
        "--rocm-sdk-version",
        type=arguments.exact_version,
        default="",
        metavar="VERSION",
        help="exact version of the ROCm SDK (default: the stack's, else the newest of --rocm-index-url)",
    )
    _add_rocm_index(parser)
    parser.add_argument(
        "--image", default="", metavar="REF", help="the container that builds run in, by digest, or empty"
    )
    common.add_work_dir(parser)
    arguments.add_build_env(parser)
    parser.add_argument(
        "--as-of",
        type=converters.moment,
        metavar="DATE",
        help="take branches as they were at the end of this date (UTC), or at this time (ISO 8601)",
    )
    arguments.add_dry_run(parser)
    arguments.add_json(parser)


def _add_build(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "build",
        _build,
        about="build the wheels of one leg from what the night froze",
        more="Reads the store and writes nothing into it: the wheels, their set.json and how it went "
        "(step.json) are left in the output folder.",
        example="cairn ci night build --night latest --leg nightly-gfx94X-dcgpu-py3.12-linux_x86_64 "
        "--stack external-builds/sample --store ./store --output-dir wheels",
    )
    common.add_leg(parser)
    _add_rocm_index(parser)
    common.add_work_dir(parser)
    arguments.add_output_dir(parser)
    arguments.add_jobs(parser, what="compile jobs")
    parser.add_argument(
        "--cache-store",
        default="",
        metavar="URL",
        help="where built wheels are kept for other machines, such as s3://bucket/cache; empty for nowhere",
    )


def _add_rocm_index(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rocm-index-url",
        default="",
        metavar="URL",
        help="index of ROCm packages, for stacks that do not make their SDK; {family} stands for the family",
    )


def _freeze(options: argparse.Namespace) -> int:
    from cairn import datafile
    from cairn.output import github
    from cairn.pipeline.night import plan, standing
    from cairn.pipeline.night.freeze import FreezeRequest, freeze

    legs = _legs(options)
    stack, store = arguments.read_stack(options), arguments.open_store(options)
    request = FreezeRequest(
        night=options.night,
        stack=stack,
        legs=tuple(leg for leg in legs if leg.line == stack.line),
        work_dir=options.work_dir.absolute(),
        staging=options.staging,
        release=options.to,
        rocm_index_url=options.rocm_index_url or None,
        rocm_sdk_version=options.rocm_sdk_version or None,
        image=options.image,
        as_of=options.as_of,
        like=options.like or None,
        build_env=tuple(options.build_env),
    )
    with console.current().stage(f"freeze {stack.name}, {stack.line}") as stage:
        made = freeze(store, request, dry_run=options.dry_run, say=stage.update)
    run = plan.NightRun(store=store, plan=made, stack=stack)
    stood = [standing.look(run, leg) for leg in made.legs]
    missing = [one.leg for one in stood if one.state == "missing"]
    screen = console.current()
    image = "" if options.dry_run else plan.manifest_of(store, made).toolchain.get("image", "")
    if options.image and not options.dry_run and image != options.image:
        screen.warn(f"builds run in {image or 'no container'}, as the manifest says, not in {options.image}")
    begun = {"night": made.night, "to": made.release, "image": image}
    github.write_outputs({**begun, **common.outputs("build", missing)})
    if options.json:
        screen.json({**datafile.to_plain(made), "missing": [leg.id for leg in missing]})
        return 0
    screen.out(f"night {made.night}: {made.stack}, {made.line}, manifest {made.manifest_sha256[:12]}")
    screen.table(("leg", "stands at"), [(one.leg.id, one.state) for one in stood])
    return 0


def _legs(options: argparse.Namespace) -> tuple[Leg, ...]:
    """The legs of the matrix. Where that has one line, it is the night's, unless the user names another.

    Raises:
        UsageError: none of them is of the line of the night.
    """
    from cairn import datafile
    from cairn import stack as stacks
    from cairn.matrix.legs import Matrix

    legs = datafile.read(options.matrix, Matrix).legs
    lines = sorted({leg.line for leg in legs})
    if options.line is None and len(lines) == 1:
        options.line = lines[0]
    line = options.line or stacks.load(options.stack).for_line(None).line
    if legs and line not in lines:
        given = f"{line} is asked for" if options.line else f"without --line it is {line}"
        raise UsageError(
            f"a night has one line: {given}, and {options.matrix} has no leg of it",
            tip=f"name one that it has: {' or '.join(f'--line {name}' for name in lines)}",
        )
    return legs


def _build(options: argparse.Namespace) -> int:
    from cairn import datafile
    from cairn.cli.build.run import show_wheels
    from cairn.pipeline.night.build import LegBuild, build_leg
    from cairn.pipeline.night.stage import NOTE_FILE, SET_FILE
    from cairn.release.index.generation import now

    run, started = common.run_of(options), now()
    leg = run.plan.leg(options.leg)
    request = LegBuild(
        plan=run.plan,
        leg=leg,
        stack=run.stack,
        work_dir=options.work_dir.absolute(),
        output_dir=options.output_dir.absolute(),
        rocm_index_url=options.rocm_index_url or None,
        jobs=options.jobs,
        shared_cache=_shared_cache(options),
    )
    request.output_dir.mkdir(parents=True, exist_ok=True)
    said = request.output_dir / NOTE_FILE
    for name in (NOTE_FILE, SET_FILE):  # of an earlier build in the same folder
        (request.output_dir / name).unlink(missing_ok=True)
    try:
        wheels = build_leg(run.store, request)
    except (CairnError, OSError) as error:
        datafile.write(said, common.note(run.plan, leg, "build", started, error))
        raise
    datafile.write(said, common.note(run.plan, leg, "build", started))
    return show_wheels(wheels)


def _shared_cache(options: argparse.Namespace) -> SharedCache | None:
    from cairn.build.cache import SharedCache

    if not options.cache_store:
        return None
    return SharedCache(url=options.cache_store, endpoint_url=options.endpoint_url, read_only=False)
