from __future__ import annotations

from pathlib import Path

import pytest

from cairn.build.engine import schedule
from cairn.build.engine.schedule import Cost, Durations, Graph, Limits, Record, Step
from helpers import simulated
from helpers.recorded import chains


def step(name: str, *needs: str, cores: int = 1, memory: int = 0, exclusive: tuple[str, ...] = ()) -> Step:
    return Step(name=name, kind="build", needs=needs, cores=cores, memory=memory, exclusive=exclusive)


def started(ready: list[Step], limits: Limits, **running: int) -> list[str]:
    busy = {name: (step(name, memory=2, exclusive=(name,)), cores) for name, cores in running.items()}
    paths = {s.name: float(len(ready) - i) for i, s in enumerate(ready)}
    return [step.name for step, _ in schedule.starts(ready, busy, paths=paths, limits=limits)]


def test_the_longest_remaining_path_comes_first() -> None:
    graph = Graph((step("short"), step("long"), step("after", "long")))
    costs = {"short": Cost(serial=5), "long": Cost(serial=3), "after": Cost(serial=4)}
    paths = schedule.remaining_paths(graph, costs, 1)
    assert paths == {"short": 5, "long": 7, "after": 4}
    chosen = schedule.starts(graph.steps[:2], {}, paths=paths, limits=Limits(cores=1))
    assert [step.name for step, _ in chosen] == ["long"]


def test_a_step_waits_for_a_core_for_memory_and_for_what_it_must_be_alone_with() -> None:
    assert started([step(c) for c in "abcd"], Limits(cores=3), r=1) == ["a", "b"]
    assert started([step("a", memory=5), step("b", memory=3)], Limits(cores=4, memory=6), r=1) == ["b"]
    assert started([step("a", exclusive=("r",)), step("b")], Limits(cores=4), r=1) == ["b"]
    both = [step("a", exclusive=("tree",)), step("b", exclusive=("tree",))]
    assert started(both, Limits(cores=4)) == ["a"]


def test_a_step_that_fits_nowhere_runs_when_nothing_else_does() -> None:
    assert started([step("a", memory=50)], Limits(cores=4, memory=6)) == ["a"]
    assert started([step("a", memory=50)], Limits(cores=4, memory=6), r=1) == []


def test_jobs_are_no_more_than_memory_has_room_for() -> None:
    wide = step("a", cores=8, memory=2)
    (only,) = schedule.starts([wide], {}, paths={"a": 1.0}, limits=Limits(cores=8, memory=7))
    assert only[1] == 3


def test_cores_that_are_left_go_to_the_longest_path_as_far_as_it_can_use_them() -> None:
    paths = {"a": 1.0, "b": 3.0, "c": 2.0}
    found = simulated.shares({"a": 8, "b": 4, "c": 8}, paths=paths, limits=Limits(cores=8))
    assert found == {"a": 1, "b": 4, "c": 3}


@pytest.mark.parametrize(
    ("record", "cost"),
    [
        (Record(kind="k", project="p", seconds=10, cpu=0, cores=4), Cost(serial=10, parallel=0)),
        (Record(kind="k", project="p", seconds=10, cpu=40, cores=4), Cost(serial=0, parallel=40)),
        (Record(kind="k", project="p", seconds=580, cpu=1100, cores=2), Cost(serial=60, parallel=1040)),
        (Record(kind="k", project="p", seconds=10, cpu=4, cores=2), Cost(serial=10, parallel=0)),
    ],
)
def test_what_of_a_step_can_be_divided_follows_from_what_was_measured(record: Record, cost: Cost) -> None:
    found = record.cost()
    assert found.serial == pytest.approx(cost.serial)
    assert found.parallel == pytest.approx(cost.parallel)
    assert found.seconds(record.cores) == pytest.approx(record.seconds)


def test_a_simulated_run_never_has_more_cores_busy_than_there_are() -> None:
    graph, costs = chains(5, 6)
    spans = simulated.run(graph, costs, Limits(cores=4))
    moments = sorted(moment for span in spans.values() for moment in (span.start, span.end))
    for moment in moments:
        assert sum(span.start <= moment < span.end for span in spans.values()) <= 4
    assert simulated.makespan(spans) * 4 >= sum(cost.work for cost in costs.values()) * 0.999


def test_durations_are_of_the_step_else_of_its_project_else_of_its_kind(tmp_path: Path) -> None:
    path = tmp_path / "durations.json"
    schedule.add_durations(path, {"build a": Record(kind="build", project="a", seconds=10)})
    schedule.add_durations(path, {"build b": Record(kind="build", project="b", seconds=30)})
    steps = (
        Step(name="build a", kind="build", project="a"),
        Step(name="build a [3.12]", kind="build", project="a"),
        Step(name="build c", kind="build", project="c"),
        Step(name="cached", kind="build", project="a", seconds=0),
    )
    costs = schedule.read_durations(path).costs(Graph(steps))
    assert [costs[step.name] for step in steps] == [Cost(serial=seconds) for seconds in (10, 10, 20, 0)]


def test_a_damaged_file_of_durations_is_none_and_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "durations.json"
    for text in ("", "{", '{"schema": "cairn.durations/9"}', "\0" * 100):
        path.write_text(text)
        assert schedule.read_durations(path) == Durations()
        schedule.add_durations(path, {"s": Record(kind="build", project="a", seconds=1)})
        assert set(schedule.read_durations(path).steps) == {"s"}
    # Where they cannot be written, nothing stops.
    schedule.add_durations(path / "below a file", {"s": Record(kind="build", project="a", seconds=1)})
