"""A test that fails after its set was released is shown wherever the set is, until it is answered."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from cairn.cli.main import main
from cairn.errors import GateError
from cairn.release import records
from cairn.release.audit.audit import audit
from cairn.release.history.rollback import rollback
from cairn.release.history.yank import yank
from cairn.release.index.restore import restore
from cairn.release.index.snapshot import Index
from cairn.release.ledger import Ledger, withdrawn_from
from cairn.release.promote import Readmission, RefusedError, promote
from cairn.store.folder import LocalStore
from cairn.store.memory import MemoryStore
from cairn.testing.record import Counts, TestRecord
from cairn.wheels.wheelset import WheelSet
from helpers.gate import AWAY, at, data_of, given, record_of, stack_of
from helpers.release import Breaking, Broken, contents, make_set, make_wheel, stage_set

GPU = {"family": "gfx110X-all", "targets": ("gfx1100",)}


@pytest.fixture
def made(store: MemoryStore, tmp_path: Path) -> WheelSet:
    """A released set."""
    made = stage(store, tmp_path, "2.9.0")
    promote(store, made.id, stack=stack_of(made), records=[given(record_of(made))])
    return made


def stage(store: MemoryStore, folder: Path, version: str) -> WheelSet:
    wheel = make_wheel(folder, "torch", version)
    return stage_set(store, "staging", make_set([wheel], **AWAY), [wheel])


def failed(made: WheelSet, **changes: object) -> TestRecord:
    counts = Counts(passed=1, failed=2)
    values = {"verdict": "failed", "reason": "boom", "counts": counts, "started": at(1)}
    return record_of(made, **(values | changes))


def shown(store: MemoryStore, index: str = "release") -> list[str]:
    """The pages on which a failure is to be read."""
    return [
        key for key, data in contents(store, f"{index}/").items() if b"boom" in data and "/parts" not in key
    ]


def test_a_record_that_comes_late_and_bad_is_on_every_page(store: MemoryStore, made: WheelSet) -> None:
    assert shown(store) == []
    bad = records.add(store, data_of(failed(made)))
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


def test_what_is_answered_or_passes_later_is_shown_no_more(store: MemoryStore, made: WheelSet) -> None:
    bad = records.add(store, data_of(failed(made)))
    records.answer(store, made.id, bad.digest, who="ann", reason="the disk was full")
    assert shown(store) == []
    assert audit(store, hashes=True).good
    records.add(store, data_of(failed(made, reason="boom again", started=at(2))))
    assert shown(store)
    records.add(store, data_of(record_of(made, started=at(3))))
    assert shown(store) == []
    assert audit(store, hashes=True).good


def test_what_is_yanked_needs_no_answer(store: MemoryStore, made: WheelSet) -> None:
    records.add(store, data_of(failed(made)))
    yank(store, made.id, reason="it fails")
    assert audit(store, hashes=True).good


def test_a_failure_that_lands_beside_a_promotion_is_shown(store: MemoryStore, tmp_path: Path) -> None:
    made = stage(store, tmp_path, "2.9.0")

    class Meddled(MemoryStore):
        left = 1

        def write_if(self, key: str, data: bytes, *, etag: str | None) -> bool:
            if key == "release/state.json" and etag is not None and self.left:
                self.left = 0
                records.add(self, data_of(failed(made)))
            return super().write_if(key, data, etag=etag)

    meddled = Meddled(store.objects)
    done = promote(meddled, made.id, stack=stack_of(made), records=[given(record_of(made))])
    assert "failed: boom" in done.standing[0]
    assert shown(meddled)


class Meddled(MemoryStore):
    """A store in which somebody else acts just before a write."""

    before: Callable[[str], bool]
    act: Callable[[], object] | None = None

    def write_if(self, key: str, data: bytes, *, etag: str | None) -> bool:
        if self.act is not None and self.before(key):
            act, self.act = self.act, None
            act()
        return super().write_if(key, data, etag=etag)


def test_what_lands_beside_a_rollback_is_shown(store: MemoryStore, made: WheelSet) -> None:
    rollback(store, "release", "0")
    for act, said in (
        (lambda it: yank(it, made.id, reason="boom"), "yanked"),
        (lambda it: records.add(it, data_of(failed(made))), "failed"),
    ):
        meddled = Meddled(store.objects)
        meddled.before = lambda key: key == "release/state.json"
        meddled.act = partial(act, meddled)
        rollback(meddled, "release", "1")
        marks = [getattr(f, said) for f in Index(meddled, "release").load().project("torch").files]
        assert all(mark and "boom" in mark for mark in marks)
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
    bad = records.add(store, data_of(failed(made)))
    meddled, entries = Meddled(store.objects), iter((False, True))
    meddled.before = lambda key: key.startswith("ledger/entries/") and next(entries)
    meddled.act = lambda: records.add(meddled, data_of(failed(made, reason="boom again", started=at(2))))
    records.answer(meddled, made.id, bad.digest, who="ann", reason="the disk was full")
    assert [f.failed for f in Index(meddled, "release").load().project("torch").files] != [None]


def test_a_failure_whose_writer_dies_anywhere_counts_once_it_was_written(
    store: MemoryStore, made: WheelSet
) -> None:
    data, left = data_of(failed(made)), 0
    while True:
        dying = Breaking(store, left=left)
        with contextlib.suppress(Broken):
            records.add(dying, data)
        after = MemoryStore(dying.objects)
        if len(dying.written) < left:
            break
        assert bool(records.standing(after, made.id)) == bool(left)
        assert audit(after, hashes=True).good == (left == 0)
        left += 1


@pytest.mark.parametrize("verdict", ["invalid", "untested"])
def test_failures_stand_whatever_the_run_proves_of_the_hardware(
    store: MemoryStore, tmp_path: Path, verdict: str
) -> None:
    made = stage(store, tmp_path, "2.9.0")
    bad = records.add(store, data_of(failed(made, verdict=verdict, started=at(0))))
    with pytest.raises(RefusedError) as caught:
        promote(store, made.id, stack=stack_of(made), records=[given(record_of(made, started=at(-1)))])
    assert f"{verdict} with 2 failed tests: boom" in caught.value.reasons[0]
    records.answer(store, made.id, bad.digest, who="ann", reason="the disk was full")
    promote(store, made.id, stack=stack_of(made))


def test_what_passed_before_a_failure_came_does_not_answer_it_whatever_its_clock_says(
    store: MemoryStore, made: WheelSet
) -> None:
    """The clock of the machine on which it fails is an hour slow."""
    records.add(store, data_of(record_of(made, started=at(1))))
    records.add(store, data_of(failed(made, started=at(-59))))
    assert records.standing(store, made.id)
    assert shown(store)
    records.add(store, data_of(record_of(made, started=at(2))))
    assert not records.standing(store, made.id)


def test_records_that_are_given_at_once_came_in_the_order_in_which_they_began(
    store: MemoryStore, tmp_path: Path
) -> None:
    made = stage(store, tmp_path, "2.9.0")
    both = [given(record_of(made, started=at(1))), given(failed(made, started=at(0)))]
    assert promote(store, made.id, stack=stack_of(made), records=both, dry_run=True).report
    promote(store, made.id, stack=stack_of(made), records=both)


@pytest.mark.parametrize("verdict", ["invalid", "untested"])
def test_a_later_record_answers_these_too(store: MemoryStore, tmp_path: Path, verdict: str) -> None:
    made = stage(store, tmp_path, "2.9.0")
    records.add(store, data_of(failed(made, verdict=verdict, started=at(-1))))
    promote(store, made.id, stack=stack_of(made), records=[given(record_of(made))])


def test_the_command_says_where_users_are_offered_what_has_failed(
    store: MemoryStore, made: WheelSet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = LocalStore(tmp_path / "store")
    for key, data in store.objects.items():
        folder.write(key, data)
    path = tmp_path / "record.json"
    path.write_bytes(data_of(failed(made)))
    assert main(["release", "record", "add", str(path), "--store", str(folder.path)]) == 0
    said = capsys.readouterr()
    assert f"release offers the set {made.id[:12]}, and its pages say by now" in said.err
    assert f"cairn release yank {made.id[:12]}" in said.err
    assert main(["release", "record", "add", str(path), "--store", str(folder.path), "--json"]) == 0
    late = json.loads(capsys.readouterr().out)["late"]
    assert [(one["index"], one["set"]) for one in late] == [("release", made.id)]


def test_the_night_after_a_rollback_does_not_bring_back_what_was_taken_back(
    store: MemoryStore, made: WheelSet, tmp_path: Path
) -> None:
    rollback(store, "release", "0", reason="too slow")
    for _ in range(2):
        with pytest.raises(GateError, match="was taken off release by a rollback") as caught:
            promote(store, made.id, stack=stack_of(made))
        assert caught.value.reasons[0].endswith("to 0: too slow")
    newer = stage(store, tmp_path, "2.9.1")
    promote(store, newer.id, stack=stack_of(newer), records=[given(record_of(newer))])
    promote(store, made.id, stack=stack_of(made), target="nightly")
    again = Readmission(who="ann", reason="it was the benchmark")
    rollback(store, "release", "0", reason="all of it")
    assert promote(store, made.id, stack=stack_of(made), again=again).added
    assert promote(store, made.id, stack=stack_of(made)).kept
    with pytest.raises(GateError, match="by a rollback"):
        promote(store, newer.id, stack=stack_of(newer))


def test_a_rollback_brings_back_what_one_took_off(store: MemoryStore, made: WheelSet) -> None:
    rollback(store, "release", "0")
    rollback(store, "release", "1")
    rollback(store, "staging", "1")
    assert promote(store, made.id, stack=stack_of(made)).kept


def test_a_rollback_that_dies_anywhere_lets_nothing_in_again_before_it_is_there(
    store: MemoryStore, made: WheelSet
) -> None:
    rollback(store, "release", "0", reason="too slow")
    left = 0
    while True:
        dying = Breaking(store, left=left)
        with contextlib.suppress(Broken):
            rollback(dying, "release", "1")
        after = MemoryStore(dying.objects)
        if made.id not in Index(after, "release").load().set_ids:
            with pytest.raises(GateError, match="was taken off release by a rollback"):
                promote(after, made.id, stack=stack_of(made))
        rollback(after, "release", "1")
        assert withdrawn_from(Ledger(after).history(made.id), "release") is None
        if len(dying.written) < left:
            break
        left += 1
