"""A run of the trail: its request, its result, and its report page.

The page is one self-contained file. The stages are drawn on one time scale, which begins with the first and
ends with the last.
"""

from __future__ import annotations

import datetime as dt
import urllib.parse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from cairn import files, templates
from cairn import targets as gpu
from cairn.build.model import BuiltWheel
from cairn.output import console
from cairn.pipeline.pipeline_options import TrailOptions
from cairn.release.index import keys
from cairn.release.promote import Promotion
from cairn.release.trust.signers import Signer
from cairn.sources.checkout.describe import Checkout
from cairn.stack import Stack
from cairn.testing import record
from cairn.testing.record import TestRecord
from cairn.wheels.wheelset import WheelSet

_TICKS = 5  # at most about so many
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400)  # seconds
_SHORTEST = 0.4  # percent of the width, so that a stage of a millisecond can still be seen


@dataclass(frozen=True, kw_only=True)
class TrailRequest(TrailOptions):
    """A run of the trail.

    Attributes:
        stack: the stack, on its line.
        targets: GPU targets, or `cpu` alone.
        signer: the key that vouches for the wheels and the test record; None for no signature.
    """

    stack: Stack
    targets: tuple[str, ...]
    signer: Signer | None = None

    @property
    def with_rocm(self) -> bool:
        """Whether an SDK is made and installed for the run."""
        return self.stack.sdk is not None and self.targets != (gpu.CPU,)

    @property
    def wheels_dir(self) -> Path:
        """The folder of the wheels of the run."""
        return self.work_dir / "wheels"

    @property
    def store_dir(self) -> Path:
        """The path of the store with the staging and release channels."""
        return self.work_dir / "index"

    @property
    def logs_dir(self) -> Path:
        """The folder of the logs of the run."""
        return self.work_dir / "logs"


class StageSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A stage that has ended; times in seconds since the epoch.

    Attributes:
        name: what the report and the console call it.
        start: when it began.
        end: when it ended.
        mark: how it ended.
        detail: why, where it was not plainly done.
    """

    name: str
    start: float
    end: float
    mark: console.Mark = "done"
    detail: str = ""


class TrailResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run of the trail.

    Attributes:
        checkouts: what was built from.
        wheels: what was built.
        wheel_set: the set they form.
        rocm_version: of the SDK; None for a stack without ROCm.
        record: of the smoke tests.
        promotion: of the set to the release channel.
        untested_note: `untested on hardware: gfx942`; None for a set that was tested on all that it is for.
        installers: programs that installed the set from the release index.
        pip_line: the command that installs the set.
        uv_line: likewise, with uv.
        report: the HTML report.
        spans: when each stage ran.
    """

    checkouts: tuple[Checkout, ...]
    wheels: tuple[BuiltWheel, ...]
    wheel_set: WheelSet
    rocm_version: str | None
    record: TestRecord
    promotion: Promotion
    untested_note: str | None
    installers: tuple[str, ...]
    pip_line: str
    uv_line: str
    report: Path
    spans: tuple[StageSpan, ...]


def write_page(request: TrailRequest, result: TrailResult) -> None:
    """Write `report.html` of a run atomically, with links to the files beside it."""
    generated = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    page = render(request, result, generated=generated, links=tuple(_links(request, result)))
    files.write_text(result.report, page)


def render(
    request: TrailRequest, result: TrailResult, *, generated: str, links: tuple[tuple[str, str], ...] = ()
) -> str:
    """Render the report as HTML; all values are escaped.

    Args:
        request: the run.
        result: its result.
        generated: when, ISO 8601 in UTC.
        links: name and address of the files beside the report.
    """
    return templates.page(
        "trail",
        request=request,
        result=result,
        generated=generated,
        links=links,
        built={wheel.sha256: wheel for wheel in result.wheels},
        chart=lay_out(result.spans),
    )


def _links(request: TrailRequest, result: TrailResult) -> Iterator[tuple[str, str]]:
    """Yield the existing files and folders beside the report: browsers show folders of `file:` URLs too."""
    judgement = keys.set_key(result.wheel_set.id, f"judgements/{result.promotion.report_digest}.json")
    pages = {
        "release index": request.store_dir / keys.simple_prefix("release") / "index.html",
        "set": request.wheels_dir / "set.json",
        "manifest": request.wheels_dir / "manifest.json",
        "test record": request.work_dir / "smoke" / record.FILE,
        "gate": request.store_dir / judgement,
        "wheels": request.wheels_dir,
        "logs": request.logs_dir,
        "logs of the builds": request.wheels_dir / "logs",
        "log of the smoke tests": request.work_dir / "smoke" / "smoke.log",
    }
    for name, path in pages.items():
        if path.exists():
            relative = urllib.parse.quote(path.relative_to(result.report.parent).as_posix())
            yield name, relative + ("/" if path.is_dir() else "")


def lay_out(stages: Iterable[StageSpan]) -> dict[str, Any]:
    """Place stages on a scale that begins with the first and ends with the last.

    In order of their start, each on its own row: stages that ran in parallel are one below the other over
    the same stretch of time, and every bar has room for its name.

    Returns:
        `bars`, each a `stage` with its `left` and `width` in percent, and `at_right`, whether its label
        belongs to the left of its end; `ticks`, percent and seconds of each mark on the scale; `seconds` of
        the whole.
    """
    ordered = sorted(stages, key=lambda stage: (stage.start, stage.end, stage.name))
    if not ordered:
        return {"bars": [], "ticks": [], "seconds": 0.0}
    zero = ordered[0].start
    whole = max(max(stage.end for stage in ordered) - zero, 1e-9)
    bars = []
    for stage in ordered:
        width = max((stage.end - stage.start) / whole * 100, _SHORTEST)
        left = min((stage.start - zero) / whole * 100, 100 - width)
        at_right = left > 50  # noqa: PLR2004 - in the right half
        bar = {"stage": stage, "left": round(left, 3), "width": round(width, 3), "at_right": at_right}
        bars.append(bar)
    # The shortest round step that gives few enough ticks; outside of them, a fifth of the whole.
    fitting = next((step for step in _STEPS if whole / step <= _TICKS), None)
    step = fitting if fitting is not None and whole >= _STEPS[0] else whole / _TICKS
    ticks = [
        (round(number * step / whole * 100, 3), number * step) for number in range(int(whole / step) + 1)
    ]
    return {"bars": bars, "ticks": ticks, "seconds": whole}
