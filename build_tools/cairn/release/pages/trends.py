"""What each night measured of each leg of an index, and the nights at which a line jumps.

It is one object of the index, `trends.json`: whoever reports a night adds a point to each leg that came
through, and drops the oldest.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
from msgspec import structs

from cairn import datafile
from cairn.errors import UsageError
from cairn.output.console import size

KEPT = 120
"""Nights of each leg: a quarter, and what is needed to see that its first one is no jump."""

_LEVEL = 14  # nights, at most, that the next one is compared with
_SCATTER = 1.4826  # of a normal distribution: the standard deviation by the median absolute deviation
_MOST_SCATTER = 5  # standard deviations
_WIDTH, _HEIGHT = 240.0, 36.0  # of a drawing, in its own units


class Point(datafile.Value):
    """What one night measured of a leg.

    Attributes:
        night: its id.
        started: when it began, RFC 3339 in UTC.
        set_id: the set that came out of it.
        values: by the names in `MEASURES`.
    """

    night: str
    started: str
    set_id: str
    values: Mapping[str, float]


class Trends(datafile.Value, tag_field="schema", tag="cairn.trends/1"):
    """What the last nights measured.

    Attributes:
        index: whose.
        legs: by line, family, Python and platform (`leg_of`), the oldest night first.
    """

    index: str
    legs: Mapping[str, tuple[Point, ...]] = {}

    def plus(self, leg: str, point: Point) -> Trends:
        """Return the trends with a night, which replaces what was there of the same id."""
        others = (past for past in self.legs.get(leg, ()) if past.night != point.night)
        points = sorted((*others, point), key=lambda point: (point.started, point.night))
        return structs.replace(self, legs={**self.legs, leg: tuple(points[-KEPT:])})


def leg_of(line: str, family: str, python: str, platform: str) -> str:
    """Return the name of a leg: `release/2.9 gfx110X-all 3.11 linux_x86_64`."""
    return f"{line} {family} {python} {platform}"


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a night measures.

    Attributes:
        title: what it is called on the page.
        words: a value with its unit.
        share: the least change that is a jump, as a share of the value before.
        is_noisy: whether the same wheels may measure differently: a jump is one that the next night confirms.
    """

    title: str
    words: Callable[[float], str]
    share: float
    is_noisy: bool = False


def _count(value: float) -> str:
    return f"{round(value):,}"


MEASURES: Mapping[str, Measure] = {
    "wheel_size": Measure(title="size of the wheels", words=lambda v: size(round(v)), share=0.03),
    "installed_size": Measure(title="installed size", words=lambda v: size(round(v)), share=0.03),
    "kernels": Measure(title="kernels", words=_count, share=0.01),
    "passed_tests": Measure(title="passed tests", words=_count, share=0.02),
    "build_minutes": Measure(
        title="build", words=lambda value: f"{value:.1f} min", share=0.25, is_noisy=True
    ),
    "import_seconds": Measure(
        title="import", words=lambda value: f"{value:.2f} s", share=0.25, is_noisy=True
    ),
}
"""By name, in the order of the page."""


class Jump(msgspec.Struct, frozen=True, kw_only=True):
    """A night whose value is not that of the nights before.

    Attributes:
        measure: which, of `MEASURES`.
        before: the median of the nights before.
        after: the value of the night.
        last: the night before it.
        first: the night of the jump.
    """

    measure: str
    before: float
    after: float
    last: Point
    first: Point

    def __str__(self) -> str:
        """In words: `size of the wheels 192.0 MB → 260.1 MB (+35%)`."""
        measure = MEASURES[self.measure]
        change = f" ({(self.after - self.before) / self.before:+.0%})" if self.before else ""
        return f"{measure.title} {measure.words(self.before)} → {measure.words(self.after)}{change}"


