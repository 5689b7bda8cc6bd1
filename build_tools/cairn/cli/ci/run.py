"""`cairn ci run`: the whole trail of a stack on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.cli import common_options as common
from cairn.cli import signing
from cairn.cli.answer import Answer, Piece, Table
from cairn.cli.binder import command
from cairn.options import part
from cairn.output import console
from cairn.output.wording import short_id
from cairn.pipeline.pipeline_options import TrailOptions

if TYPE_CHECKING:
    from cairn.pipeline.trail import TrailResult


@dataclass(frozen=True, kw_only=True)
class Run(signing.SignOptions, common.StackOptions):
    """Options of `cairn ci run`.

    What is finished is kept: run it again after an error or an interrupt, and it carries on; the smoke
    tests and the installation run again where a byte, a test, a program or the machine is different. How
    much disk a first run takes (sample: 0.6 GB, pyg: 3.6 GB) is `disk` in the stack.toml, and is checked
    first.

        cairn ci run --stack sample --line release/2.9 --targets gfx942,gfx1100
    """

    targets: str | None = common.targets("the stack's")
    how: TrailOptions = part(TrailOptions)


def _run(request: Run) -> Answer:
    from cairn import targets as gpu
    from cairn.pipeline import run
    from cairn.pipeline.trail import TrailRequest

    stack = request.load_stack()
    targets = gpu.parse_targets(request.targets or stack.targets)
    result = run.run(TrailRequest(stack=stack, targets=targets, signer=request.signer(), **vars(request.how)))
    return Answer(_plain(result), _text(result))


def _text(result: TrailResult) -> Iterator[Piece]:
    from cairn.cli.release.promote import demands  # with the commands of releases: not for --help

    rows = (
        (
            wheel.wheel.name.split("-")[0],
            wheel.version,
            console.size(wheel.wheel.stat().st_size),
            " ".join(wheel.targets) or "-",
            short_id(wheel.sha256),
            "cached" if wheel.cached else console.clock(wheel.seconds),
        )
        for wheel in result.wheels
    )
    yield Table(("wheel", "version", "size", "targets", "sha256", "time"), rows)
    yield ""
    if result.promotion.report is not None:
        yield from demands(result.promotion.report, unchanged=result.promotion.already_present)
        yield ""
    installers = " and ".join(result.installers)
    yield f"the set {short_id(result.wheel_set.id)} is in the release index; {installers} install it"
    yield f"report: {result.report.as_uri()}"
    yield "install it in any environment, with pip or with uv:"
    if result.untested_note:
        yield "bypassed", result.untested_note
    yield f"  {result.pip_line}"
    yield f"  {result.uv_line}"


def _plain(result: TrailResult) -> dict[str, object]:
    from cairn.cli.release.promote import plain_demands

    return {
        "schema": "cairn.trail/1",
        "set": result.wheel_set,
        "record": result.record,
        "report": result.report,
        "pip": result.pip_line,
        "uv": result.uv_line,
        **plain_demands(result.promotion.report),
        "untested_note": result.untested_note,
        "kept": [span.name for span in result.spans if span.mark == "kept"],
        "wheels": [
            {"file": w.wheel, "sha256": w.sha256, "seconds": w.seconds, "cached": w.cached}
            for w in result.wheels
        ],
    }


COMMANDS = {"run": command(Run, _run, needs="release")}
