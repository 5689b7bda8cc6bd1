"""What a job with credentials brings to one without, and what it takes from it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from cairn import datafile
from cairn.errors import StoreError, UsageError
from cairn.pipeline.night import handover, hanging, plan, report, smoke
from cairn.pipeline.night.plan import NightRun
from cairn.release import records
from cairn.release.index import keys
from cairn.release.index.generation import now
from cairn.release.index.snapshot import read_set
from cairn.release.provenance import dsse
from cairn.stack import Sdk
from cairn.store.folder import LocalStore
from cairn.store.memory import MemoryStore
from cairn.testing import record
from helpers.gate import record_of
from helpers.night import MakeNight, Night, leg_of, staged
from helpers.provenance import signer
from helpers.release import Breaking, Broken
from helpers.trust import BUILDER, TESTER, trust_of_roles


@pytest.fixture
def set_id(night: Night, run: NightRun) -> str:
    night.built_and_staged()
    return smoke.staged_set(run, run.plan.legs[0])


def test_the_staged_set_and_its_files_are_fetched(run: NightRun, set_id: str, tmp_path: Path) -> None:
    leg, without_gpus = run.plan.legs[0], structs.replace(run.stack, sdk=Sdk(devices=False))
    handover.fetch(dataclasses.replace(run, stack=without_gpus), tmp_path / "fetched", leg)
    apart = dataclasses.replace(run, store=LocalStore(tmp_path / "fetched"))
    assert smoke.staged_set(apart, leg) == set_id
    there = {found.key for found in apart.store.list("")}
    assert {found.key for found in run.store.list("files/")} & there == {
        found.key
        for file in read_set(run.store, set_id).files
        for found in run.store.list(keys.file_key(file.sha256, file.file_name))
    }
    assert f"sets/{set_id}/simple/torch/index.html" in there
    assert not any(key.startswith(("ledger/", "release/")) for key in there)


def test_no_files_are_fetched_for_a_machine_that_cannot_test_them(
    run: NightRun, set_id: str, tmp_path: Path
) -> None:
    reaching = dataclasses.replace(run, stack=structs.replace(run.stack, sdk=Sdk()))
    handover.fetch(reaching, tmp_path / "fetched", run.plan.legs[0])
    there = LocalStore(tmp_path / "fetched")
    assert there.exists(f"sets/{set_id}/set.json")
    assert not list(there.list("files/"))


def test_a_record_of_the_staged_set_is_kept_and_of_another_is_refused(
    run: NightRun, set_id: str, tmp_path: Path
) -> None:
    leg, good = run.plan.legs[0], record_of(staged(run, set_id))
    assert not handover.keep_tests(run, leg, tmp_path, None)
    record.write(tmp_path / record.FILE, structs.replace(good, set_id="5e" * 32))
    with pytest.raises(UsageError, match="is of the set 5e5e"):
        handover.keep_tests(run, leg, tmp_path, None)
    record.write(tmp_path / record.FILE, good)
    assert handover.keep_tests(run, leg, tmp_path, None)
    assert [kept.record for kept in records.read(run.store, set_id).records] == [good]


@pytest.mark.parametrize(
    "change", [{"night": "another"}, {"leg": "another"}, {"stage": "build"}, {"part": "default-1"}], ids=str
)
def test_the_note_of_another_job_is_not_taken_for_that_of_these_tests(
    run: NightRun, set_id: str, tmp_path: Path, change: dict[str, str]
) -> None:
    assert set_id
    leg, before = run.plan.legs[0], {item.key for item in run.store.list("nights/")}
    note = plan.step_note(run, leg, "test", now(), good=True, reason="done")
    datafile.write(tmp_path / "step.json", structs.replace(note, **change))
    handover.keep_tests(run, leg, tmp_path, None)
    assert {item.key for item in run.store.list("nights/")} == before
    datafile.write(tmp_path / "step.json", note)
    handover.keep_tests(run, leg, tmp_path, None)
    assert {item.key for item in run.store.list("nights/")} > before


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """The output folder of a build, which has one below it."""
    folder = tmp_path / "wheels"
    (folder / "rocm-sdk").mkdir(parents=True)
    (folder / "rocm-sdk" / "rocm-7.tar.gz").write_bytes(b"sdk")
    (folder / ".split-torch.json").write_text("{}")  # of the build alone: no key of a store
    return folder


def left(run: NightRun) -> list[str]:
    prefix = keys.night_key(run.plan.night, "built/")
    return sorted(item.key.removeprefix(prefix) for item in run.store.list(prefix))


def end_build(run: NightRun, folder: Path, *, good: bool = True, number: int = 0) -> None:
    leg = run.plan.legs[number]
    note = plan.step_note(run, leg, "build", now(), good=good, reason="done" if good else "no compiler")
    datafile.write(folder / "step.json", note)


def test_what_a_build_left_is_staged_from_the_store_and_then_removed(
    night: Night, run: NightRun, output: Path
) -> None:
    leg, other = run.plan.legs
    made = night.build(folder=output)
    assert not handover.keep_built(run, leg.id, output)  # it was killed before it had ended
    end_build(run, output)
    assert handover.keep_built(run, leg.id, output)
    assert handover.built(run) == {leg.id}
    assert f"{leg.id}/0.1/rocm-sdk/rocm-7.tar.gz" in left(run)
    assert all(keys.is_own(item.key) for item in run.store.list(""))  # foreign to no `index check`
    (first,) = handover.stage_built(dataclasses.replace(run, only=(leg.id,)))
    assert first.reason == ""
    assert {w.sha256 for w in staged(run, str(first.set_id)).wheels} == {w.sha256 for w in made.wheels}
    assert left(run) == []
    (again,) = handover.stage_built(dataclasses.replace(run, only=(leg.id,)))
    assert (again.set_id, again.kept) == (first.set_id, True)
    (nothing,) = handover.stage_built(dataclasses.replace(run, only=(other.id,)))
    assert nothing.reason == "no wheels were built"


def _swap_torch(store: MemoryStore, prefix: str) -> None:
    key = next(key for key in store.objects if key.startswith(prefix) and key.endswith(".whl"))
    store.write(key, store.read(key).data + b"his")


def _other_attempt(store: MemoryStore, prefix: str) -> None:
    for key in [key for key in store.objects if key.startswith(prefix)]:
        store.write(key.replace("/0.1/", "/7.1/"), store.read(key).data)
        store.delete(key)


def _signed_by_him(store: MemoryStore, prefix: str) -> None:
    _swap_torch(store, prefix)
    store.write(prefix + "signed.json", datafile.dumps(dsse.sign(b"{}", "x", signer(66))).encode())


def _is_good(store: MemoryStore, prefix: str) -> None:
    note = store.read(prefix + "step.json").data
    store.write(prefix + "step.json", note.replace(b"no compiler", b"as you like"))


@pytest.mark.parametrize("does", [_swap_torch, _other_attempt, _signed_by_him, _is_good])
def test_in_a_store_with_a_root_what_a_builder_signed_is_staged_and_nothing_else(
    night: Night, run: NightRun, output: Path, does: Callable[[MemoryStore, str], None]
) -> None:
    leg, store = run.plan.legs[0], run.store
    assert isinstance(store, MemoryStore)
    run = dataclasses.replace(run, trust=trust_of_roles(), only=(leg.id,))
    night.build(folder=output)
    end_build(run, output)
    if does == _is_good:
        (output / "step.json").write_text((output / "step.json").read_text().replace("done", "no compiler"))
    with pytest.raises(UsageError, match="what a job leaves for the next one is signed"):
        handover.keep_built(run, leg.id, output)
    assert handover.keep_built(run, leg.id, output, TESTER)
    assert handover.built(run) == frozenset()
    assert handover.keep_built(run, leg.id, output, BUILDER)
    assert handover.built(run) == {leg.id}
    honest = dict(store.objects)
    does(store, keys.night_key("7", f"built/{leg.id}/0.1/"))
    if does == _swap_torch:
        with pytest.raises(StoreError, match="was changed since it was built"):
            handover.stage_built(run)
    else:
        assert handover.stage_built(run)[0].set_id is None
    store.objects.update(honest)
    assert handover.stage_built(run)[0].set_id is not None


def test_what_two_legs_share_stays_until_both_are_staged(night_of: MakeNight, output: Path) -> None:
    night = night_of(*(leg_of(family, build="both") for family in ("gfx94X-dcgpu", "gfx110X-all")))
    run = night.run
    first, second = run.plan.legs
    for number in (0, 1):
        night.build(number, folder=output)
    note = plan.step_note(run, run.plan.build("both"), "build", now(), good=True, reason="done")
    datafile.write(output / "step.json", note)
    assert handover.keep_built(run, "both", output)
    handover.stage_built(dataclasses.replace(run, only=(first.id,)))
    assert left(run) != []
    both = handover.stage_built(dataclasses.replace(run, only=(first.id, second.id)))
    assert [one.reason for one in both] == ["", ""]
    assert left(run) == []


def test_an_upload_that_was_cut_short_is_none(night: Night, run: NightRun, output: Path) -> None:
    leg = run.plan.legs[0]
    night.build(folder=output)
    end_build(run, output)
    assert isinstance(run.store, MemoryStore)
    whole = Breaking(run.store, left=99)
    handover.keep_built(dataclasses.replace(run, store=whole), leg.id, output)
    assert handover.built(dataclasses.replace(run, store=whole)) == {leg.id}
    for left in range(len(whole.written)):
        cut = dataclasses.replace(run, store=Breaking(run.store, left=left))
        with pytest.raises(Broken):
            handover.keep_built(cut, leg.id, output)
        assert handover.built(cut) == frozenset()
    assert handover.stage_built(dataclasses.replace(cut, only=(leg.id,)))[0].set_id is None


def test_of_a_build_that_failed_its_reason_is_kept_and_a_good_attempt_counts(
    night: Night, run: NightRun, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leg = run.plan.legs[0]
    night.build(folder=output)
    end_build(run, output, good=False)
    handover.keep_built(run, leg.id, output)
    assert left(run) == [f"{leg.id}/0.1/step.json"]
    assert handover.built(run) == frozenset()
    handover.stage_built(dataclasses.replace(run, only=(leg.id,)))
    assert (
        plan.by_stage(plan.notes_of_parts(run.store, run.plan).values())[leg.id, "build"].reason
        == "no compiler"
    )
    monkeypatch.setenv("GITHUB_RUN_ID", "5")
    end_build(run, output)
    handover.keep_built(run, leg.id, output)
    end_build(run, output, good=False)
    monkeypatch.setenv("GITHUB_RUN_ID", "6")
    handover.keep_built(run, leg.id, output)
    assert handover.stage_built(dataclasses.replace(run, only=(leg.id,)))[0].set_id is not None
    assert left(run) == []


def test_what_a_build_linked_from_elsewhere_does_not_get_into_the_store(
    night: Night, run: NightRun, output: Path, tmp_path: Path
) -> None:
    leg = run.plan.legs[0]
    night.build(folder=output)
    end_build(run, output)
    (tmp_path / "login").write_text("the key of the machine")
    (output / "torch.json").symlink_to(tmp_path / "login")
    handover.keep_built(run, leg.id, output)
    assert handover.built(run) == {leg.id}
    assert f"{leg.id}/0.1/torch.json" not in left(run)
    note = (output / "step.json").rename(tmp_path / "step.json")
    (output / "step.json").symlink_to(note)
    assert not handover.keep_built(run, leg.id, output)


def test_what_a_later_attempt_of_a_run_built_is_staged_by_the_first_of_the_next(
    night: Night, run: NightRun, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leg = run.plan.legs[0]
    night.build(folder=output)
    monkeypatch.setenv("GITHUB_RUN_ID", "5")
    monkeypatch.setenv("GITHUB_RUN_ATTEMPT", "2")
    end_build(run, output)
    handover.keep_built(run, leg.id, output)
    monkeypatch.setenv("GITHUB_RUN_ID", "6")
    monkeypatch.setenv("GITHUB_RUN_ATTEMPT", "1")
    assert handover.built(run) == {leg.id}  # so that it is not built again
    assert handover.stage_built(dataclasses.replace(run, only=(leg.id,)))[0].reason == ""
    assert (leg.id, "build", "") in plan.notes_of_parts(run.store, run.plan)


def test_a_note_of_a_gpu_that_cannot_be_read_holds_up_no_test(
    run: NightRun, set_id: str, tmp_path: Path
) -> None:
    run.store.write(keys.night_key("7", f"steps/hanging.{hanging._boot()}.1.json"), b"{")
    assert hanging.nodes_here(run.store, "7") == ()
    assert hanging.sentences(run.store, "7") == ()
    reaching = dataclasses.replace(run, stack=structs.replace(run.stack, sdk=Sdk()))
    handover.fetch(reaching, tmp_path, run.plan.legs[0])
    assert LocalStore(tmp_path).exists(f"sets/{set_id}/set.json")


@pytest.mark.parametrize("moment", ["yesterday", "2026-01-31T04:00:00"])
@pytest.mark.parametrize("field", ["started", "finished"])
def test_a_note_with_no_time_holds_up_no_report(
    run: NightRun, set_id: str, tmp_path: Path, field: str, moment: str
) -> None:
    assert set_id
    leg = run.plan.legs[0]
    plain = datafile.to_plain(plan.step_note(run, leg, "test", now(), good=True, reason="done"))
    text = json.dumps(plain | {field: moment})  # foreign tests have written it
    (tmp_path / "step.json").write_text(text)
    with pytest.raises(UsageError, match="no moment"):
        handover.keep_tests(run, leg, tmp_path, None)
    run.store.write(keys.night_key("7", f"steps/{leg.id}.test.0.1.json"), text.encode())
    assert len(report.of_night(run)) == len(run.plan.legs)