def jumps(points: Sequence[Point], measure: str) -> tuple[Jump, ...]:
    """Return the nights at which a measure left its level, the oldest first.

    The level is the median of the nights since the last jump, at most 14 of them. A night left it that is
    further away than five times their scatter, and than the least share that `MEASURES` calls a change.
    """
    kind = MEASURES[measure]
    measured = [point for point in points if measure in point.values]
    result: list[Jump] = []
    level: list[float] = []
    for number, point in enumerate(measured):
        value = point.values[measure]
        if level and (side := _side(value, level, kind)):
            following = measured[number + 1].values[measure] if number + 1 < len(measured) else None
            if kind.is_noisy and (following is None or _side(following, level, kind) != side):
                continue  # once only, or not yet twice
            before = statistics.median(level)
            result.append(
                Jump(measure=measure, before=before, after=value, last=measured[number - 1], first=point)
            )
            level = []
        level = [*level[1 - _LEVEL :], value]
    return tuple(result)


def find_jump(trends: Trends, text: str, leg: str | None = None) -> Jump:
    """Return a jump by what its page calls it.

    Args:
        trends: of an index.
        text: a name of `MEASURES`, for its newest jump, or `NAME@NIGHT`.
        leg: which; None where the index has one alone in which there is such a jump.

    Raises:
        UsageError: there is none, or there are several.
    """
    measure, _, night = text.partition("@")
    if measure not in MEASURES:
        raise UsageError(f"no night measures {measure!r}", tip=f"write one of: {', '.join(MEASURES)}")
    if leg is not None and leg not in trends.legs:
        raise UsageError(
            f"{trends.index} has measured nothing of {leg!r}", tip=f"write one of: {'; '.join(trends.legs)}"
        )
    by_night: dict[str, Jump] = {}
    for name in trends.legs if leg is None else (leg,):
        for jump in jumps(trends.legs[name], measure):
            if night in ("", jump.first.night):
                by_night[name] = jump
    if not by_night:
        raise UsageError(f"{measure} of {trends.index} does not jump{' in ' + night if night else ''}")
    if len(by_night) > 1:
        raise UsageError(
            f"{measure} jumps in several legs of {trends.index}",
            tip=f"name one by --leg: {'; '.join(by_night)}",
        )
    return next(iter(by_night.values()))


def _side(value: float, level: Sequence[float], measure: Measure) -> int:
    """Return 1 where a value is above a level, -1 where it is below, 0 where it is of it."""
    middle = statistics.median(level)
    scatter = _SCATTER * statistics.median(abs(value - middle) for value in level)
    least = max(measure.share * abs(middle), _MOST_SCATTER * scatter)
    return (value - middle > least) - (middle - value > least)


class Drawing(msgspec.Struct, frozen=True, kw_only=True):
    """A measure of a leg, as the page draws it.

    Attributes:
        measure: its name.
        title: what the page calls it.
        line: the points of a polyline, in a box of 240 by 36.
        marks: where the jumps are, as x and y.
        last: the last value, in words.
        nights: how many nights have one.
        jumps: the newest first.
    """

    measure: str
    title: str
    line: str
    marks: tuple[tuple[float, float], ...]
    last: str
    nights: int
    jumps: tuple[Jump, ...]


def drawings(points: Sequence[Point]) -> Iterator[Drawing]:
    """Draw each measure of which two nights are known."""
    for name, measure in MEASURES.items():
        measured = [point for point in points if name in point.values]
        if len(measured) < 2:  # noqa: PLR2004 - a line has two ends
            continue
        values = [point.values[name] for point in measured]
        low, high = min(values), max(values)
        # A line that hardly moves is to look like one: at least a twentieth of the value is the whole height.
        span = max(high - low, abs(high) / 20) or 1.0
        middle = (low + high) / 2
        places = {
            point.night: (
                round(_WIDTH * number / (len(measured) - 1), 1),
                round(_HEIGHT * (0.5 - (point.values[name] - middle) / span * 0.9), 1),
            )
            for number, point in enumerate(measured)
        }
        line_jumps = jumps(measured, name)
        yield Drawing(
            measure=name,
            title=measure.title,
            line=" ".join(f"{x},{y}" for x, y in places.values()),
            marks=tuple(places[point.first.night] for point in line_jumps),
            last=measure.words(values[-1]),
            nights=len(measured),
            jumps=tuple(reversed(line_jumps)),
        )
