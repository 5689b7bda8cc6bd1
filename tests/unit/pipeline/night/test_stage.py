"""Wheels of build jobs come into staging only as the set that the night expects."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

import msgspec
import pytest

from cairn import datafile
from cairn.pipeline.night import plan, stage
from cairn.pipeline.night.plan import StepNote
from cairn.release.index.generation import now
from cairn.store.memory import MemoryStore
from cairn.wheels import wheelset
from helpers.night import FROZEN, MakeNight, Night, leg_of
from helpers.release import contents, make_wheel

A, B = 0, 1


def states(night: Night) -> list[str]:
    return [night.standing(number).state for number in (A, B)]


def torch_of(night: Night) -> list[str]:
    """The sha256 of each wheel of torch that the first leg has in staging."""
    files = night.run.index(night.leg(), "staging").load().project("torch").files
    return [file.sha256 for file in files]


def note_of(night: Night, leg: int) -> StepNote:
    return StepNote(
        night="7", leg=night.leg(leg).id, stage="build", attempt=1, good=False, reason="no disk",
        started=now(), finished=now(),
    )  # fmt: skip


def test_what_was_built_is_staged_and_the_rest_is_named(night: Night) -> None:
    assert {one.set_id for one in night.stage()} == {None}, "there are no artifacts at all"
    night.build(A)
    done = night.stage()
    assert [one.reason for one in done] == ["", "no wheels were built"]
    assert states(night) == ["untested", "missing"]
    again = night.stage()
    assert [one.kept for one in again] == [True, False]
    assert again[A].set_id == done[A].set_id


def test_a_dry_run_writes_nothing(night: Night) -> None:
    night.build(A)
    before = contents(night.run.store)
    done = stage.stage_night(dataclasses.replace(night.run, dry_run=True), night.artifacts)
    assert done[A].set_id is not None
    assert contents(night.run.store) == before


def test_the_last_attempt_with_wheels_counts(night: Night) -> None:
    night.build(A, folder=night.artifact(A, attempt=9), content="old")
    last = night.build(A, folder=night.artifact(A, attempt=10), content="new")
    night.artifact(A, attempt=11).mkdir()
    night.stage()
    assert plan.set_of(night.run.index(night.leg(), "staging"), night.run.plan, night.leg()) is not None
    assert torch_of(night) == [last.wheels[0].sha256]


def test_an_artifact_of_an_attempt_to_come_counts_for_nothing(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_RUN_ATTEMPT", "2")
    honest = night.build(A, folder=night.artifact(A, attempt=2))
    night.build(A, folder=night.artifact(A, attempt=3), content="a lie")
    night.stage()
    assert torch_of(night) == [honest.wheels[0].sha256]


def test_the_only_artifact_has_no_folder_of_its_own(night: Night) -> None:
    """As actions/download-artifact leaves it: in a night of one leg, and in a re-run for what is missing."""
    night.build(B)
    one = night.artifact(B)
    datafile.write(one / stage.NOTE_FILE, note_of(night, B))
    done = stage.stage_night(night.run, one)
    assert [one.set_id is not None for one in done] == [False, True]
    assert (
        plan.by_stage(plan.notes_of_parts(night.run.store, night.run.plan).values())[
            night.leg(B).id, "build"
        ].reason
        == "no disk"
    )
    (one / stage.NOTE_FILE).write_text("{")
    assert stage._artifacts(one) == {}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"manifest_sha256": "0" * 64}, "manifest 000000000000"),
        ({"python": "3.12"}, "Python 3.12, and not 3.99"),
        ({"platform": "win_amd64"}, "platform win_amd64"),
        ({"line": "release/2.9"}, "line release/2.9"),
        ({"stack": "mine"}, "stack mine"),
        ({"targets": ("gfx1100",)}, "targets gfx1100"),
    ],
)
def test_a_set_that_nobody_expects_is_refused(night: Night, changes: dict[str, object], said: str) -> None:
    night.build(A, **changes)
    assert said in night.stage()[A].reason
    assert states(night) == ["missing", "missing"]


def test_the_wheels_of_a_different_family_are_refused(night: Night) -> None:
    night.build(B, folder=night.artifact(A))
    assert "it is of targets gfx1100, gfx1101" in night.stage()[A].reason


def test_a_wheel_that_was_exchanged_between_the_jobs_is_refused(night: Night) -> None:
    night.build(A)
    make_wheel(night.artifact(A), "torch", "2.9.0", content="from somewhere else")
    assert "not those of the set" in night.stage()[A].reason
    assert states(night)[A] == "missing"


def test_a_file_outside_of_the_artifact_is_refused(night: Night) -> None:
    night.build(A)
    made = night.artifact(A) / "set.json"
    made.write_text(made.read_text().replace("torch-2.9.0-py3", "../torch-2.9.0-py3"))
    assert "has no file '../torch-2.9.0-py3" in night.stage()[A].reason


def test_a_set_that_was_sealed_elsewhere_is_refused(night: Night) -> None:
    wheelset.write(night.artifact(A) / "set.json", wheelset.seal(night.build(A), ()))
    assert "sealed already" in night.stage()[A].reason


def test_a_build_says_itself_why_it_failed_and_nothing_of_others(night: Night) -> None:
    for leg in (A, B):
        night.artifact(leg).mkdir(parents=True)
        datafile.write(night.artifact(leg) / stage.NOTE_FILE, note_of(night, A))
    night.stage()
    notes = plan.by_stage(plan.notes_of_parts(night.run.store, night.run.plan).values())
    assert {key: note.reason for key, note in notes.items()} == {(night.leg(A).id, "build"): "no disk"}


def test_one_build_makes_the_sets_of_several_legs(night_of: MakeNight) -> None:
    families = ("gfx94X-dcgpu", "gfx110X-all", "gfx1151")
    night = night_of(*(leg_of(name, build="main-py3.99" if name != "gfx1151" else "") for name in families))
    assert [build.legs for build in night.run.plan.builds] == [
        tuple(leg.id for leg in night.run.plan.legs[:2]),
        (night.leg(2).id,),
    ]
    for number in (A, B):
        assert night.artifact(number).name == "wheels-main-py3.99-1"
        night.build(number)
    done = night.stage()
    assert [one.reason for one in done] == ["", "", "no wheels were built"]
    names = {night.run.index(night.leg(number), "staging").name for number in (A, B)}
    assert names == {"staging/gfx94X-dcgpu", "staging/gfx110X-all"}


def test_the_build_of_several_legs_fails_for_all_of_them(night_of: MakeNight) -> None:
    night = night_of(*(leg_of(name, build="main-py3.99") for name in ("gfx94X-dcgpu", "gfx110X-all")))
    night.artifact(A).mkdir(parents=True)
    note = msgspec.structs.replace(note_of(night, A), leg="main-py3.99", reason="hipcc fails for gfx1101")
    datafile.write(night.artifact(A) / stage.NOTE_FILE, note)
    night.stage()
    notes = plan.by_stage(plan.notes_of_parts(night.run.store, night.run.plan).values())
    assert [notes[night.leg(number).id, "build"].reason for number in (A, B)] == [
        "hipcc fails for gfx1101 (the same build makes the wheels of gfx110X-all)",
        "hipcc fails for gfx1101 (the same build makes the wheels of gfx94X-dcgpu)",
    ]


LIES = (
    *(b"", b"{", b"[" * 100_000, b"\xff\xfe"),
    *(b'{"schema": "cairn.set/1"}', b'{"schema": "cairn.set/1", "wheels": 7}'),
)


@pytest.mark.parametrize("file", ["set.json", stage.NOTE_FILE, "torch"])
def test_whatever_one_artifact_has_the_others_are_staged(night: Night, file: str) -> None:
    night.build(A)
    night.build(B)
    folder = night.artifact(A)
    target = next(folder.glob("torch*")) if file == "torch" else folder / file
    for lie in LIES:
        target.write_bytes(lie)
        store = MemoryStore()
        plan.create(store, night.run.plan, FROZEN)
        done = stage.stage_night(dataclasses.replace(night.run, store=store), night.artifacts)
        assert done[B].set_id is not None, lie
        assert (done[A].set_id is None) == (file != stage.NOTE_FILE), lie


def test_a_wheel_whose_bytes_and_set_lie_together_is_refused_alone(night: Night) -> None:
    made = night.build(A)
    night.build(B)
    wheel: Path = night.artifact(A) / made.wheels[0].file_name
    whole = wheel.read_bytes()
    for lie in (b"", b"PK\x05\x06" + bytes(18), whole[:-30], whole[:100] + bytes(200) + whole[300:]):
        wheel.write_bytes(lie)
        told = msgspec.structs.replace(made.wheels[0], sha256=hashlib.sha256(lie).hexdigest(), size=len(lie))
        wheelset.write(night.artifact(A) / "set.json", msgspec.structs.replace(made, wheels=(told,)))
        done = night.stage()
        assert done[A].set_id is None
        assert done[B].set_id is not None
