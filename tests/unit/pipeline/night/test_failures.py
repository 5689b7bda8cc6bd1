"""`cairn ci night list NIGHT`: what failed in a night, why, and where its log is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from cairn.matrix.legs import Leg
from cairn.output import github
from cairn.pipeline.night import plan, report
from cairn.pipeline.night.plan import NightRun, Stage, StepNote
from cairn.release.index.generation import now
from cairn.store.memory import MemoryStore
from helpers.night import FROZEN, MakeNight, leg_of
from helpers.program import Cairn
from helpers.release import in_folder

LOG = "https://ci.example/runs/7"


def note(
    run: NightRun, leg: Leg, stage: Stage, reason: str, *, part: str = "", log: str | None = LOG
) -> None:
    moment = now()
    step = StepNote(
        night=run.plan.night,
        leg=leg.id,
        stage=stage,
        attempt=1,
        good=False,
        reason=reason,
        started=moment,
        finished=moment,
        log=log,
        part=part,
    )
    plan.note(run.store, step)


def listed(cairn: Cairn, run: NightRun, folder: Path, night: str = "7") -> list[dict[str, Any]]:
    assert isinstance(run.store, MemoryStore)
    in_folder(run.store, folder / "store")
    rows: list[dict[str, Any]] = cairn.json("ci", "night", "list", night, "--store", folder / "store")
    return rows


def test_each_part_that_failed_is_named_with_its_first_line_and_its_log(
    cairn: Cairn, run: NightRun, tmp_path: Path
) -> None:
    first, second = run.plan.legs
    note(run, first, "build", "\nninja: error: no space left\nand 300 lines more")
    for part in ("default-2", "default-1"):
        note(run, second, "test", f"shard {part} ran out of time", part=part, log=f"{LOG}/{part}")
    under_way = listed(cairn, run, tmp_path)
    assert [(row["step"], row["cause"], row["log"]) for row in under_way] == [
        ("build", "ninja: error: no space left", LOG),
        ("test default-1", "shard default-1 ran out of time", f"{LOG}/default-1"),
        ("test default-2", "shard default-2 ran out of time", f"{LOG}/default-2"),
    ]
    assert {row["verdict"] for row in under_way} == {"failed"}
    shown = cairn("ci", "night", "list", "latest", "--store", tmp_path / "store").out
    assert "ninja: error: no space left" in shown
    assert f"{LOG}/default-2" in shown


def test_a_reported_night_has_the_verdicts_of_its_report(
    cairn: Cairn, night_of: MakeNight, tmp_path: Path
) -> None:
    """One that left nothing has no log of its own; one that is expected to fail says so."""
    expected = leg_of("gfx950-dcgpu", expect_failure=True, targets="gfx950")
    night = night_of(leg_of("gfx94X-dcgpu"), leg_of("gfx110X-all"), expected)
    run = night.run
    note(run, night.leg(0), "test", "no GPU answered")
    note(run, night.leg(2), "build", "known to fail")
    night.built_and_staged()
    report.record(run.store, run.plan, report.of_night(run, {"build": "cancelled"}))
    rows = {row["leg"]: row for row in listed(cairn, run, tmp_path)}
    assert rows[night.leg(0).name]["step"] == "test"
    assert rows[night.leg(0).name]["cause"] == "no GPU answered"
    nothing = rows[night.leg(1).name]
    assert (nothing["verdict"], nothing["step"], nothing["log"]) == ("cancelled", "build", None)
    assert "its build left nothing" in nothing["cause"]
    assert rows[expected.name]["verdict"] == "expected"


def test_a_night_that_was_lost_does_not_look_like_one_without_failures(
    cairn: Cairn, run: NightRun, tmp_path: Path
) -> None:
    old = msgspec.structs.replace(run.plan, night="6", frozen="2026-01-01T00:00:00Z", log=LOG)
    plan.create(run.store, old, FROZEN)
    rows = listed(cairn, run, tmp_path, "6")
    assert [(row["verdict"], row["log"]) for row in rows] == [("no report", LOG)] * 2


def test_a_night_in_which_nothing_failed_says_so(cairn: Cairn, night_of: MakeNight, tmp_path: Path) -> None:
    assert listed(cairn, night_of(leg_of("gfx94X-dcgpu")).run, tmp_path) == []
    assert (
        "nothing failed in the night 7"
        in cairn("ci", "night", "list", "7", "--store", tmp_path / "store").err
    )


def test_a_night_that_was_not_frozen_is_found_and_no_night_is_an_error(
    cairn: Cairn, run: NightRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"SERVER_URL": "https://ci.example", "REPOSITORY": "me/it", "RUN_ID": "8"}.items():
        monkeypatch.setenv(f"GITHUB_{name}", value)
    report.record_not_frozen(run.store, "8", stack=run.stack, channel="release")
    (row,) = listed(cairn, run, tmp_path, "8")
    assert (row["step"], row["verdict"], row["log"]) == ("freeze", "failed", github.run_url())
    words = ("ci", "night", "list", "9", "--store", tmp_path / "store")
    assert "has no night 9" in cairn(*words, code=9).err
    assert "leave the options out" in cairn(*words, "--overdue", code=2).err


def test_a_note_that_cannot_be_read_is_named(cairn: Cairn, run: NightRun, tmp_path: Path) -> None:
    note(run, run.plan.legs[0], "build", "no space left")
    (item,) = run.store.list(f"nights/{run.plan.night}/steps/")
    run.store.write(item.key, b"{")
    (row,) = listed(cairn, run, tmp_path)
    assert (row["verdict"], row["cause"]) == ("unread", f"{item.key} cannot be read")
