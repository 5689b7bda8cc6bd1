"""`cairn ci run`: the whole trail of a stack on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.cli import fields, signing
from cairn.cli.binder import command
from cairn.options import part
from cairn.output import console
from cairn.pipeline.options import TrailOptions

if TYPE_CHECKING:
    from cairn.pipeline.request import TrailRequest, TrailResult


@dataclass(frozen=True, kw_only=True)
class Run(signing.SignOptions, fields.StackOptions):
    """What `cairn ci run` is asked for.

    What is finished is kept: run it again after an error or an interrupt, and it carries on; the smoke
    tests and the installation run again where a byte, a test, a program or the machine is different. How
    much disk a first run takes (sample: 0.6 GB, pyg: 3.6 GB) is `disk` in the stack.toml, and is checked
    first.

        cairn ci run --stack external-builds/sample --line release/2.9 --targets gfx942,gfx1100
    """

    targets: str | None = fields.targets("the stack's")
    how: TrailOptions = part(TrailOptions)
    json: bool = fields.json()


def _run(request: Run) -> int:
    from cairn.pipeline import run as trail

    result = trail.run(trail_request(request))
    if request.json:
        console.current().json(_plain(result))
    else:
        _show(result)
    return 0


def trail_request(request: Run) -> TrailRequest:
    """What the library is asked for."""
    from cairn import targets as gpu
    from cairn.pipeline.request import TrailRequest

    stack = request.load_stack()
    targets = gpu.parse_targets(request.targets or stack.targets)
    return TrailRequest(stack=stack, targets=targets, signer=request.signer(), **vars(request.how))


def _show(result: TrailResult) -> None:
    from cairn.cli.release.promote import show_demands  # with the commands of releases: not for --help

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
        show_demands(result.promotion.report, unchanged=result.promotion.kept)
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
    from cairn.cli.release.promote import plain_demands

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


COMMANDS = {"run": command(Run, _run)}
