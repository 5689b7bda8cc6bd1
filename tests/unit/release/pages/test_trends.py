"""What nights measure over a quarter, and the nights at which a line jumps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

import msgspec
import pytest

from cairn import datafile
from cairn.release.pages import status
from cairn.release.pages.trends import KEPT, MEASURES, Point, Trends, drawings, jumps, leg_of
from helpers.html import parse
from helpers.pages import PLATFORM, PYTHON, channel

QUARTER = 90
LEG = leg_of("release/2.9", "cpu", PYTHON, PLATFORM)


def quarter(*steps: tuple[int, str, float], seed: int = 1) -> tuple[Point, ...]:
    """Ninety nights; from some on a measure has another level: the number, which, and by how much."""
    random = Random(seed)  # noqa: S311 - the same nights each time
    usual = dict(zip(MEASURES, (190e6, 740e6, 41_000, 5_300, 170, 2.4), strict=True))
    points = []
    for number in range(QUARTER):
        values = {}
        for name, value in usual.items():
            factor = 1.0
            for night, what, by in steps:
                factor *= by if what == name and number >= night else 1.0
            # Code grows a little each night; machines are more or less busy, and now and then much.
            drift = 1 + 0.0002 * number
            noise = random.gauss(1, 0.06) if MEASURES[name].is_noisy else random.gauss(1, 0.0005)
            outlier = 1.9 if MEASURES[name].is_noisy and number in (17, 44, 71) else 1.0
            values[name] = value * factor * drift * noise * outlier
        begun = datetime(2026, 9, 1, 1, tzinfo=UTC) + timedelta(days=number)
        moment = begun.strftime("%Y-%m-%dT%H:%M:%SZ")
        points.append(Point(night=f"n{number}", started=moment, set_id=f"{number:064x}", values=values))
    return tuple(points)


@pytest.mark.parametrize("seed", range(20))
def test_a_quiet_quarter_jumps_nowhere(seed: int) -> None:
    points = quarter(seed=seed)
    assert {name: jumps(points, name) for name in MEASURES if jumps(points, name)} == {}


@pytest.mark.parametrize("night", [1, 14, 50, 88])
@pytest.mark.parametrize(
    ("measure", "by"),
    [
        ("wheel_size", 1.06), ("installed_size", 1.05), ("kernels", 0.97), ("passed_tests", 0.9),
        ("build_minutes", 2.0), ("import_seconds", 1.9),
    ],
)  # fmt: skip
def test_a_jump_is_found_in_its_night_and_nowhere_else(measure: str, by: float, night: int) -> None:
    points = quarter((night, measure, by))
    (found,) = jumps(points, measure)
    assert (found.first.night, found.last.night) == (f"n{night}", f"n{night - 1}")
    assert (found.after > found.before) is (by > 1)
    assert [name for name in MEASURES if jumps(points, name)] == [measure]


def test_up_and_down_again_are_two_jumps() -> None:
    found = jumps(quarter((30, "wheel_size", 1.3), (34, "wheel_size", 1 / 1.3)), "wheel_size")
    assert [one.first.night for one in found] == ["n30", "n34"]
    assert "size of the wheels" in str(found[0])
    assert "+30%" in str(found[0]) or "+31%" in str(found[0])


def test_the_last_nights_are_kept_and_a_night_that_is_reported_again_takes_its_place() -> None:
    trends = Trends(index="release")
    points = quarter()
    for round_number in range(2):
        for point in points:
            later = msgspec.structs.replace(point, night=f"{round_number}-{point.night}")
            trends = trends.plus(LEG, later).plus(LEG, later)
    assert len(trends.legs[LEG]) == KEPT
    assert datafile.loads(datafile.dumps(trends), Trends, name="trends") == trends


def test_the_status_page_draws_them_with_the_night_of_a_jump_and_how_to_go_on() -> None:
    trends = Trends(index="release", legs={LEG: quarter((60, "wheel_size", 1.4))})
    view = msgspec.structs.replace(channel(), trends=trends)
    root = parse(status.page((view,), folder="release"))
    (details,) = [one for one in root.all("details") if one.attributes.get("class") == "trend"]
    assert len(list(details.all("svg"))) == len(MEASURES)
    assert len(list(details.all("path"))) == 1
    assert f'cairn bisect --index release --jump wheel_size@n60 --leg "{LEG}"' in details.text
    assert not any(parse(status.page((channel(),), folder="release")).all("polyline"))


def test_one_night_is_no_line() -> None:
    assert list(drawings(quarter()[:1])) == []
    assert {len(one.line.split()) for one in drawings(quarter()[:2])} == {2}
