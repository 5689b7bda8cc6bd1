"""`cairn ci run`: the whole trail of a stack on this machine."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.build.options import CompilerCacheOptions
from cairn.cli import arguments, binder, fields, signing
from cairn.cli.parser import Subparsers, add_command
from cairn.cli.release.promote import plain_demands, show_demands
from cairn.output import console

if TYPE_CHECKING:
    from cairn.pipeline.request import TrailRequest, TrailResult

EXAMPLE = "cairn ci run --stack external-builds/sample --line release/2.9 --targets gfx942,gfx1100"


@dataclass(frozen=True, kw_only=True)
class _Building(CompilerCacheOptions):
    split: bool = fields.split()


def add_to(commands: Subparsers) -> None:
    """Add `run`."""
    run = add_command(
        commands,
        "run",
        _run,
        about="run the whole trail of a stack on this machine: checkout, build, stage, smoke-test, gate, "
        "promote, install",
        more="What is finished is kept: run it again after an error or an interrupt, and it carries on; the "
        "smoke tests and the installation run again where a byte, a test, a program or the machine is "
        "different. How much disk a first run takes (sample: 0.6 GB, pyg: 3.6 GB) is `disk` in the "
        "stack.toml, and is checked first.",
        example=EXAMPLE,
    )
    arguments.add_stack(run)
    run.add_argument(
        "--work-dir",
        type=converters.new_folder,
        default=Path(".cairn"),
        metavar="DIR",
        help="folder of checkouts, environments, wheels, index and report (default: %(default)s)",
    )
    arguments.add_targets(run, default="the stack's")
    arguments.add_jobs(run, what="compile jobs")
    arguments.add_build_env(run)
    binder.add_options(run, _Building)
    binder.add_options(run, signing.SignOptions)
    arguments.add_force(run)
    arguments.add_json(run)


def _run(options: argparse.Namespace) -> int:
    from cairn.pipeline import run as trail

    request = _request(options)
    result = trail.run(request)
    if options.json:
        console.current().json(_plain(result))
    else:
        _show(result)
    return 0


def _request(options: argparse.Namespace) -> TrailRequest:
    from cairn import targets as gpu
    from cairn.pipeline.request import TrailRequest

    stack, building = arguments.read_stack(options), binder.make(_Building, options)
    given = {"jobs": options.jobs} if options.jobs else {}
    return TrailRequest(
        stack=stack,
        targets=gpu.parse_targets(options.targets or stack.targets),
        work_dir=options.work_dir.absolute(),
        split=building.split,
        force=options.force,
        build_env=tuple(options.build_env),
        compiler_cache=building.compiler_cache,
        signer=binder.make(signing.SignOptions, options).signer(),
        **given,
    )


def _show(result: TrailResult) -> None:
    show = console.current()
    show.table(
        ("wheel", "version", "size", "targets", "sha256", "time"),
        [
            (
                wheel.wheel.name.split("-")[0],
                wheel.version,
                console.size(wheel.wheel.stat().st_size),
                " ".join(wheel.targets) or "-",
                wheel.sha256[:12],
                "cached" if wheel.cached else console.clock(wheel.seconds),
            )
            for wheel in result.wheels
        ],
    )
    show.out("")
    if result.promotion.report is not None:
        show_demands(result.promotion.report, kept=result.promotion.kept)
        show.out("")
    show.out(
        f"the set {result.wheel_set.id[:12]} is in the release index;"
        f" {' and '.join(result.installers)} install it"
    )
    show.out(f"report: {result.report.as_uri()}")
    show.out("install it in any environment, with pip or with uv:")
    if result.untested_note:
        show.item("bypassed", result.untested_note)
    show.out(f"  {result.pip_line}")
    show.out(f"  {result.uv_line}")


def _plain(result: TrailResult) -> dict[str, object]:
    from cairn import datafile

    return {
        "schema": "cairn.trail/1",
        "set": datafile.to_plain(result.wheel_set),
        "record": datafile.to_plain(result.record),
        "report": str(result.report),
        "pip": result.pip_line,
        "uv": result.uv_line,
        **plain_demands(result.promotion.report),
        "untested_note": result.untested_note,
        "kept": [span.name for span in result.spans if span.mark == "kept"],
        "wheels": [
            {"file": str(w.wheel), "sha256": w.sha256, "seconds": w.seconds, "cached": w.cached}
            for w in result.wheels
        ],
    }
