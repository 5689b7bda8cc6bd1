"""Wheels of build jobs come into staging only as the set that the night expects."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

import msgspec
import pytest

from cairn import datafile
from cairn.pipeline.night import plan, stage, standing
from cairn.pipeline.night.plan import NightRun, StepNote
from cairn.release.index.generation import now
from cairn.wheels import wheelset
from helpers.night import Build
from helpers.release import contents, make_wheel

A, B = 0, 1


def artifacts(tmp_path: Path) -> Path:
    return tmp_path / "artifacts"


def states(run: NightRun) -> list[str]:
    return [standing.look(run, leg).state for leg in run.plan.legs]


def note_of(run: NightRun, leg: int) -> StepNote:
    return StepNote(
        night="7", leg=run.plan.legs[leg].id, stage="build", attempt=1, good=False, reason="no disk",
        started=now(), finished=now(),
    )  # fmt: skip


def test_what_was_built_is_staged_and_the_rest_is_named(run: NightRun, build: Build, tmp_path: Path) -> None:
    build(run.plan.legs[A])
    done = stage.stage_night(run, artifacts(tmp_path))
    assert [one.reason for one in done] == ["", "no wheels were built"]
    assert states(run) == ["untested", "missing"]
    again = stage.stage_night(run, artifacts(tmp_path))
    assert [one.kept for one in again] == [True, False]
    assert again[A].set_id == done[A].set_id


def test_a_night_without_artifacts_is_staged_too(run: NightRun, tmp_path: Path) -> None:
    assert {one.set_id for one in stage.stage_night(run, tmp_path / "nowhere")} == {None}


def test_a_dry_run_writes_nothing(run: NightRun, build: Build, tmp_path: Path) -> None:
    build(run.plan.legs[A])
    before = contents(run.store)
    done = stage.stage_night(dataclasses.replace(run, dry_run=True), artifacts(tmp_path))
    assert done[A].set_id is not None
    assert contents(run.store) == before


def test_the_last_attempt_counts(run: NightRun, build: Build, tmp_path: Path) -> None:
    build(run.plan.legs[A], attempt=9, content="old")
    last = build(run.plan.legs[A], attempt=10, content="new")
    stage.stage_night(run, artifacts(tmp_path))
    found = plan.set_of(run.index(run.plan.legs[A], "staging"), run.plan, run.plan.legs[A])
    assert found is not None
    files = run.index(run.plan.legs[A], "staging").load().project("torch").files
    assert [file.sha256 for file in files] == [last.wheels[0].sha256]


def test_an_attempt_without_wheels_does_not_hide_the_one_before(
    run: NightRun, build: Build, tmp_path: Path
) -> None:
    build(run.plan.legs[A], attempt=1)
    (artifacts(tmp_path) / stage.artifact_name(run.plan.legs[A], 2)).mkdir()
    assert stage.stage_night(run, artifacts(tmp_path))[A].set_id is not None


def test_an_artifact_of_an_attempt_to_come_counts_for_nothing(
    run: NightRun, build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_RUN_ATTEMPT", "2")
    honest = build(run.plan.legs[A], attempt=2)
    build(run.plan.legs[A], attempt=3, content="a lie")
    stage.stage_night(run, artifacts(tmp_path))
    files = run.index(run.plan.legs[A], "staging").load().project("torch").files
    assert [file.sha256 for file in files] == [honest.wheels[0].sha256]


def test_the_only_artifact_has_no_folder_of_its_own(run: NightRun, build: Build, tmp_path: Path) -> None:
    """As actions/download-artifact leaves it: in a night of one leg, and in a re-run for what is missing."""
    build(run.plan.legs[B])
    one = artifacts(tmp_path) / stage.artifact_name(run.plan.legs[B], 1)
    datafile.write(one / stage.NOTE_FILE, note_of(run, B))
    done = stage.stage_night(run, one)
    assert [one.set_id is not None for one in done] == [False, True]
    assert plan.notes(run.store, run.plan)[run.plan.legs[B].id, "build"].reason == "no disk"
    (one / stage.NOTE_FILE).write_text("{")
    assert stage._artifacts(one) == {}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"manifest_sha256": "0" * 64}, "manifest 000000000000"),
        ({"python": "3.12"}, "Python 3.12, and not 3.11"),
        ({"platform": "win_amd64"}, "platform win_amd64"),
        ({"line": "release/2.9"}, "line release/2.9"),
        ({"stack": "mine"}, "stack mine"),
        ({"targets": ("gfx1100",)}, "targets gfx1100"),
    ],
)
def test_a_set_that_nobody_expects_is_refused(
    run: NightRun, build: Build, tmp_path: Path, changes: dict[str, object], said: str
) -> None:
    build(run.plan.legs[A], **changes)
    done = stage.stage_night(run, artifacts(tmp_path))
    assert said in done[A].reason
    assert states(run) == ["missing", "missing"]


def test_the_wheels_of_a_different_family_are_refused(run: NightRun, build: Build, tmp_path: Path) -> None:
    build(run.plan.legs[B], name=stage.artifact_name(run.plan.legs[A], 1))
    assert "it is of targets gfx1100, gfx1101" in stage.stage_night(run, artifacts(tmp_path))[A].reason


def test_a_wheel_that_was_exchanged_between_the_jobs_is_refused(
    run: NightRun, build: Build, tmp_path: Path
) -> None:
    build(run.plan.legs[A])
    folder = artifacts(tmp_path) / stage.artifact_name(run.plan.legs[A], 1)
    make_wheel(folder, "torch", "2.9.0", content="from somewhere else")
    assert "not those of the set" in stage.stage_night(run, artifacts(tmp_path))[A].reason
    assert states(run)[A] == "missing"


def test_a_file_outside_of_the_artifact_is_refused(run: NightRun, build: Build, tmp_path: Path) -> None:
    build(run.plan.legs[A])
    folder = artifacts(tmp_path) / stage.artifact_name(run.plan.legs[A], 1)
    text = (folder / "set.json").read_text().replace("torch-2.9.0-py3", "../torch-2.9.0-py3")
    (folder / "set.json").write_text(text)
    assert "has no file '../torch-2.9.0-py3" in stage.stage_night(run, artifacts(tmp_path))[A].reason


def test_a_set_that_was_sealed_elsewhere_is_refused(run: NightRun, build: Build, tmp_path: Path) -> None:
    made = build(run.plan.legs[A])
    folder = artifacts(tmp_path) / stage.artifact_name(run.plan.legs[A], 1)
    wheelset.write(folder / "set.json", wheelset.seal(made, ()))
    assert "sealed already" in stage.stage_night(run, artifacts(tmp_path))[A].reason


def test_a_build_says_itself_why_it_failed_and_nothing_of_others(run: NightRun, tmp_path: Path) -> None:
    folder = artifacts(tmp_path) / stage.artifact_name(run.plan.legs[A], 1)
    folder.mkdir(parents=True)
    said = note_of(run, A)
    datafile.write(folder / stage.NOTE_FILE, said)
    other = artifacts(tmp_path) / stage.artifact_name(run.plan.legs[B], 1)
    other.mkdir()
    datafile.write(other / stage.NOTE_FILE, said)
    stage.stage_night(run, artifacts(tmp_path))
    assert {key: note.reason for key, note in plan.notes(run.store, run.plan).items()} == {
        (run.plan.legs[A].id, "build"): "no disk"
    }


@pytest.mark.parametrize(
    "lie",
    [
        b"",
        b"{",
        b"[" * 100_000,
        b"\xff\xfe",
        b'{"schema": "cairn.set/1"}',
        b'{"schema": "cairn.set/1", "wheels": 7}',
    ],
)
@pytest.mark.parametrize("file", ["set.json", stage.NOTE_FILE, "torch"])
def test_whatever_one_artifact_has_the_others_are_staged(
    run: NightRun, build: Build, tmp_path: Path, file: str, lie: bytes
) -> None:
    build(run.plan.legs[A])
    build(run.plan.legs[B])
    folder = artifacts(tmp_path) / stage.artifact_name(run.plan.legs[A], 1)
    target = next(folder.glob("torch*")) if file == "torch" else folder / file
    target.write_bytes(lie)
    done = stage.stage_night(run, artifacts(tmp_path))
    assert done[B].set_id is not None
    assert (done[A].set_id is None) == (file != stage.NOTE_FILE)


def test_a_wheel_whose_bytes_and_set_lie_together_is_refused_alone(
    run: NightRun, build: Build, tmp_path: Path
) -> None:
    made = build(run.plan.legs[A])
    build(run.plan.legs[B])
    folder = artifacts(tmp_path) / stage.artifact_name(run.plan.legs[A], 1)
    whole = (folder / made.wheels[0].file_name).read_bytes()
    for lie in (b"", b"PK\x05\x06" + bytes(18), whole[:-30], whole[:100] + bytes(200) + whole[300:]):
        (folder / made.wheels[0].file_name).write_bytes(lie)
        wheel = msgspec.structs.replace(made.wheels[0], sha256=hashlib.sha256(lie).hexdigest(), size=len(lie))
        wheelset.write(folder / "set.json", msgspec.structs.replace(made, wheels=(wheel,)))
        done = stage.stage_night(run, artifacts(tmp_path))
        assert done[A].set_id is None
        assert done[B].set_id is not None
