"""The history of nights: which are kept, which are missing, who is late; and its page for a large matrix."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from cairn.release.index import generation
from cairn.release.pages import night_history, nights
from cairn.release.pages.night_history import History, LegEnd, LegName, PastNight
from cairn.release.pages.view import IndexView, Night, troubles
from helpers.html import parse

BEGAN = datetime(2026, 11, 1, 1, 17, tzinfo=UTC)
EVIL = '"><script>alert(1)</script>\u202e\n'
ONE = {"leg": LegName(line="nightly", family="gfx942", python="3.12", platform="linux_x86_64")}


def past(
    days: float, *, line: str = "nightly", night: str = "", minutes: int = 300, **ends: LegEnd
) -> PastNight:
    began = (BEGAN + timedelta(days=days)).isoformat()
    return PastNight(
        night=night or f"{line}-{days}", stack="sample", line=line, started=began, finished=began,
        manifest_sha256="a" * 64, log=EVIL, legs=ends or {"leg": LegEnd(outcome="good", minutes=minutes)},
    )  # fmt: skip


def history_of(*all_nights: PastNight) -> History:
    history = History(channel="nightly")
    for one in all_nights:
        history = history.plus(one, ONE)
    return history


def test_of_each_line_the_last_thirty_nights_are_kept_and_one_again_takes_its_place() -> None:
    history = history_of(*(past(day, line=line) for day in range(40) for line in ("nightly", "2.9")))
    assert len(history.nights) == 60
    assert history.nights[-1].night == "2.9-10"
    again = history.plus(past(20, night="nightly-20", minutes=7), ONE)
    assert len(again.nights) == 60
    (replaced,) = (one for one in again.nights if one.night == "nightly-20")
    assert replaced.legs["leg"].minutes == 7
    assert history_of(past(0), past(1, other=LegEnd(outcome="failed"))).legs == ONE


@pytest.mark.parametrize(
    ("days", "now", "gaps"),
    [
        ((0, 1, 2), 2.5, []),
        ((0, 1, 3), 3.5, [2]),
        ((0, 1.1, 2.02, 3), 4.2, []),  # the next one may be under way
        ((0, 1, 2), 4.5, [3, 4]),
        ((0, 0.1, 0.2, 0.3, 1), 1.5, []),  # by hand, on one day
        ((0, 7, 14, 28), 29, [21]),  # a line of which there is one a week
        ((0,), 400, [*range(371, 401)]),
    ],
)
def test_a_night_that_did_not_happen_is_a_gap(days: tuple[float, ...], now: float, gaps: list[int]) -> None:
    shown = night_history.columns([past(day) for day in days], BEGAN + timedelta(days=now))
    if now < 100:
        assert [(one.when - BEGAN).days for one in shown if one.night is None] == gaps
    assert len(shown) <= night_history.KEPT
    by_hand = [msgspec.structs.replace(past(day), refs=("torch=my-branch",)) for day in days]
    shown = night_history.columns(by_hand, BEGAN + timedelta(days=now))
    assert all(one.night is not None for one in shown)


@pytest.mark.parametrize(
    ("minutes", "usual", "late"),
    [
        (300, 300, False),
        (450, 300, False),
        (451, 300, True),
        (40, 15, False),
        (46, 15, True),
        (999, None, False),
    ],
)
def test_a_leg_is_late_by_its_own_history(minutes: int, usual: int | None, *, late: bool) -> None:
    assert night_history.is_late(minutes, usual) is late


def test_what_is_usual_is_the_median_of_good_nights() -> None:
    few = history_of(past(0), past(1))
    assert few.usual_minutes("leg") is None
    assert history_of(past(0), past(1, minutes=100), past(2, minutes=900)).usual_minutes("leg") == 300


def test_legs_that_failed_for_one_reason_are_told_once_and_what_is_new_comes_first() -> None:
    def one(family: str, python: str, since: str, reason: str = "no space left") -> Night:
        return Night(
            line="nightly", family=family, python=python, platform="linux_x86_64", started="2026-11-02",
            finished="2026-11-02", outcome="failed", stage="build", reason=reason, since=since,
        )  # fmt: skip

    old, new = "2026-11-01", "2026-11-02"
    told = troubles(
        (one("a", "3.11", old), one("b", "3.11", new), one("b", "3.12", new), one("a", "3.12", old))
    )
    assert [(trouble.who, trouble.age) for trouble in told] == [
        ("b 3.11, 3.12", "new"),
        ("a 3.11, 3.12", "not good since 2026-11-01"),
    ]


def test_a_matrix_of_four_hundred_legs_and_thirty_nights_fits_a_page() -> None:
    lines, families = [f"release/2.{n}{EVIL}" for n in range(5)], [f"gfx{n}" for n in range(16)]
    pythons = [f"3.{n}" for n in range(10, 15)]
    history = History(channel="nightly")
    for line in lines:
        names = {
            f"{line}-{family}-py{python}": LegName(
                line=line, family=family, python=python, platform="linux_x86_64"
            )
            for family in families
            for python in pythons
        }
        ends = {
            name: LegEnd(
                outcome="failed" if i % 9 == 0 else "good", minutes=300, machine_minutes=400, reason=EVIL
            )
            for i, name in enumerate(names)
        }
        for day in range(30):
            history = history.plus(past(day, line=line, **ends), names)
    views = tuple(
        IndexView(
            name=f"nightly/{family}",
            nights=tuple(
                Night(
                    line=line, family=family, python=python, platform="linux_x86_64", outcome="failed",
                    started=(BEGAN + timedelta(days=29)).isoformat(), finished=BEGAN.isoformat(),
                    stage="build", reason=EVIL, log=EVIL,
                )
                for line in lines for python in pythons
            ),
        )
        for family in families
    )  # fmt: skip
    page = nights.page(history, views, BEGAN + timedelta(days=29))
    root = parse(page)
    assert sum(1 for row in root.all("tbody") if row.attributes.get("data-words")) == 400
    assert len(list(root.all("script"))) == 1
    assert b"\xe2\x80\xae" not in page
    assert len(page) < 4_000_000
    assert len(generation.encode(history)) < 2_500_000
