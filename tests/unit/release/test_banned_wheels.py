"""A yanked set does not come back under another id: its wheels are remembered, whatever they come with."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cairn.errors import GateError, UsageError
from cairn.release import records
from cairn.release.audit.audit import audit
from cairn.release.history.rollback import rollback
from cairn.release.history.yank import lift, manifest_of, yank
from cairn.release.index.snapshot import Index
from cairn.release.new_version import next_stage
from cairn.release.promote import RefusedError, promote
from cairn.release.publish import stage
from cairn.release.publish.files import publish
from cairn.release.weighing import Bypass
from cairn.sources.manifest.manifest import Manifest
from cairn.store.memory import MemoryStore
from cairn.wheels.wheelset import WheelSet
from helpers.gate import AWAY, ON_GPU, at, data_of, failed_record, given, record_of, stack_of
from helpers.release import (
    PROJECTS,
    contents,
    make_set,
    make_wheel,
    projects_of,
    put,
    stage_set,
    statement_of,
)

HURRY = Bypass(who="ann", reason="hurry")


def staged(
    store: MemoryStore, *wheels: Path, index: str = "staging", needs: tuple[str, ...] = (), **place: Any
) -> WheelSet:
    return stage_set(store, index, make_set(wheels, **AWAY, **place), wheels, requirements=needs)


@pytest.fixture
def torch(store: MemoryStore, tmp_path: Path) -> Path:
    """A wheel, beside one that staging has by itself."""
    put(store, "staging", [make_wheel(tmp_path, "alone", "1.0")])
    return make_wheel(tmp_path, "torch", "2.9.0")


@pytest.fixture
def banned(store: MemoryStore, torch: Path) -> WheelSet:
    """A set that was yanked, and is in no index any more."""
    made = staged(store, torch)
    yank(store, made.id, reason="wrong results")
    rollback(store, "staging", "1")
    return made


def of_other_manifest(store: MemoryStore, wheel: Path) -> WheelSet:
    """The same wheel in a set of a manifest that is for fewer targets."""
    frozen = Manifest(
        stack="sample",
        line="main",
        projects=projects_of(*PROJECTS),
        targets=("cpu",),
        pythons=(AWAY["python"],),
        platform=AWAY["platform"],
    ).canonical()
    sha256 = hashlib.sha256(frozen).hexdigest()
    made = msgspec.structs.replace(make_set([wheel], **AWAY), manifest_sha256=sha256)
    statement = statement_of(made, [wheel], frozen)
    return stage.stage_set(store, "staging", made, [wheel], manifest=frozen, statement=statement)


def test_it_does_not_come_back_sealed_again_nor_with_more(
    store: MemoryStore, banned: WheelSet, torch: Path, tmp_path: Path
) -> None:
    triton = make_wheel(tmp_path, "triton", "3.5")
    user = make_wheel(tmp_path, "beta", "1.0", requires=["torch==2.9.0"])
    before = contents(store)
    for act in (
        lambda: staged(store, torch, needs=("alone",)),
        lambda: staged(store, torch, triton),
        lambda: of_other_manifest(store, torch),
        lambda: publish(store, "staging", [torch]),
        lambda: publish(store, "dev", [torch, user]),
        lambda: next_stage(store, banned.id, "rc1", tmp_path / "rc"),
    ):
        with pytest.raises(GateError, match="yanked, and may not come into an index") as caught:
            act()
        assert "wrong results" in caught.value.reasons[0]
        assert contents(store) == before
    lift(store, banned.id, by="ann", reason="it was the driver")
    assert staged(store, torch, needs=("alone",)).id != banned.id


def test_what_was_staged_before_the_yank_is_not_promoted(
    store: MemoryStore, torch: Path, tmp_path: Path
) -> None:
    publish(store, "dev", [torch])
    user = make_wheel(tmp_path, "beta", "1.0", requires=["torch==2.9.0"])
    closed = staged(store, user, index="dev")
    made = staged(store, torch)
    more = staged(store, torch, make_wheel(tmp_path, "triton", "3.5"))
    yank(store, made.id, reason="wrong results")
    for one, source in ((more, "staging"), (closed, "dev")):
        with pytest.raises(GateError, match="yanked, and may not come into an index"):
            promote(store, one.id, stack=stack_of(one), source=source, bypass=HURRY)


def test_a_set_that_shares_a_wheel_with_a_yanked_one_comes_in(store: MemoryStore, tmp_path: Path) -> None:
    triton = make_wheel(tmp_path, "triton", "3.5")
    first = staged(store, make_wheel(tmp_path, "torch", "2.9.0"), triton)
    yank(store, first.id, reason="wrong results")
    other = staged(store, make_wheel(tmp_path, "torch", "2.9.1"), triton)
    promote(store, other.id, stack=stack_of(other), records=[given(record_of(other))])
    assert other.id in Index(store, "release").load().set_ids


def test_what_is_the_same_by_wheels_is_yanked_with_it_wherever_it_is(
    store: MemoryStore, torch: Path, tmp_path: Path
) -> None:
    triton = make_wheel(tmp_path, "triton", "3.5")
    made, again = staged(store, torch), staged(store, torch, needs=("alone",))
    more = staged(store, torch, triton)
    final = make_wheel(tmp_path, "torch", "2.9.1")
    derived = msgspec.structs.replace(make_set([final], **AWAY), derived_from=made.id)
    derived = stage_set(store, "staging", derived, [final])
    other = staged(store, make_wheel(tmp_path, "torch", "2.9.2"), triton)
    promote(store, more.id, stack=stack_of(more), records=[given(record_of(more))])
    alike = {made.id, again.id, more.id, derived.id}

    def marked(index: str = "staging") -> set[str]:
        return {one.set_id for one in Index(store, index).load().sets() if one.yanked}

    before = contents(store)
    planned = yank(store, made.id, reason="wrong results", dry_run=True)
    assert {one.set_id for one in planned.indexes} == alike
    assert contents(store) == before
    yank(store, made.id, reason="wrong results")
    assert marked() == alike
    assert marked("release") == {more.id}
    assert other.id not in marked()
    with pytest.raises(UsageError, match=f"was yanked with the set {made.id[:12]}, whose wheels it has"):
        lift(store, again.id, by="ann", reason="this one is good")
    assert audit(store).good
    lift(store, made.id, by="ann", reason="it was the driver")
    assert marked() | marked("release") == set()


def test_what_is_banned_twice_is_lifted_twice(store: MemoryStore, torch: Path) -> None:
    made = staged(store, torch)
    night = manifest_of(store, made.manifest_sha256[:8])
    yank(store, made.id, reason="wrong results")
    yank(store, night, reason="a bad compiler")
    rollback(store, "staging", "1")
    lift(store, night, by="ann", reason="the compiler was good")
    with pytest.raises(GateError, match="which was yanked"):
        staged(store, torch, needs=("alone",))
    yank(store, night, reason="a bad compiler")
    lift(store, made.id, by="ann", reason="the driver")
    with pytest.raises(GateError, match="which was yanked"):
        of_other_manifest(store, torch)
    lift(store, night, by="ann", reason="the compiler was good")
    of_other_manifest(store, torch)


def test_lifting_a_ban_does_not_leave_an_untested_set_above_the_tested_one(
    store: MemoryStore, tmp_path: Path
) -> None:
    tested = staged(store, make_wheel(tmp_path, "torch", "2.9.0"), **ON_GPU)
    on_gpu = given(record_of(tested, hardware=("gfx942",)))
    promote(store, tested.id, stack=stack_of(tested), records=[on_gpu])
    yank(store, tested.id, reason="wrong results")
    newer = staged(store, make_wheel(tmp_path, "torch", "2.9.1"), **ON_GPU)
    promote(store, newer.id, stack=stack_of(newer), records=[given(record_of(newer))], bypass=HURRY)
    before = contents(store)
    refusal = f"release would offer the set {newer.id[:12]}, not tested on gfx942, above {tested.id[:12]}"
    for dry_run in (True, False):
        with pytest.raises(GateError, match=refusal):
            lift(store, tested.id, by="ann", reason="it was the driver", dry_run=dry_run)
    assert contents(store) == before
    # Either way that the message names.
    rolled = MemoryStore(store.objects)
    rollback(rolled, "release", "2")
    lift(rolled, tested.id, by="ann", reason="it was the driver")
    with pytest.raises(GateError, match=refusal):
        rollback(rolled, "release", "3")
    yank(store, newer.id, reason="nobody tested it")
    lift(store, tested.id, by="ann", reason="it was the driver")
    with pytest.raises(GateError, match=refusal):
        lift(store, newer.id, by="bob", reason="it works here")


def test_a_store_that_is_older_than_its_ledger_knows_the_wheels_too(store: MemoryStore, torch: Path) -> None:
    yank(store, staged(store, torch).id, reason="wrong results")
    for key in [key for key in store.objects if key.startswith("ledger/")]:
        store.delete(key)
    with pytest.raises(GateError, match="yanked, and may not come into an index"):
        staged(store, torch, needs=("alone",))


def test_a_failure_is_not_forgotten_where_the_set_is_sealed_again(
    store: MemoryStore, torch: Path, tmp_path: Path
) -> None:
    made, triton = staged(store, torch, **ON_GPU), make_wheel(tmp_path, "triton", "3.5")
    again = staged(store, torch, needs=("alone",), **ON_GPU)
    more = staged(store, torch, triton, **ON_GPU)
    bad = records.add(store, data_of(failed_record(made, started=at(-1))))
    for one in (again, more):
        with pytest.raises(RefusedError) as caught:
            promote(store, one.id, stack=stack_of(one), bypass=HURRY)
        why = f"the set {made.id[:12]} has the same wheels, and there is against it"
        assert why in str(caught.value.reasons)
        # What its own tests have shown needs nobody's word.
        on_gpu = given(record_of(one, hardware=("gfx942",)))
        own = {"target": "nightly", "records": [on_gpu], "dry_run": True}
        done = promote(store, one.id, stack=stack_of(one), **own)
        assert done.report is not None
        assert done.report.holds
    records.answer(store, made.id, bad.digest, who="ann", reason="the disk was full")
    host = [given(record_of(again))]
    assert promote(store, again.id, stack=stack_of(again), records=host, bypass=HURRY).caveat
