"""`cairn ci run`: the whole trail of a stack on this machine."""

from __future__ import annotations

import argparse
from pathlib import Path

from cairn import datafile
from cairn import targets as gpu
from cairn.cli import common, demands, paths
from cairn.cli.parser import Subparsers
from cairn.output import console
from cairn.pipeline import run as trail
from cairn.pipeline.request import TrailRequest, TrailResult

_EXAMPLE = "example: cairn ci run --stack external-builds/sample --line release/2.9 --targets gfx942,gfx1100"


def register(subparsers: Subparsers) -> None:
    """Add the group to the program."""
    parser = subparsers.add_parser(
        "ci", help="run a stack end to end", description="Run a stack end to end.", epilog=_EXAMPLE
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser(
        "run",
        help="checkout, build, stage, smoke-test, gate, promote, install",
        description="Run the whole trail of a stack on this machine. What is finished is kept: run it again "
        "after an error or an interrupt, and it carries on; the smoke tests and the installation run again "
        "where a byte, a test, a program or the machine is different. How much disk a first run takes "
        "(sample: 0.6 GB, pyg: 3.6 GB) is `disk` in the stack.toml, and is checked first.",
        epilog=_EXAMPLE,
    )
    common.add_stack(run)
    run.add_argument(
        "--work-dir",
        type=paths.new_folder,
        default=Path(".cairn"),
        metavar="DIR",
        help="folder of checkouts, environments, wheels, index and report (default: %(default)s)",
    )
    common.add_targets(run, default="the stack's")
    common.add_jobs(run, what="compile jobs")
    common.add_build_env(run)
    common.add_force(run)
    common.add_json(run)
    run.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    request = _request(options)
    result = trail.run(request)
    if options.json:
        console.current().json(_plain(result))
    else:
        _show(result)
    return 0


def _request(options: argparse.Namespace) -> TrailRequest:
    stack = common.read_stack(options)
    given = {"jobs": options.jobs} if options.jobs else {}
    return TrailRequest(
        stack=stack,
        targets=gpu.parse_targets(options.targets or stack.targets),
        work_dir=options.work_dir.absolute(),
        force=options.force,
        build_env=tuple(options.build_env),
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
        demands.show(result.promotion.report, kept=result.promotion.kept)
        show.out("")
    show.out(
        f"the set {result.wheel_set.set_id[:12]} is in the release index;"
        f" {' and '.join(result.installers)} install it"
    )
    show.out(f"report: {result.report.as_uri()}")
    show.out("install it in any environment, with pip or with uv:")
    if result.untested_note:
        show.item("bypassed", result.untested_note)
    show.out(f"  {result.pip_line}")
    show.out(f"  {result.uv_line}")


def _plain(result: TrailResult) -> dict[str, object]:
    return {
        "schema": "cairn.trail/1",
        "set": datafile.to_plain(result.wheel_set),
        "record": datafile.to_plain(result.record),
        "report": str(result.report),
        "pip": result.pip_line,
        "uv": result.uv_line,
        **demands.plain(result.promotion.report),
        "untested_note": result.untested_note,
        "kept": [span.name for span in result.spans if span.mark == "kept"],
        "wheels": [
            {"file": str(w.wheel), "sha256": w.sha256, "seconds": w.seconds, "cached": w.cached}
            for w in result.wheels
        ],
    }
