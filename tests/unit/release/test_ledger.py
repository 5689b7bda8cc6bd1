"""What a store remembers whatever becomes of its indexes; each attack here once got past the gate."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path

import pytest

from cairn.errors import GateError, StoreError, UsageError
from cairn.release import records
from cairn.release.audit.audit import audit
from cairn.release.gc import collect
from cairn.release.history.retain import Rule, retain
from cairn.release.history.rollback import rollback
from cairn.release.history.yank import lift, manifest_of, yank
from cairn.release.index import keys
from cairn.release.index.generation import FileRef
from cairn.release.index.snapshot import Index
from cairn.release.ledger import Ledger, NameTakenError
from cairn.release.ledger_entries import Event, subject_of
from cairn.release.promote import RefusedError, promote
from cairn.release.publish.files import publish
from cairn.release.weighing import Bypass
from cairn.store.memory import MemoryStore
from cairn.wheels.wheelset import WheelSet
from helpers.faults import FaultyStore, Plan
from helpers.gate import data_of, failed_record, given, record_of, stack_of, stage_torch
from helpers.moments import Forgetful, Meddled, dying
from helpers.nights import age, backdate
from helpers.release import contents, make_wheel, put

HURRY = Bypass(who="ann", reason="hurry")
SECOND = keys.ledger_entry_key(1)


def released(store: MemoryStore, made: WheelSet) -> None:
    promote(store, made.id, stack=stack_of(made), records=[given(record_of(made))])


def offered(store: MemoryStore, index: str = "release") -> dict[str, str | None]:
    """The mark of every file of an index."""
    return {f.filename: f.yanked for p in Index(store, index).load().projects() for f in p.files}


def test_a_yanked_set_does_not_come_back_after_a_rollback(store: MemoryStore, tmp_path: Path) -> None:
    made = stage_torch(store, tmp_path, "2.9.0")
    released(store, made)
    yank(store, made.id, reason="wrong results")
    rollback(store, "release", "0")
    before = contents(store)
    with pytest.raises(GateError, match="was yanked"):
        promote(store, made.id, stack=stack_of(made))
    assert contents(store) == before


def test_a_yanked_set_does_not_come_back_by_being_staged_again(store: MemoryStore, tmp_path: Path) -> None:
    made, _ = stage_torch(store, tmp_path, "2.9.0"), stage_torch(store, tmp_path, "2.9.1")
    yank(store, made.id, reason="wrong results")
    retain(store, "staging", Rule(last=1))
    before = contents(store)
    with pytest.raises(GateError, match="was yanked"):
        stage_torch(store, tmp_path, "2.9.0")
    assert contents(store) == before
    lift(store, made.id, by="ann", reason="it was the driver")
    assert stage_torch(store, tmp_path, "2.9.0").id == made.id


def test_a_name_has_its_bytes_for_ever(store: MemoryStore, tmp_path: Path) -> None:
    made = stage_torch(store, tmp_path / "a", "2.9.0")
    released(store, made)
    for index in ("release", "staging"):
        rollback(store, index, "0")
        assert offered(store, index) == {}
    before = contents(store)
    for act in (
        lambda: stage_torch(store, tmp_path / "b", "2.9.0", content="EVIL = 1"),
        lambda: publish(store, "dev", [make_wheel(tmp_path / "b", "torch", "2.9.0", content="EVIL = 1")]),
    ):
        with pytest.raises(NameTakenError, match="was published with other bytes before"):
            act()
    assert contents(store) == before
    assert stage_torch(store, tmp_path / "a", "2.9.0").id == made.id


def test_wheels_of_two_families_may_be_called_alike(store: MemoryStore, tmp_path: Path) -> None:
    for family in ("gfx110X-all", "gfx94X-dcgpu"):
        wheel = make_wheel(tmp_path / family, "torch", "2.9.0", content=f"FAMILY = {family!r}")
        put(store, f"staging/{family}", [wheel])
        put(store, f"release/{family}", [wheel])
    other = make_wheel(tmp_path / "other", "torch", "2.9.0", content="EVIL = 1")
    rollback(store, "release/gfx110X-all", "0")
    with pytest.raises(NameTakenError, match="was published with other bytes"):
        put(store, "release/gfx110X-all", [other])


def test_a_failed_record_does_not_go_with_its_set(store: MemoryStore, tmp_path: Path) -> None:
    made, _ = stage_torch(store, tmp_path, "2.9.0"), stage_torch(store, tmp_path, "2.9.1")
    bad = records.add(store, data_of(failed_record(made)))
    retain(store, "staging", Rule(last=1))
    backdate(store, "staging", 365)
    age(store, 365)
    gone = collect(store, older_than=timedelta(days=1)).keys
    assert keys.set_key(made.id, "set.json") in gone
    stage_torch(store, tmp_path, "2.9.0")
    with pytest.raises(RefusedError) as caught:
        promote(store, made.id, stack=stack_of(made), bypass=HURRY)
    assert "failed: boom" in caught.value.reasons[0]
    # Nor does it where somebody takes the file away.
    store.delete(keys.set_key(made.id, f"records/{bad.digest}.json"))
    with pytest.raises(RefusedError) as caught:
        promote(store, made.id, stack=stack_of(made), bypass=HURRY)
    assert f"the record {bad.digest[:12]}, failed, was given" in caught.value.reasons[0]
    assert "is not in the store any more" in caught.value.reasons[0]
    records.answer(store, made.id, bad.digest, who="ann", reason="the disk was full")
    assert promote(store, made.id, stack=stack_of(made), records=[given(record_of(made))]).caveat


def test_a_night_is_yanked_whole_with_what_is_yet_to_be_staged(store: MemoryStore, tmp_path: Path) -> None:
    first = stage_torch(store, tmp_path, "2.9.0")
    released(store, first)
    night = manifest_of(store, first.manifest_sha256[:8])
    done = yank(store, night, reason="a bad compiler")
    assert {(place.index, place.set_id) for place in done.indexes} == {
        ("staging", first.id),
        ("release", first.id),
    }
    assert set(offered(store).values()) == {"a bad compiler"}
    with pytest.raises(GateError, match="was yanked"):
        stage_torch(store, tmp_path, "2.9.1")
    with pytest.raises(UsageError, match="was yanked with its night: a bad compiler"):
        lift(store, first.id, by="ann", reason="this one is good")
    lift(store, night, by="ann", reason="it was the driver")
    assert set(offered(store).values()) == {None}
    stage_torch(store, tmp_path, "2.9.1")


def test_a_night_is_named_by_its_id_too(store: MemoryStore, tmp_path: Path) -> None:
    made = stage_torch(store, tmp_path, "2.9.0")
    store.write("nights/20261123/night.json", b'{"manifest_sha256": "%s"}' % made.manifest_sha256.encode())
    assert manifest_of(store, "20261123") == made.manifest_sha256
    with pytest.raises(StoreError, match="has no night 'zzzz'"):
        manifest_of(store, "zzzz")
    assert manifest_of(store, "d" * 64) == "d" * 64  # of a night that is yet to be staged


def test_a_yank_and_a_promotion_at_once_end_in_a_yanked_set(store: MemoryStore, tmp_path: Path) -> None:
    made = stage_torch(store, tmp_path, "2.9.0")
    # Between the last look at the ledger and the write that decides; the first makes the pointer.
    meddled = Meddled(store, lambda it: yank(it, made.id, reason="wrong results"), first=2)
    released(meddled, made)
    assert set(offered(meddled).values()) == {"wrong results"}


def test_an_older_store_begins_its_ledger_from_what_its_indexes_tell(
    released: MemoryStore, sets: dict[str, WheelSet], tmp_path: Path
) -> None:
    yank(released, sets["2.9.0"].id, reason="wrong results")
    records.add(released, data_of(failed_record(sets["2.10.0"])))
    rollback(released, "release", "0")
    for key in [key for key in released.objects if key.startswith("ledger/")]:
        released.delete(key)
    # What it would begin with counts before anybody writes it.
    before = contents(released)
    with pytest.raises(GateError, match="was yanked"):
        promote(released, sets["2.9.0"].id, stack=stack_of(sets["2.9.0"]), bypass=HURRY)
    other = make_wheel(tmp_path, "torch", "2.10.0", content="EVIL = 1")
    with pytest.raises(NameTakenError):
        publish(released, "dev", [other])
    assert contents(released) == before
    publish(released, "dev", [make_wheel(tmp_path, "alone", "1.0")])
    first, second, third = (entry for _, entry in Ledger(released).entries())
    assert {event.kind for event in first.events} == {"ban", "record", "begin"}
    assert {event.index for event in first.events if event.kind == "begin"} == {"release", "staging"}
    assert "torch-2.8.0-py3-none-any.whl" in first.names[""]
    assert list(second.names[""]) == ["alone-1.0-py3-none-any.whl"]
    assert [(event.kind, event.index) for event in third.events] == [("begin", "dev")]
    assert Ledger(released).ban(sets["2.9.0"].id) is not None


def test_a_ledger_made_anew_knows_projects_that_grew_bit_by_bit(store: MemoryStore, tmp_path: Path) -> None:
    wheels = [make_wheel(tmp_path, "alone", f"1.{number}") for number in range(12)]
    publish(store, "staging", wheels[:11])
    publish(store, "staging", wheels[11:])
    parts = [data for key, data in contents(store).items() if "/parts/" in key]
    assert any(b"project-change" in data for data in parts)
    for key in [key for key in store.objects if key.startswith("ledger/")]:
        store.delete(key)
    publish(store, "dev", [make_wheel(tmp_path, "other", "1.0")])
    names = {name for _, entry in Ledger(store).entries() for name in entry.names.get("", {})}
    assert {wheel.name for wheel in wheels} <= names


def has_other_bytes(store: MemoryStore, name: str, digit: str) -> bool:
    """Whether the ledger has a name with other bytes than those with this sha256."""
    try:
        ref = FileRef(filename=name, sha256=digit * 64)
        Ledger(store).refuse_banned_files({}, (), files_by_index={"staging": [ref]})
    except NameTakenError:
        return True
    return False


def note(number: int) -> Event:
    return Event(kind="ban", set_id=f"{number:064x}", who="ann", when="2026-11-23T00:00:00Z", why="bad")


def test_two_writers_take_two_numbers_and_neither_is_lost(store: MemoryStore) -> None:
    numbers = iter(range(3))
    meddled = Meddled(
        store, lambda it: Ledger(it).add(events=[note(next(numbers))]), at="^ledger/entries/", times=3
    )
    Ledger(meddled).add(events=[note(9)])
    entries = [entry for _, entry in Ledger(meddled).entries()]
    assert [entry.number for entry in entries] == list(range(5))
    for number in (0, 1, 2, 9):
        assert Ledger(meddled).ban(f"{number:064x}") == note(number)


def test_two_writers_of_one_name_do_not_both_have_it(store: MemoryStore) -> None:
    name = "a-1.0-py3-none-any.whl"
    meddled = Meddled(store, lambda it: Ledger(it).add(names={"": {name: "1" * 64}}), at=SECOND)
    with pytest.raises(NameTakenError):
        Ledger(meddled).add(names={"": {name: "2" * 64}})
    assert not has_other_bytes(meddled, name, "1")


def test_a_lost_reply_is_no_second_entry(store: MemoryStore) -> None:
    forgetful = Forgetful(store, at=SECOND)
    Ledger(forgetful).add(events=[note(1)])
    assert forgetful.lost
    assert len(list(Ledger(forgetful).entries())) == 2


def test_a_writer_that_dies_anywhere_leaves_a_ledger_that_goes_on(store: MemoryStore) -> None:
    Ledger(store).add(events=[note(1)], names={"": {"a-1.0-py3-none-any.whl": "1" * 64}})
    more = {"": {"b-1.0-py3-none-any.whl": "2" * 64}}
    whole = MemoryStore(store.objects)
    Ledger(whole).add(events=[note(2)], names=more)
    deaths = list(dying(store, lambda it: Ledger(it).add(events=[note(2)], names=more)))
    assert len(deaths) == 4
    for left, after in deaths:
        noted = left > 0  # from the entry on it counts, whatever is still to be written
        assert (Ledger(after).ban(note(2).set_id) is not None) == noted
        assert has_other_bytes(after, "b-1.0-py3-none-any.whl", "3") == noted
        Ledger(after).add(events=[note(3), note(2)], names=more)
        assert contents(after, "ledger/names") == contents(whole, "ledger/names")
        assert all(Ledger(after).ban(note(n).set_id) == note(n) for n in (1, 2, 3))
        assert len(list(Ledger(after).entries())) == 3 if not noted else 4


def test_an_entry_that_is_lost_or_changed_is_seen_by_whoever_reads_on(store: MemoryStore) -> None:
    for number in range(4):
        Ledger(store).add(events=[note(number)])
    whole = dict(store.objects)
    key = keys.ledger_entry_key(2)
    store.write(key, store.read(key).data.replace(b'"bad"', b'"good"'))
    with pytest.raises(StoreError, match=r"00000003\.json is not the entry that follows"):
        list(Ledger(store).entries())
    swapped = MemoryStore(whole)
    swapped.write(key, whole[keys.ledger_entry_key(3)])
    with pytest.raises(StoreError, match=r"00000002\.json is not the entry that follows"):
        list(Ledger(swapped).entries())


def test_a_ledger_without_its_end_is_damaged(store: MemoryStore, tmp_path: Path) -> None:
    stage_torch(store, tmp_path, "2.9.0")
    for number in range(3):
        Ledger(store).add(events=[note(number)])
    entries = [key for key in store.objects if key.startswith("ledger/entries/")]
    whole = store.read(entries[-1]).data
    store.write(entries[-1], whole.replace(b'"who":"', b'"who":"x'))
    assert [problem.said for problem in audit(store).problems] == [
        f"{entries[-1]} was changed: restore it from a copy"
    ]
    store.delete(entries[-1])
    assert [problem.said for problem in audit(store).problems] == [
        f"the ledger had {len(entries)} entries, and has {len(entries) - 1}: restore it from a copy"
    ]
    for key in (*entries[:-1], keys.LEDGER_HEAD):
        store.delete(key)
    assert [problem.said.partition(": ")[0] for problem in audit(store).problems] == [
        "the ledger is gone, and staging was published into",
        "the ledger has lost its entries",
    ]


def test_what_is_looked_up_can_be_made_again_from_the_entries(store: MemoryStore) -> None:
    for number in range(3):
        Ledger(store).add(events=[note(number)], names={"": {f"a-{number}-py3-none-any.whl": "1" * 64}})
    whole = contents(store, "ledger/")
    older = json.loads(whole[keys.LEDGER_HEAD]) | {"lookups": None}  # as an earlier Cairn wrote it
    store.write(keys.LEDGER_HEAD, json.dumps(older).encode())
    for number, head_is_lost in ((7, False), (8, True)):
        for key in whole:
            if head_is_lost and "/entries/" not in key:
                store.delete(key)
        assert Ledger(store).ban(note(0).set_id) == note(0)
        Ledger(store).add(events=[note(number)])
        assert not [problem for problem in audit(store).problems if problem.code == "ledger"]
        assert {key: store.read(key).data for key in whole if key != keys.LEDGER_HEAD} == {
            key: data for key, data in whole.items() if key != keys.LEDGER_HEAD
        }


@pytest.mark.parametrize("what", ["/(sets|names)/", "head", "/(sets|names)/|head"])
@pytest.mark.parametrize("left", [None, b"", b'{"schema": "cairn.ledger-', b"null"])
def test_a_lookup_that_was_deleted_or_damaged_is_made_again_from_the_entries(
    store: MemoryStore, tmp_path: Path, left: bytes | None, what: str
) -> None:
    made = stage_torch(store, tmp_path / "a", "2.9.0")
    yank(store, made.id, reason="wrong results")
    rollback(store, "staging", "0")
    whole = contents(store, "ledger/")
    for key in (key for key in whole if re.search(what, key)):
        store.delete(key)
        if left is not None:
            store.write(key, left)
    assert audit(store).good is (left is None and what.endswith("head"))
    with pytest.raises(GateError, match="was yanked"):
        stage_torch(store, tmp_path / "a", "2.9.0")
    with pytest.raises(NameTakenError, match="was published with other bytes before"):
        stage_torch(store, tmp_path / "b", "2.9.0", content="EVIL = 1")
    lift(store, made.id, by="ann", reason="it was the driver")
    stage_torch(store, tmp_path / "a", "2.9.1")
    # That of the index is made again when somebody notes something of it.
    untouched = keys.ledger_set_key(subject_of("staging"))
    assert not [problem for problem in audit(store).problems if untouched not in problem.said]


def test_a_ledger_that_cannot_be_read_is_no_fault_of_who_typed_the_command(store: MemoryStore) -> None:
    Ledger(store).add(events=[note(1)])
    store.write(keys.ledger_entry_key(0), b"\xff{")
    with pytest.raises(StoreError, match=r"00000000\.json is not JSON"):
        list(Ledger(store).entries())


def test_a_ledger_of_a_newer_cairn_is_refused(store: MemoryStore) -> None:
    Ledger(store).add(events=[note(1)])
    store.write(keys.LEDGER_HEAD, store.read(keys.LEDGER_HEAD).data.replace(b"-head/1", b"-head/2"))
    with pytest.raises(UsageError, match=r"ledger-head/2") as caught:
        Ledger(store).add(events=[note(2)])
    assert "different version of Cairn" in (caught.value.tip or "")


def test_a_change_asks_the_ledger_a_handful_of_times_however_long_it_is(
    store: MemoryStore, tmp_path: Path
) -> None:
    asked = []
    publish(store, "dev", [make_wheel(tmp_path, "alone", "0.1")])
    for count in (1, 60):
        for number in range(count):
            Ledger(store).add(events=[note(100 * count + number)])
        counting = FaultyStore(store, Plan())
        publish(counting, "dev", [make_wheel(tmp_path, "alone", f"{count}.0")])
        reads = [key for kind, key in counting.plan.requests if kind == "read" and key.startswith("ledger/")]
        asked.append(len(reads))
    assert asked[0] == asked[1] <= 12
