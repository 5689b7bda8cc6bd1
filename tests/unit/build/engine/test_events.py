from __future__ import annotations

import json
import os
from pathlib import Path

from cairn.build.engine import events


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
    full = events.Log(path)
    full._path = Path("/dev/full")
    started(full)  # what is noted stops no build


def test_a_name_that_is_not_utf_8_stops_no_run(tmp_path: Path) -> None:
    log = events.Log(tmp_path / "events.jsonl")
    name = os.fsdecode(b"/caf\xe9/torch.log")
    log.write(events.StepStarted(step="build torch", kind="build", digest="d", jobs=1, log=name))
    (event,) = events.read(tmp_path / "events.jsonl")
    assert isinstance(event, events.StepStarted)
    assert event.log == "/caf?/torch.log"
