import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.pipeline.trail import StageSpan, lay_out


def stage(name: str, start: float, end: float) -> StageSpan:
    return StageSpan(name=name, start=start, end=end)


def test_bars_are_drawn_to_scale_from_the_first_start() -> None:
    chart = lay_out([stage("b", 120, 150), stage("a", 100, 120), stage("c", 130, 200)])
    assert [bar.stage.name for bar in chart.bars] == ["a", "b", "c"]
    assert [(bar.left, bar.width) for bar in chart.bars] == [(0, 20), (20, 30), (30, 70)]
    assert chart.seconds == 100


def test_stages_side_by_side_have_lanes_of_their_own_over_the_same_time() -> None:
    one, two = lay_out([stage("one", 0, 10), stage("two", 0, 10)]).bars
    assert (one.left, one.width) == (two.left, two.width) == (0, 100)
    assert one.lane != two.lane


@pytest.mark.parametrize(
    ("whole", "marks"),
    [
        (10, [0, 2, 4, 6, 8, 10]),
        (299, [0, 60, 120, 180, 240]),
        (0.5, [0, 0.1, 0.2, 0.3, 0.4, 0.5]),
        (90000, [0, 28800, 57600, 86400]),
    ],
)
def test_the_scale_has_round_marks(whole: float, marks: list[float]) -> None:
    ticks = lay_out([stage("a", 0, whole)]).ticks
    assert [tick.seconds for tick in ticks] == pytest.approx(marks)
    assert [tick.left for tick in ticks] == pytest.approx([m / whole * 100 for m in marks], abs=0.001)


def test_nothing_done_is_an_empty_chart() -> None:
    assert lay_out([]).bars == ()


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), min_size=1, max_size=20))
def test_no_bar_leaves_the_page(spans: list[tuple[float, float]]) -> None:
    chart = lay_out(stage(str(i), start, start + length) for i, (start, length) in enumerate(spans))
    for bar in chart.bars:
        assert 0 <= bar.left <= bar.left + bar.width <= 100.01
        assert bar.width > 0
    assert len({bar.lane for bar in chart.bars}) == len(spans) == chart.lanes
    assert all(0 <= tick.left <= 100.01 for tick in chart.ticks)
    assert len(chart.ticks) <= 12
