"""What the records of a set come to, and what is said to them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from cairn.release import weighing
from cairn.release.weighing import Answer, Evidence, RecordRequirements, SetRecords, StoredRecord
from cairn.stack import Floor
from cairn.testing.record import Counts, TestedWheel, TestRecord
from cairn.wheels import wheelset
from cairn.wheels.wheelset import ClosureFile, WheelSet
from helpers.gate import at, kept, record_of
from helpers.testing import named_set, named_wheel

GPU: dict[str, Any] = {"family": "gfx94X-dcgpu", "targets": ("gfx942",)}
BOTH: dict[str, Any] = {"family": "gfx94X-dcgpu", "targets": ("gfx942", "gfx950")}


def sealed(**place: Any) -> WheelSet:
    """A set of torch with the closure numpy."""
    closure = ClosureFile(file_name="numpy-2.0-py3-none-any.whl", sha256="a" * 64, size=1, origin="mirrored")
    return wheelset.seal(
        named_set(named_wheel("torch-2.9.0-py3-none-any.whl", sha256="b" * 64), **place), [closure]
    )


def weigh(made: WheelSet, *records: TestRecord, **asked: Any) -> Evidence:
    values: dict[str, Any] = {"wheel_set": made, "records": {"smoke": Floor()}, "moment": datetime.now(UTC)}
    return weighing.weigh(RecordRequirements(**(values | asked)), kept(*records))


def weigh_kept(made: WheelSet, *records: StoredRecord, **beside: Any) -> Evidence:
    """What records come to with what else is kept `beside` them."""
    asked = RecordRequirements(wheel_set=made, records={"smoke": Floor()}, moment=datetime.now(UTC))
    return weighing.weigh(asked, SetRecords(records=records, **beside))


def test_a_passed_record_of_a_set_for_the_cpu_is_enough() -> None:
    made = sealed()
    found = weigh(made, record_of(made))
    assert (found.open_failures, found.missing, found.untested) == ((), (), ())
    assert found.passed == ("smoke passed on a CPU",)
    nothing = weigh(made)
    assert (nothing.missing, nothing.untested) == (("there is no test record",), ("cpu",))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"verdict": "untested", "reason": "translated"}, "untested: translated"),
        ({"verdict": "invalid"}, "invalid"),
        ({"family": "gfx110X-all"}, "it is of gfx110X-all (gfx942), not of gfx94X-dcgpu"),
        ({"targets": ("gfx942", "gfx950")}, "it is of gfx94X-dcgpu (gfx942, gfx950), not of gfx94X-dcgpu"),
        ({"hardware": (), "counts": Counts(passed=5)}, "without any hardware of gfx94X-dcgpu"),
        ({"hardware": ("gfx942", "gfx1100")}, "on gfx942, gfx1100, not on gfx94X-dcgpu"),
        ({"hardware": ("gfx1100",)}, "on gfx1100, not on gfx94X-dcgpu"),
        ({"gpus": (), "covered": {}}, "does not say which GPUs there were: an older Cairn wrote it"),
        ({"counts": Counts(passed=5)}, "none of its tests used the GPU"),
        ({"counts": Counts(passed=19, device_passed=9)}, "19 tests ran, fewer than the floor of 20"),
        (
            {"counts": Counts(passed=30, device_passed=7)},
            "7 tests passed on a GPU, fewer than the floor of 8",
        ),
        ({"pytest_args": ("-k", "one or two")}, "pytest was given -k 'one or two'"),
        ({"started": at(600)}, "which is yet to come"),
        ({"started": at(-3), "duration_seconds": 60000.0}, "which is yet to come"),
        ({"started": at(-66), "duration_seconds": 1200.0}, "before the set was staged"),
        ({"kind": "suite"}, "the stack demands no suite record"),
        ({"set_id": "b" * 64}, "it is of the set bbbbbbbbbbbb"),
    ],
)
def test_a_record_that_proves_nothing_does_not_count(changes: Mapping[str, Any], said: str) -> None:
    made = sealed(**GPU)
    asked = {
        "records": {"smoke": Floor(tests=20, device_tests=8)},
        "since": datetime.now(UTC) - timedelta(hours=1),
    }
    good = record_of(made, hardware=("gfx942",), counts=Counts(passed=30, device_passed=8))
    assert weigh(made, good, **asked).missing == ()
    found = weigh(made, msgspec.structs.replace(good, **changes), **asked)
    assert found.untested == ("gfx942",)
    assert said in "; ".join(found.missing)
    # Beside one that counts, it does no harm: nothing of it says that the set is bad.
    both = weigh(made, good, msgspec.structs.replace(good, **changes), **asked)
    assert (both.open_failures, both.missing) == ((), ())


@pytest.mark.parametrize(
    ("wheels", "said"),
    [
        ({"torch-2.9.0-py3-none-any.whl": "0" * 64}, "it is of other bytes: torch-2.9.0"),
        ({"numpy-2.0-py3-none-any.whl": "0" * 64}, "it is of other bytes: numpy-2.0"),
        ({"numpy-2.1-py3-none-any.whl": "0" * 64}, "what the set does not have: numpy-2.1"),
        ({"evil-1.0-py3-none-any.whl": "0" * 64}, "what the set does not have: evil-1.0"),
        ({"torch-2.9.0-py3-none-any.whl": None}, "it does not cover torch-2.9.0"),
        ({"numpy-2.0-py3-none-any.whl": None}, "it does not say which numpy it was made with"),
    ],
)
def test_a_record_of_other_files_does_not_count(wheels: Mapping[str, str | None], said: str) -> None:
    made = sealed()
    tested = {**made.sha256s, **wheels}
    record = record_of(
        made, wheels=tuple(TestedWheel(file_name=n, sha256=s) for n, s in tested.items() if s is not None)
    )
    installed = {"numpy": frozenset({"numpy-2.0-py3-none-any.whl"})}
    assert said in "; ".join(weigh(made, record, installed=installed).missing)


def test_each_target_and_each_kind_is_asked_for() -> None:
    made = sealed(**BOTH)
    asked = {"records": {"smoke": Floor(), "suite": Floor()}}
    on = {name: record_of(made, hardware=(name,)) for name in made.targets}
    suites = [msgspec.structs.replace(record, kind="suite") for record in on.values()]
    found = weigh(made, on["gfx942"], suites[0], **asked)
    assert found.untested == ("gfx950",)
    assert found.missing == ("no smoke record has passed on gfx950", "no suite record has passed on gfx950")
    found = weigh(made, *on.values(), suites[0], **asked)
    assert found.missing == ("no suite record has passed on gfx950",)
    assert weigh(made, *on.values(), *suites, **asked).untested == ()


def test_each_configuration_of_a_suite_is_asked_for() -> None:
    made = sealed(**GPU)
    asked = {"records": {"suite": Floor(configs=("default", "distributed"))}}
    default = record_of(made, kind="suite", hardware=("gfx942",), config="default")
    other = msgspec.structs.replace(default, config="distributed")
    inductor = msgspec.structs.replace(default, config="inductor")
    found = weigh(made, default, inductor, **asked)
    assert found.missing[0] == "no suite record of distributed has passed on gfx942"
    assert "the stack demands no suite record of inductor" in found.missing[1]
    assert not found.ran
    assert weigh(made, default, other, **asked).missing == ()


@pytest.mark.parametrize(
    ("changes", "overtaken"),
    [
        ({}, True),
        ({"duration_seconds": 30.0}, False),  # a moment of it is not later than what failed
        ({"config": "inductor"}, False),
        ({"counts": Counts(passed=3, failed=1)}, False),
    ],
)
def test_a_suite_whose_shards_ran_again_answers_for_all_of_them(
    changes: Mapping[str, Any], *, overtaken: bool
) -> None:
    made, began = sealed(**GPU), at(-10)
    asked = {"records": {"suite": Floor(configs=("default",))}}
    of = {"kind": "suite", "config": "default", "started": began}
    bad = record_of(made, verdict="failed", reason="shard 2 left no result", duration_seconds=60.0, **of)
    # There is no GPU, so that the second is untested: it ran to its end all the same.
    again = record_of(made, verdict="untested", **{"duration_seconds": 300.0, **of, **changes})
    found = weigh(made, bad, again, **asked)
    assert (found.open_failures == ()) is overtaken
    assert found.missing
    assert found.ran is overtaken or changes == {"duration_seconds": 30.0}


def test_what_was_translated_shows_nothing_and_overtakes_nothing() -> None:
    made = sealed(**GPU)
    bad = record_of(made, verdict="failed", reason="1 failed", started=at(-20), duration_seconds=60.0)
    of = {"verdict": "untested", "started": at(-10), "duration_seconds": 60.0}
    assert weigh(made, bad, record_of(made, **of)).open_failures == ()
    found = weigh(made, bad, record_of(made, translated="torchdevice 0.1.0", **of))
    assert len(found.open_failures) == 1
    assert not found.ran


def test_a_gpu_that_no_test_used_covers_nothing() -> None:
    made = sealed(**BOTH)
    there = record_of(made, hardware=made.targets, covered={"gfx942": 2, "gfx950": 0})
    found = weigh(made, there)
    assert (found.untested, found.passed) == (("gfx950",), ("smoke passed on gfx942",))
    # Nor does it answer what has failed there.
    assert weigh(made, failed(made, -5, hardware=("gfx950",)), there).open_failures
    assert not weigh(made, failed(made, -5, hardware=("gfx942",)), there).open_failures


def failed(made: WheelSet, minutes: float, **changes: Any) -> TestRecord:
    return record_of(made, started=at(minutes), verdict="failed", reason="1 failed", **changes)


@pytest.mark.parametrize(
    ("changes", "stands"),
    [
        ({"pytest_args": ("-k", "x")}, True),
        ({"verdict": "invalid", "reason": "the sources disagree"}, True),
        ({"verdict": "invalid", "hardware": ("gfx1100",)}, False),
        ({"verdict": "untested"}, False),
    ],
)
def test_what_ran_on_the_hardware_and_does_not_count_is_no_absence(
    changes: Mapping[str, Any], *, stands: bool
) -> None:
    made = sealed(**GPU)
    found = weigh(made, msgspec.structs.replace(record_of(made, hardware=("gfx942",)), **changes))
    assert found.untested == ("gfx942",)
    assert bool(found.on_hardware) is stands


def test_a_failed_record_stands_however_many_have_passed() -> None:
    made = sealed(**GPU)
    passed = [record_of(made, hardware=("gfx942",), started=at(-20 + n)) for n in range(9)]
    found = weigh(made, *passed, failed(made, -10, hardware=("gfx942",)))
    assert [line.partition(": ")[2] for line in found.open_failures] == ["failed: 1 failed"]
    # Also one of selected tests, from the future, or of a kind that is not demanded.
    for changes in ({"pytest_args": ("-k", "x")}, {"started": at(99)}, {"kind": "suite"}):
        bad = msgspec.structs.replace(failed(made, -10, hardware=("gfx942",)), **changes)
        assert weigh(made, *passed, bad).open_failures


@pytest.mark.parametrize(
    ("changes", "overtaken"),
    [
        ({}, True),
        ({"hardware": ("gfx942:xnack+",)}, True),
        ({"started": at(-11)}, False),
        ({"kind": "suite"}, False),
        ({"hardware": ("gfx950",)}, False),
        ({"pytest_args": ("-k", "x")}, False),
        ({"counts": Counts(passed=9, device_passed=0)}, False),
        ({"started": at(600)}, False),
    ],
)
def test_a_later_record_of_the_same_kind_and_hardware_answers(
    changes: Mapping[str, Any], *, overtaken: bool
) -> None:
    made = sealed(**BOTH)
    later = msgspec.structs.replace(record_of(made, hardware=("gfx942",), started=at(-5)), **changes)
    found = weigh(made, failed(made, -10, hardware=("gfx942",)), later)
    assert (found.open_failures == ()) is overtaken
    assert weigh(made, later, failed(made, -1, hardware=("gfx942",))).open_failures


def answer(made: WheelSet, digest: str, set_id: str | None = None) -> tuple[str, Answer]:
    said = Answer(set_id=set_id or made.id, record=digest, who="ann", reason="a full disk", when=at(0))
    return hashlib.sha256(repr(said).encode()).hexdigest(), said


def test_an_answer_lets_through_what_it_names_and_is_shown() -> None:
    made = sealed()
    bad = StoredRecord(digest="e" * 64, record=failed(made, -10))
    good = StoredRecord(digest="f" * 64, record=record_of(made, started=at(-20)))
    found = weigh_kept(made, bad, good, answers=(answer(made, bad.digest),))
    assert found.open_failures == ()
    assert found.answered == ("smoke record eeeeeeeeeeee: failed: 1 failed; answered by ann: a full disk",)
    assert weigh_kept(made, bad, good, answers=(answer(made, bad.digest, "b" * 64),)).open_failures


def test_what_was_removed_or_cannot_be_read_stands_until_it_is_answered() -> None:
    made = sealed()
    good = StoredRecord(digest="f" * 64, record=record_of(made))
    answers, changed = (answer(made, "e" * 64),), (("e" * 64, "the record eeeeeeeeeeee was changed"),)
    removed = "the record eeeeeeeeeeee, which ann has answered, is not there any more"
    assert weigh_kept(made, good, answers=answers).open_failures == (removed,)
    assert weigh_kept(made, good, unusable=changed).open_failures == (changed[0][1],)
    assert weigh_kept(made, good, unusable=changed, answers=answers).open_failures == ()


def test_a_record_without_the_signature_that_is_asked_for_does_not_count() -> None:
    made = sealed()
    unsigned = StoredRecord(digest="f" * 64, record=record_of(made), doubt="the record ffff is not signed")
    assert "is not signed" in "; ".join(weigh_kept(made, unsigned).missing)


def test_what_a_record_says_is_shown_without_what_a_terminal_would_obey() -> None:
    made = sealed()
    bad = record_of(made, verdict="failed", reason="1 failed\x1b[2J\u202e\nmet")
    assert weigh(made, bad).open_failures[0].endswith(r"failed: 1 failed\x1b[2J\u202e\nmet")
