import msgspec
import pytest

from cairn.release.pages import status
from cairn.release.pages.view import IndexView, Night, Outcome
from helpers.html import Element, parse
from helpers.pages import PLATFORM, PYTHON, channel, family, one_set


def night(
    line: str, of: str, outcome: Outcome, *, finished: str = "2026-11-22T03:00:00Z", **more: str
) -> Night:
    return Night(
        line=line, family=of, python=PYTHON, platform=PLATFORM, started="2026-11-22T01:00:00Z",
        finished=finished, outcome=outcome, **more,
    )  # fmt: skip


def with_nights(view: IndexView, *nights: Night) -> IndexView:
    return msgspec.structs.replace(view, nights=nights)


def cells(root: Element) -> list[list[str]]:
    """Line, family, Python, last good set and last run of each row."""
    return [
        [section.one("h2").text, *([cell.text for cell in row.all("td")][i] for i in (0, 1, 3, 4))]
        for section in root.all("section")
        for row in section.one("tbody").all("tr")
    ]


def test_the_last_good_set_and_the_last_failure_of_each_line_family_and_python() -> None:
    view = with_nights(
        channel(),
        night("release/2.10", "gfx94X-dcgpu", "failed", stage="build", reason="a compiler crashed"),
        night("release/2.9", "cpu", "good"),
        night("nightly", "gfx120X-all", "cancelled", stage="checkout"),
    )
    root = parse(status.page((view, family()), folder="release"))
    at = "2026-11-22 03:00 UTC"
    assert cells(root) == [
        ["nightly", "gfx120X-all", PYTHON, "✗ none yet", f"! cancelled in checkout {at}"],
        [
            "release/2.10", "gfx94X-dcgpu", PYTHON, "torch 2.10.0+rocm7.11.02026-11-21 04:05 UTC ",
            f"✗ failed in build {at}a compiler crashed",
        ],
        ["release/2.9", "cpu", PYTHON, "torch 2.9.0+cpu2026-11-20 01:02 UTC ", f"✓ good {at}"],
        [
            "release/2.9", "gfx94X-dcgpu", PYTHON, "torch 2.9.0+rocm7.10.02026-11-20 01:02 UTC ",
            "! no recorded run",
        ],
        [
            "release/2.9", "gfx110X-all", PYTHON, "torch 2.9.0+rocm7.10.02026-11-20 01:02 UTC ! untested",
            "! no recorded run",
        ],
    ]  # fmt: skip
    assert "2 failed in the last run" in root.one("header").text
    assert "1 without a good set" in root.one("header").text
    assert "2 without a recorded run" in root.one("header").text


def test_only_runs_that_were_recorded_are_said_to_be_good() -> None:
    cpu = night("release/2.9", "cpu", "good")
    of_the_others = (
        night("release/2.9", "gfx94X-dcgpu", "good"),
        night("release/2.10", "gfx94X-dcgpu", "good"),
    )
    for nights, good in (((), False), ((cpu,), False), ((cpu, *of_the_others), True)):
        text = parse(status.page((with_nights(channel(), *nights),), folder="release")).one("header").text
        assert ("nothing failed in the last run" in text) is good
        assert ("without a recorded run" in text) is not good
    empty = msgspec.structs.replace(channel(), sets=())
    assert "good" not in parse(status.page((empty,), folder="release")).one("header").text


def test_neither_a_yanked_set_nor_an_older_run_counts() -> None:
    older = one_set(7, "2.9.0+rocm7.9.0", ("gfx942",), added="2026-10-01T00:00:00Z")
    newer = one_set(8, "2.9.1+rocm7.9.0", ("gfx942",), added="2026-11-01T00:00:00Z", yanked="broken")
    view = IndexView(name="release", generation=2, when="2026-11-02T00:00:00Z", sets=(older, newer))
    (row,) = status.rows((view,))
    assert row.good == older
    assert status.rows((msgspec.structs.replace(view, sets=(newer,)),)) == ()
    runs = (
        night("nightly", "gfx942", "good", finished="2026-11-21T03:00:00Z"),
        night("nightly", "gfx942", "failed", finished="2026-11-22T03:00:00Z"),
    )
    for order in (runs, runs[::-1]):
        (row,) = status.rows((IndexView(name="nightly", generation=0, when="", nights=order),))
        assert row.night == runs[1]


def test_lines_by_version_with_the_named_ones_first() -> None:
    lines = ("release/2.9", "release/2.10", "nightly", "release/2.8")
    sets = tuple(one_set(i, f"2.{i}.0", ("gfx942",), line=line) for i, line in enumerate(lines))
    view = IndexView(name="release", generation=1, when="", sets=sets)
    in_order = ["nightly", "release/2.10", "release/2.9", "release/2.8"]
    assert [row.line for row in status.rows((view,))] == in_order


@pytest.mark.parametrize("log", ["javascript:alert(1)", "data:text/html,x", "https://ci.example/1"])
def test_a_log_is_linked_only_where_it_is_on_the_web(log: str) -> None:
    view = with_nights(channel(), night("nightly", "gfx942", "failed", log=log))
    links = [a for a in parse(status.page((view,), folder="release")).all("a") if a.text == "log"]
    assert [a.attributes["href"] for a in links] == ([log] if log.startswith("https:") else [])


def test_nothing_published_yet() -> None:
    empty = IndexView(name="release", generation=0, when="")
    assert "No set is published here yet" in parse(status.page((empty,), folder="release")).text
