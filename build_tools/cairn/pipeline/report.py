"""The page that shows what a run did, straight from the values of its stages: one file that loads nothing.

Its stages are drawn on one scale of time, which begins with the first and ends with the last.
"""

from __future__ import annotations

import datetime as dt
import urllib.parse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cairn import files
from cairn.pipeline.request import StageSpan, TrailRequest, TrailResult
from cairn.release.index import keys
from cairn.templates import html
from cairn.testing import record

_TICKS = 5  # at most about so many
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400)  # seconds
_SHORTEST = 0.4  # percent of the width, so that a stage of a millisecond can still be seen


@dataclass(frozen=True, kw_only=True)
class Link:
    """A file or folder beside the report.

    Attributes:
        name: what the page calls it.
        target: a URL, relative to the report where it is beside it.
    """

    name: str
    target: str


def write(request: TrailRequest, result: TrailResult) -> None:
    """Write `report.html` of a run atomically, with links to the files beside it."""
    generated = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    page = render(request, result, generated=generated, links=tuple(_links(request, result)))
    files.write_text(result.report, page)


def render(
    request: TrailRequest, result: TrailResult, *, generated: str, links: tuple[Link, ...] = ()
) -> str:
    """The report as HTML; whatever the values hold is shown as text, all of it.

    Args:
        request: the run.
        result: its result.
        generated: when, ISO 8601 in UTC.
        links: to the files beside the report.
    """
    return html.page(
        "trail",
        request=request,
        result=result,
        generated=generated,
        links=links,
        built={wheel.sha256: wheel for wheel in result.wheels},
        chart=lay_out(result.spans),
    )


def _links(request: TrailRequest, result: TrailResult) -> Iterator[Link]:
    """The files and folders beside the report that exist: a browser shows folders of `file:` too."""
    judgement = keys.set_key(result.wheel_set.id, f"judgements/{result.promotion.judgement}.json")
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
            yield Link(name=name, target=relative + ("/" if path.is_dir() else ""))


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A stage, placed.

    Attributes:
        stage: what it stands for.
        lane: its row, from 0; stages of one lane never overlap.
        left: percent of the width.
        width: likewise.
        at_right: whether its label belongs to the left of its end, for want of room to the right.
    """

    stage: StageSpan
    lane: int
    left: float
    width: float
    at_right: bool


@dataclass(frozen=True, kw_only=True)
class Tick:
    """A mark on the scale: its place in percent, and its seconds."""

    left: float
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Bars and the scale they are drawn to.

    Attributes:
        bars: by start.
        ticks: from 0 on.
        lanes: how many rows there are.
        seconds: the whole width.
    """

    bars: tuple[Bar, ...]
    ticks: tuple[Tick, ...]
    lanes: int
    seconds: float


def lay_out(stages: Iterable[StageSpan]) -> Chart:
    """Place stages on a scale that begins with the first and ends with the last.

    Each gets a lane of its own, in the order in which they began: what ran side by side stands one below the
    other over the same stretch of time, and every bar has room for its name.
    """
    ordered = sorted(stages, key=lambda stage: (stage.start, stage.end, stage.name))
    if not ordered:
        return Chart(bars=(), ticks=(), lanes=0, seconds=0.0)
    zero = ordered[0].start
    whole = max(max(stage.end for stage in ordered) - zero, 1e-9)
    bars = tuple(_bar(stage, lane, zero, whole) for lane, stage in enumerate(ordered))
    return Chart(bars=bars, ticks=_ticks(whole), lanes=len(ordered), seconds=whole)


def _bar(stage: StageSpan, lane: int, zero: float, whole: float) -> Bar:
    left = (stage.start - zero) / whole * 100
    width = max((stage.end - stage.start) / whole * 100, _SHORTEST)
    left = min(left, 100 - width)
    return Bar(stage=stage, lane=lane, left=round(left, 3), width=round(width, 3), at_right=left > 50)  # noqa: PLR2004


def _ticks(whole: float) -> tuple[Tick, ...]:
    # The shortest round step that gives few enough ticks; outside of them, a fifth of the whole.
    fitting = next((step for step in _STEPS if whole / step <= _TICKS), None)
    step = fitting if fitting is not None and whole >= _STEPS[0] else whole / _TICKS
    count = int(whole / step)
    return tuple(Tick(left=round(i * step / whole * 100, 3), seconds=i * step) for i in range(count + 1))
