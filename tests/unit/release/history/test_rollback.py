"""An index gets the state of an earlier generation, by a new one."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from cairn.errors import StoreError, UsageError
from cairn.release.history import difference
from cairn.release.history.retain import Rule, retain
from cairn.release.history.rollback import rollback
from cairn.release.history.yank import lift, yank
from cairn.release.index import keys
from cairn.release.index.generation import FileRef
from cairn.release.index.snapshot import Change, Index, Snapshot
from cairn.release.ledger import Ledger
from cairn.release.ledger_entries import withdrawn_from
from cairn.store.memory import MemoryStore
from cairn.wheels.wheelset import WheelSet
from helpers.moments import Forgetful, Meddled
from helpers.release import Breaking, audit, commit, contents, keys_of, move

Sets = dict[str, WheelSet]


def versions(store: MemoryStore, name: str, index: str = "release") -> list[str]:
    plain: list[str] = json.loads(store.read(f"{index}/simple/{name}/index.json").data)["versions"]
    return plain


def names(refs: tuple[FileRef, ...]) -> list[str]:
    return [ref.filename.removesuffix("-py3-none-any.whl") for ref in refs]


def state(store: MemoryStore, index: str = "release") -> dict[str, object]:
    """What an index offers, whenever it was changed."""
    now = Index(store, index).load()
    return {p.name: p.files for p in now.projects()} | {s.set_id: s for s in now.sets()}


def test_a_rollback_gives_the_state_of_the_generation_that_is_named(nights: MemoryStore, sets: Sets) -> None:
    move(nights, sets["2.8.0"])
    before = state(nights)
    move(nights, sets["2.9.0"])
    done = rollback(nights, "release", "1", reason="wrong results of matmul")
    assert state(nights) == before
    assert (done.to, done.generation, done.changed) == (1, 3, True)
    assert names(done.difference.gone) == ["numpy-2.0", "torch-2.9.0", "torchvision-2.9.0", "triton-3.5"]
    assert (done.difference.back, done.difference.gone_sets) == ((), (sets["2.9.0"].id,))
    assert versions(nights, "torch") == ["2.8.0"]
    assert audit(nights, "release", hashes=True) == ()
    newest, *_ = difference.entries(nights, "release")
    assert (newest.action, newest.why) == ("rollback", "to 1: wrong results of matmul")


def test_what_was_rolled_back_comes_again_whole(released: MemoryStore) -> None:
    whole, before = state(released), contents(released)
    planned = rollback(released, "release", "1", dry_run=True)
    done = rollback(released, "release", "3")
    assert (done.changed, done.generation) == (False, 3)
    assert contents(released) == before
    assert rollback(released, "release", "1") == planned
    done = rollback(released, "release", "3")
    assert names(done.difference.back) == [
        *("numpy-2.0", "torch-2.10.0", "torch-2.9.0", "torchvision-2.10.0", "torchvision-2.9.0", "triton-3.5")
    ]
    assert state(released) == whole
    assert audit(released, "release", hashes=True) == ()


def test_to_generation_0_takes_everything_off(released: MemoryStore) -> None:
    rollback(released, "release", "0")
    assert state(released) == {}
    assert json.loads(released.read("release/simple/index.json").data)["projects"] == []
    assert audit(released, "release", hashes=True) == ()
    rollback(released, "release", "3")
    assert versions(released, "torch") == ["2.8.0", "2.9.0", "2.10.0"]


def test_a_set_or_a_date_names_a_generation(released: MemoryStore, sets: Sets) -> None:
    """A set that which brought it, a date the last of that day or before."""
    chain = [one for _, one in Index(released, "release").chain(Index(released, "release").load())]
    second = chain[1].when
    before = datetime.fromisoformat(second).astimezone(UTC) - timedelta(microseconds=1)
    for name, number in ((second, 2), (before.isoformat(), 1), (second[:10], 3)):
        assert rollback(released, "release", name, dry_run=True).to == number
    with pytest.raises(StoreError, match="had nothing yet before"):
        rollback(released, "release", "2020-01-01")
    assert rollback(released, "release", sets["2.9.0"].id[:8]).to == 2
    assert versions(released, "torch") == ["2.8.0", "2.9.0"]


def test_digits_may_begin_the_id_of_a_set(released: MemoryStore, sets: Sets) -> None:
    listed = Index(released, "release").load().set(sets["2.8.0"].id)
    ids = ("1234" + "f" * 60, "0002" + "f" * 60)
    change = Change(sets={i: msgspec.structs.replace(listed, set_id=i) for i in ids})
    commit(Index(released, "release"), "promote", lambda _: change)
    assert rollback(released, "release", "1234", dry_run=True).to == 4  # there is no generation 1234
    with pytest.raises(
        UsageError, match="0002 is the number of a generation, and the beginning of a set's id"
    ):
        rollback(released, "release", "0002", dry_run=True)
    assert rollback(released, "release", "0000002", dry_run=True).to == 2
    assert rollback(released, "release", "0002f", dry_run=True).to == 4
    with pytest.raises(StoreError, match="no generation 4321: 4 is its newest"):
        rollback(released, "release", "4321")


def test_a_number_too_short_for_an_id_lists_no_sets(
    released: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[str] = []
    folders = released.folders
    monkeypatch.setattr(released, "folders", lambda prefix: listed.append(prefix) or folders(prefix))
    assert rollback(released, "release", "2", dry_run=True).to == 2
    assert listed == []
    assert rollback(released, "release", "0002", dry_run=True).to == 2
    assert listed == ["sets/"]


NOTHING = "names no generation"


@pytest.mark.parametrize(
    ("to", "kind", "said"),
    [
        ("4", StoreError, "no generation 4: 3 is its newest"),
        ("ffffffff", StoreError, "never had a set ffffffff"),
        *(
            (to, UsageError, NOTHING)
            for to in ("yesterday", "2026-13-45", "9999-12-31", "9999-12-31T23:59:59.999999", "", "-1")
        ),
    ],
)
def test_what_names_no_generation_is_refused(
    released: MemoryStore, to: str, kind: type[Exception], said: str
) -> None:
    before = contents(released)
    with pytest.raises(kind, match=said):
        rollback(released, "release", to)
    assert contents(released) == before


@pytest.mark.parametrize("reason", ["", " ", "a\nb", "a\x1b[2J", "\u202eabc"])
def test_a_reason_that_cannot_be_shown_is_refused(released: MemoryStore, reason: str) -> None:
    with pytest.raises(UsageError, match="a reason is needed"):
        rollback(released, "release", "1", reason=reason)


@pytest.mark.parametrize("suffix", [".whl", ".whl.metadata", "set.json"])
@pytest.mark.parametrize("damage", ["lost", "changed"])
def test_what_is_not_in_the_store_as_it_was_does_not_come_back(
    released: MemoryStore, sets: Sets, suffix: str, damage: str
) -> None:
    rollback(released, "release", "1")
    key = next(
        key
        for key in released.objects
        if key.endswith(suffix) and ("torch-2.9.0-" in key or sets["2.9.0"].id in key)
    )
    if damage == "lost":
        released.delete(key)
    else:
        released.write(key, released.read(key).data.replace(b"2.9.0", b"6.6.6") + b" ")
    before = contents(released)
    with pytest.raises(Exception, match=key.rpartition("/")[2] if suffix != "set.json" else "set"):
        rollback(released, "release", "3")
    assert contents(released) == before


@pytest.mark.parametrize("retained", [False, True])
def test_yanks_made_since_are_not_forgotten(released: MemoryStore, sets: Sets, *, retained: bool) -> None:
    """Nor is one of a set that has gone meanwhile."""
    bad = sets["2.8.0"].id
    yank(released, bad, reason="wrong results")
    if retained:
        retain(released, "release", Rule(last=1))
        assert bad not in Index(released, "release").load().set_ids
    assert rollback(released, "release", "2", dry_run=True).still_yanked == (bad,)
    rollback(released, "release", "2")
    now = Index(released, "release").load()
    assert now.set(bad).yanked == "wrong results"
    assert [f.yanked for f in now.project("torch").files] == ["wrong results", None]
    assert audit(released, "release", hashes=True) == ()


def test_a_yank_that_was_taken_back_since_stays_taken_back(released: MemoryStore, sets: Sets) -> None:
    yank(released, sets["2.8.0"].id, reason="wrong results")
    lift(released, sets["2.8.0"].id, by="ann", reason="fixed")
    rollback(released, "release", "4")
    assert Index(released, "release").load().set(sets["2.8.0"].id).yanked is None


def test_what_comes_back_is_offered_before_what_it_replaces_goes(nights: MemoryStore, sets: Sets) -> None:
    move(nights, sets["2.8.0"])
    rollback(nights, "release", "0")
    move(nights, sets["2.9.0"])
    watched = Watched(nights)
    done = rollback(watched, "release", "1")
    assert (len(done.difference.gone), len(done.difference.back)) == (4, 4)
    assert watched.seen > 10
    assert watched.mixed == []
    assert versions(watched, "torch") == ["2.8.0"]
    assert [entry.action for entry in difference.entries(watched, "release")][:2] == ["rollback", "rollback"]


class Watched(Breaking):
    """A store that notes each moment at which no torch on its page has the triton it needs."""

    def __init__(self, before: MemoryStore) -> None:
        super().__init__(before, left=1000)
        self.mixed: list[str] = []
        self.seen = 0

    def write_if(self, key: str, data: bytes, *, etag: str | None) -> bool:
        done = super().write_if(key, data, etag=etag)
        for kind in ("json", "html"):
            torch, triton = (self.page(name, kind) for name in ("torch", "triton"))
            whole = [v for v, t in (("2.8.0", "3.4"), ("2.9.0", "3.5")) if f"-{v}-" in torch]
            pairs = {"2.8.0": "-3.4-", "2.9.0": "-3.5-"}
            self.seen += 1
            if not whole or any(pairs[v] not in triton for v in whole):
                self.mixed.append(key)
        return done

    def page(self, name: str, kind: str) -> str:
        return self.read(f"release/simple/{name}/index.{kind}").data.decode()


def test_what_a_different_writer_brings_meanwhile_goes_too_and_is_named(
    nights: MemoryStore, sets: Sets
) -> None:
    move(nights, sets["2.8.0"])
    move(nights, sets["2.9.0"])
    meddled = Meddled(nights, lambda it: move(it, sets["2.10.0"]))
    done = rollback(meddled, "release", "1")
    assert "torch-2.10.0" in names(done.difference.gone)
    assert done.generation == 4
    assert versions(meddled, "torch") == ["2.8.0"]
    assert audit(meddled, "release", hashes=True) == ()


def test_no_promotion_comes_between_a_rollback_and_the_note_of_it(released: MemoryStore, sets: Sets) -> None:
    withdrawn = []

    class Watched(MemoryStore):
        def write_if(self, key: str, data: bytes, *, etag: str | None) -> bool:
            if key == "release/state.json":
                withdrawn.append(withdrawn_from(Ledger(self).history(sets["2.10.0"].id), "release"))
            return super().write_if(key, data, etag=etag)

    rollback(Watched(released.objects), "release", "2")
    assert withdrawn
    assert None not in withdrawn


def test_a_lost_reply_is_not_nothing_to_do(released: MemoryStore) -> None:
    done = rollback(Forgetful(released, at="release/state.json"), "release", "1")
    assert (done.changed, done.generation) == (True, 4)


def test_what_was_lost_cannot_be_gone_back_through(nights: MemoryStore, released: MemoryStore) -> None:
    with pytest.raises(StoreError, match="there is no index release"):
        rollback(nights, "release", "1")
    (second,) = keys_of(released, keys.generations_prefix("release") + "00000002")
    released.delete(second)
    with pytest.raises(StoreError, match="is lost"):
        rollback(released, "release", "1")


def test_a_project_that_was_given_a_status_since_gets_its_old_one(released: MemoryStore) -> None:

    def plan(now: Snapshot) -> Change:
        return Change(projects={"numpy": msgspec.structs.replace(now.project("numpy"), status="archived")})

    commit(Index(released, "release"), "publish", plan)
    rollback(released, "release", "3")
    assert Index(released, "release").load().project("numpy").status == "active"
