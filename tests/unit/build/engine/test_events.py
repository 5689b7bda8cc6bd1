from __future__ import annotations

import json
from pathlib import Path

from cairn.build.engine import events, schedule
from cairn.build.engine.schedule import Cost, Durations, Record
from cairn.build.engine.step import Graph, Step


def started(log: events.Log) -> None:
    log.write(events.RunStarted(steps=1, cores=2))


def test_each_event_is_a_line_of_json_and_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "out" / "events.jsonl"
    log = events.Log(path)
    started(log)
    log.write(events.StepEnded(step="build torch", ending="failed", why="at https://user:secret@host/x"))
    first, second = map(json.loads, path.read_text().splitlines())
    assert first["event"] == "run-started"
    assert first["run"] == second["run"]
    assert second["why"] == "at https://***@host/x"
    (_, event) = events.last_run(path)
    assert isinstance(event, events.StepEnded)
    assert event.ending == "failed"


def test_a_line_that_a_kill_cut_off_hides_no_other(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    started(events.Log(path))
    with path.open("a") as file:
        file.write('{"event":"step-ended","step":"x","end')
    started(events.Log(path))
    assert [type(event) for event in events.read(path)] == [events.RunStarted, events.RunStarted]
    assert len(events.last_run(path)) == 1


def test_a_full_disk_does_not_stop_what_is_noted() -> None:
    log = events.Log(None)
    log._path = Path("/dev/full")
    started(log)


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
    assert [costs[step.name] for step in steps] == [
        Cost(serial=10),
        Cost(serial=10),
        Cost(serial=20),
        Cost(serial=0),
    ]


def test_a_damaged_file_of_durations_is_none_and_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "durations.json"
    for text in ("", "{", '{"schema": "cairn.durations/9"}', "\0" * 100):
        path.write_text(text)
        assert schedule.read_durations(path) == Durations()
        schedule.add_durations(path, {"s": Record(kind="build", project="a", seconds=1)})
        assert set(schedule.read_durations(path).steps) == {"s"}


def test_durations_that_cannot_be_written_stop_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    schedule.add_durations(
        tmp_path / "file" / "durations.json", {"s": Record(kind="build", project="a", seconds=1)}
    )
