"""A test that fails after its set was released is shown wherever the set is, until it is answered."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cairn.cli.main import main
from cairn.errors import GateError
from cairn.release import records
from cairn.release.audit.audit import audit
from cairn.release.history.rollback import rollback
from cairn.release.history.yank import yank
from cairn.release.index.restore import restore
from cairn.release.index.snapshot import Index
from cairn.release.ledger import Ledger
from cairn.release.ledger_entries import withdrawn_from
from cairn.release.promote import Readmission, RefusedError, promote
from cairn.store.memory import MemoryStore
from cairn.testing.record import TestRecord
from cairn.wheels.wheelset import WheelSet
from helpers.gate import at, data_of, failed_record, given, record_of, stack_of, stage_torch
from helpers.moments import Meddled, dying
from helpers.release import contents, fill, in_folder, move


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[MemoryStore, WheelSet]:
    store = MemoryStore()
    made = stage_torch(store, tmp_path_factory.mktemp("torch"))
    promote(store, made.id, stack=stack_of(made), records=[given(record_of(made))])
    return store, made


@pytest.fixture
def made(store: MemoryStore, built: tuple[MemoryStore, WheelSet]) -> WheelSet:
    """A released set."""
    fill(store, built[0])
    return built[1]


def failing(made: WheelSet, **changes: Any) -> TestRecord:
    """A record of a failure that came after all others."""
    return failed_record(made, **({"started": at(1)} | changes))


def shown(store: MemoryStore, index: str = "release") -> list[str]:
    """The pages on which a failure is to be read."""
    return [
        key for key, data in contents(store, f"{index}/").items() if b"boom" in data and "/parts" not in key
    ]


def test_a_record_that_comes_late_and_bad_is_on_every_page(store: MemoryStore, made: WheelSet) -> None:
    assert shown(store) == []
    bad = records.add(store, data_of(failing(made)))
    for index in ("release", "staging"):
        pages = [key for key in shown(store, index) if "generations" not in key]
        assert pages == [
            f"{index}/index.html",
            f"{index}/simple/torch/index.html",
            f"{index}/simple/torch/index.json",
            f"{index}/targets.json",
        ]
    assert b"a test has failed since" in store.read("release/status.html").data
    file = json.loads(store.read("release/simple/torch/index.json").data)["files"][0]
    assert file["_failed"] == f"smoke record {bad.digest[:12]}: failed: boom"
    assert Index(store, "release").load().generation.recent[0].action == "record"
    problems = audit(store, hashes=True).problems
    assert [(one.code, one.index) for one in problems] == [("evidence", "release")]
    assert "since it came into release, a test has failed" in problems[0].said
    yank(store, made.id, reason="it fails")
    assert audit(store, hashes=True).good


def test_what_is_answered_or_passes_later_is_shown_no_more(store: MemoryStore, made: WheelSet) -> None:
    bad = records.add(store, data_of(failing(made)))
    records.answer(store, made.id, bad.digest, who="ann", reason="the disk was full")
    assert shown(store) == []
    assert audit(store, hashes=True).good
    records.add(store, data_of(failing(made, reason="boom again", started=at(2))))
    assert shown(store)
    records.add(store, data_of(record_of(made, started=at(3))))
    assert shown(store) == []
    assert audit(store, hashes=True).good


def test_a_failure_that_lands_beside_a_promotion_is_shown(store: MemoryStore, tmp_path: Path) -> None:
    made = stage_torch(store, tmp_path)
    meddled = Meddled(store, lambda it: records.add(it, data_of(failing(made))), first=2)
    done = promote(meddled, made.id, stack=stack_of(made), records=[given(record_of(made))])
    assert "failed: boom" in done.late_objections[0]
    assert shown(meddled)


def test_what_lands_beside_a_rollback_is_shown(store: MemoryStore, made: WheelSet) -> None:
    rollback(store, "release", "0")
    meanwhile: dict[str, Callable[[MemoryStore], object]] = {
        "yanked": lambda it: yank(it, made.id, reason="boom"),
        "failed": lambda it: records.add(it, data_of(failing(made))),
    }
    for mark, act in meanwhile.items():
        meddled = Meddled(store, act)
        rollback(meddled, "release", "1")
        marks = [getattr(f, mark) for f in Index(meddled, "release").load().project("torch").files]
        assert all(found and "boom" in found for found in marks)
        assert not any("offers it" in one.said for one in audit(meddled, ("release",)).problems)


def test_an_older_state_that_counts_again_says_what_is_known_by_now(
    store: MemoryStore, made: WheelSet
) -> None:
    before = Index(store, "release").load()
    yank(store, made.id, reason="boom")
    store.delete("release/state.json")
    restore(Index(store, "release"), f"{before.generation.number}-{before.digest}")
    assert [f.yanked for f in Index(store, "release").load().project("torch").files] == ["boom"]
    assert audit(store, hashes=True).good


def test_a_failure_that_comes_while_another_is_answered_is_not_forgotten(
    store: MemoryStore, made: WheelSet
) -> None:
    bad, again = records.add(store, data_of(failing(made))), data_of(failing(made, started=at(2)))
    meddled = Meddled(store, lambda it: records.add(it, again), at="^ledger/entries/", first=2)
    records.answer(meddled, made.id, bad.digest, who="ann", reason="the disk was full")
    assert not meddled.left
    assert [f.failed for f in Index(meddled, "release").load().project("torch").files] != [None]


def test_a_failure_whose_writer_dies_anywhere_counts_once_it_was_written(
    store: MemoryStore, made: WheelSet
) -> None:
    data = data_of(failing(made))
    for left, after in dying(store, lambda it: records.add(it, data)):
        assert bool(records.standing(after, made.id)) == bool(left)
        assert audit(after, hashes=True).good == (left == 0)


@pytest.mark.parametrize("verdict", ["invalid", "untested"])
def test_failures_stand_whatever_the_run_proves_of_the_hardware(
    store: MemoryStore, tmp_path: Path, verdict: str
) -> None:
    made = stage_torch(store, tmp_path)
    bad = records.add(store, data_of(failing(made, verdict=verdict, started=at(-1))))
    earlier, later = (given(record_of(made, started=at(minutes))) for minutes in (-2, 0))
    with pytest.raises(RefusedError) as caught:
        promote(store, made.id, stack=stack_of(made), records=[earlier])
    assert f"{verdict} with 1 failed tests: boom" in caught.value.reasons[0]
    answered = MemoryStore(store.objects)
    records.answer(answered, made.id, bad.digest, who="ann", reason="the disk was full")
    promote(answered, made.id, stack=stack_of(made))
    promote(store, made.id, stack=stack_of(made), records=[later])


def test_what_passed_before_a_failure_came_does_not_answer_it_whatever_its_clock_says(
    store: MemoryStore, made: WheelSet
) -> None:
    """The clock of the machine on which it fails is an hour slow."""
    records.add(store, data_of(record_of(made, started=at(1))))
    records.add(store, data_of(failing(made, started=at(-59))))
    assert records.standing(store, made.id)
    assert shown(store)
    records.add(store, data_of(record_of(made, started=at(2))))
    assert not records.standing(store, made.id)


def test_records_that_are_given_at_once_came_in_the_order_in_which_they_began(
    store: MemoryStore, tmp_path: Path
) -> None:
    made = stage_torch(store, tmp_path)
    both = [given(record_of(made, started=at(1))), given(failing(made, started=at(0)))]
    assert promote(store, made.id, stack=stack_of(made), records=both, dry_run=True).report
    promote(store, made.id, stack=stack_of(made), records=both)


def test_the_command_says_where_users_are_offered_what_has_failed(
    store: MemoryStore, made: WheelSet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = in_folder(store, tmp_path / "store")
    path = tmp_path / "record.json"
    path.write_bytes(data_of(failing(made)))
    assert main(["release", "record", "add", str(path), "--store", str(folder.path)]) == 0
    said = capsys.readouterr()
    assert f"release offers the set {made.id[:12]}, and its pages say by now" in said.err
    assert f"cairn release yank {made.id[:12]}" in said.err
    assert main(["release", "record", "add", str(path), "--store", str(folder.path), "--json"]) == 0
    late = json.loads(capsys.readouterr().out)["late"]
    assert [(one["index"], one["set"]) for one in late] == [("release", made.id)]


def test_a_readmission_whose_run_died_behind_its_commit_is_noted_by_the_next(
    store: MemoryStore, made: WheelSet
) -> None:
    rollback(store, "release", "0", reason="too slow")
    move(store, made)
    ledger, again = Ledger(store), Readmission(who="ann", reason="it was the benchmark")
    assert promote(store, made.id, stack=stack_of(made)).already_present
    assert withdrawn_from(ledger.history(made.id), "release") is not None
    for _ in range(2):
        assert promote(store, made.id, stack=stack_of(made), readmission=again).already_present
    assert [event.kind for event in ledger.history(made.id)].count("readmit") == 1
    assert withdrawn_from(ledger.history(made.id), "release") is None


def test_the_night_after_a_rollback_does_not_bring_back_what_was_taken_back(
    store: MemoryStore, made: WheelSet, tmp_path: Path
) -> None:
    rollback(store, "release", "0", reason="too slow")
    for _ in range(2):
        with pytest.raises(GateError, match="was taken off release by a rollback") as caught:
            promote(store, made.id, stack=stack_of(made))
        assert caught.value.reasons[0].endswith("to 0: too slow")
    newer = stage_torch(store, tmp_path, "2.9.1")
    promote(store, newer.id, stack=stack_of(newer), records=[given(record_of(newer))])
    promote(store, made.id, stack=stack_of(made), target="nightly")
    again = Readmission(who="ann", reason="it was the benchmark")
    rollback(store, "release", "0", reason="all of it")
    assert promote(store, made.id, stack=stack_of(made), readmission=again).added
    assert promote(store, made.id, stack=stack_of(made)).already_present
    with pytest.raises(GateError, match="by a rollback"):
        promote(store, newer.id, stack=stack_of(newer))


def test_a_rollback_brings_back_what_one_took_off(store: MemoryStore, made: WheelSet) -> None:
    rollback(store, "release", "0")
    rollback(store, "release", "1")
    rollback(store, "staging", "1")
    assert promote(store, made.id, stack=stack_of(made)).already_present


def test_a_rollback_that_dies_anywhere_lets_nothing_in_again_before_it_is_there(
    store: MemoryStore, made: WheelSet
) -> None:
    rollback(store, "release", "0", reason="too slow")
    for _, after in dying(store, lambda it: rollback(it, "release", "1")):
        if made.id not in Index(after, "release").load().set_ids:
            with pytest.raises(GateError, match="was taken off release by a rollback"):
                promote(after, made.id, stack=stack_of(made))
        rollback(after, "release", "1")
        assert withdrawn_from(Ledger(after).history(made.id), "release") is None
