"""What nothing needs is collected; what anything may need, now or in a moment, is not."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cairn.errors import CairnError, StoreError, UsageError
from cairn.release import gc
from cairn.release.audit.audit import audit
from cairn.release.gc import collect
from cairn.release.history.retain import Rule, retain
from cairn.release.history.rollback import rollback
from cairn.release.history.yank import yank
from cairn.release.index import commit, keys
from cairn.release.index.commit import recover, render_all
from cairn.release.index.snapshot import Index, Snapshot
from cairn.release.publish.files import publish
from cairn.store.memory import MemoryStore
from cairn.store.protocol import Store
from cairn.wheels.wheelset import WheelSet
from helpers.faults import Fault, FaultyStore, Plan
from helpers.moments import Meddled
from helpers.nights import age, backdate, everything_is_a_year_old, stage_night
from helpers.release import contents, keys_of, make_wheel, move

Sets = dict[str, WheelSet]
MONTH = timedelta(days=30)


def test_what_any_index_offers_stays_as_old_as_it_may_be(released: MemoryStore) -> None:
    released.write("notes.txt", b"not ours")
    everything_is_a_year_old(released)
    before = set(released.objects)
    done = collect(released, older_than=MONTH)
    gone = before - set(released.objects)
    # Parts of generations that counted until a year ago are all that goes: no generation does.
    assert {keys.kind_of(key) for key in gone} == {"part"}
    assert set(done.keys) == gone
    released.delete("notes.txt")
    assert audit(released, hashes=True).good


def test_what_was_retained_away_goes_once_the_time_is_over(released: MemoryStore, sets: Sets) -> None:
    for index in ("release", "staging"):
        retain(released, index, Rule(last=1))
    old = sets["2.8.0"].id
    age(released, 365)
    before = set(released.objects)
    collect(released, older_than=MONTH)
    assert set(released.objects) >= {key for key in before if key.startswith("files/")}
    for index in ("release", "staging"):
        backdate(released, index, 365)
    age(released, 365)
    planned = collect(released, older_than=MONTH, dry_run=True)
    assert f"sets/{old}/set.json" in planned.keys
    done = collect(released, older_than=MONTH)
    assert done == planned
    assert not [key for key in released.objects if old in key or "torch-2.8.0" in key or "numpy-1.0" in key]
    assert [key for key in released.objects if "triton-3.5" in key]
    report = audit(released, hashes=True)
    assert report.problems == ()
    assert report.keys["garbage"].count == 0
    with pytest.raises(StoreError, match="is lost"):
        rollback(released, "release", "3")


def test_what_can_still_be_rolled_back_to_stays(released: MemoryStore) -> None:
    everything_is_a_year_old(released)
    rollback(released, "release", "1")
    age(released, 20)
    collect(released, older_than=MONTH)
    rollback(released, "release", "3")
    assert audit(released, hashes=True).good


def test_a_writer_whose_clock_is_slow_does_not_make_the_past_look_older(
    released: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything_is_a_year_old(released)
    with monkeypatch.context() as patch:
        patch.setattr(commit, "now", lambda: "2001-01-01T00:00:00.000000Z")
        for index in ("release", "staging"):
            retain(released, index, Rule(last=1))
    collect(released, older_than=MONTH)
    rollback(released, "release", "3")
    rollback(released, "staging", "5")
    assert audit(released, hashes=True).good


def bins_of(snapshot: Snapshot, field: str) -> list[str]:
    """The keys of the bins of a generation."""
    digests = filter(None, getattr(snapshot.generation, field))
    return [keys.part_key(snapshot.index.name, digest) for digest in digests]


def parts_of(snapshot: Snapshot) -> set[str]:
    """The keys of the bins of a generation, and of the parts that they name."""
    digests = snapshot.project_parts.values()
    parts = {keys.part_key(snapshot.index.name, digest) for digest in digests}
    return parts.union(bins_of(snapshot, "projects"), bins_of(snapshot, "sets"))


def dead_after_the_pointer(store: MemoryStore, work: Callable[[Store], object]) -> None:
    """Have a writer do its work up to the pointer, and die before the first of its pages."""
    counted = FaultyStore(MemoryStore(store.objects), Plan())
    work(counted)
    pointed = counted.plan.requests.index(("write_if", "release/state.json"))
    with contextlib.suppress(CairnError):
        work(FaultyStore(store, Plan(Fault.FAILED, pointed + 2, 1_000_000)))
    pointer = Index(store, "release").load().pointer
    assert pointer is not None
    assert pointer.rendered < pointer.generation


AFTERWARDS: dict[str, Callable[[MemoryStore, Sets], object]] = {
    "recover": lambda s, _x: recover(Index(s, "release")),
    "yank": lambda s, x: yank(s, x["2.10.0"].id, reason="wrong"),
    "roll back": lambda s, _x: rollback(s, "release", "0"),
    "render": lambda s, _x: render_all(Index(s, "release")),
    "promote": lambda s, x: move(s, x["2.10.0"]),
    "retain": lambda s, _x: retain(s, "release", Rule(last=1)),
    "collect": lambda s, _x: collect(s, older_than=MONTH),
}


def died_a_year_ago(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody has retained one set of the release and died before the pages; then nothing has happened."""
    for index in ("release", "staging"):
        backdate(store, index, 400)
    with monkeypatch.context() as patch:
        year_ago = (datetime.now(UTC) - timedelta(days=365)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        patch.setattr(commit, "now", lambda: year_ago)
        dead_after_the_pointer(store, lambda s: retain(s, "release", Rule(last=1)))
    age(store, 365)


@pytest.mark.parametrize("parts", ["kept", "lost to an older gc"])
@pytest.mark.parametrize("act", AFTERWARDS)
def test_what_pages_still_show_stays_for_whoever_writes_them(
    released: MemoryStore, sets: Sets, monkeypatch: pytest.MonkeyPatch, act: str, parts: str
) -> None:
    died_a_year_ago(released, monkeypatch)
    if parts != "kept":
        needed = parts_of(Index(released, "release").load())
        for key in keys_of(released, "release/parts/"):
            if key not in needed:
                released.delete(key)
    else:
        collect(released, older_than=MONTH)
    AFTERWARDS[act](released, sets)
    recover(Index(released, "release"))
    assert audit(released, hashes=True).problems == ()


def test_what_pages_still_show_is_not_planned_to_go(
    released: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    died_a_year_ago(released, monkeypatch)
    pointer = Index(released, "release").load().pointer
    assert pointer is not None
    index, digest = Index(released, "release"), pointer.rendered_digest
    shown = index.at(index.generation(pointer.rendered, digest), digest)
    before = contents(released)
    planned = collect(released, older_than=MONTH, dry_run=True).keys
    assert not parts_of(shown) & set(planned)
    assert contents(released) == before


def test_what_a_publisher_has_put_and_not_yet_named_stays(released: MemoryStore, tmp_path: Path) -> None:
    """Another process collects between the bytes of a publisher and its commit."""
    everything_is_a_year_old(released)
    collected: list[bool] = []

    def collect_again(store: MemoryStore) -> None:
        if False not in collected:  # it writes the pages of what counts by now, before which it need not
            collected.append(False)
            collect(store, older_than=timedelta(days=1))
            collected[-1] = True

    store = Meddled(released, collect_again, at=r"/generations/|state\.json$", times=1000)
    publish(store, "staging", [make_wheel(tmp_path, "fresh", "1.0")])
    assert len(collected) > 1
    assert audit(store, hashes=True).good


@pytest.mark.parametrize("act", ["stage again", "roll back"])
def test_old_bytes_that_are_about_to_be_named_again_stay(
    nights: MemoryStore, sets: Sets, tmp_path: Path, act: str
) -> None:
    """A publisher finds the bytes of long ago, and puts none; a collector comes before it names them."""
    retain(nights, "staging", Rule(last=1))
    backdate(nights, "staging", 365)
    age(nights, 365)
    store = Meddled(nights, lambda it: collect(it, older_than=timedelta(days=1)), at="/generations/")
    bad = sets["2.8.0"].id
    if act == "stage again":
        stage_night(store, tmp_path, "2.8.0")
    else:
        index = Index(store, "staging")
        chain = index.chain(index.load())
        number = next(found.number for digest, found in chain if index.at(found, digest).has_set(bad))
        rollback(store, "staging", str(number))
    assert not store.left
    assert audit(store, hashes=True).problems == ()
    assert bad in Index(store, "staging").load().set_ids


def test_what_a_writer_has_renewed_while_the_collector_read_stays(nights: MemoryStore, sets: Sets) -> None:
    retain(nights, "staging", Rule(last=1))
    backdate(nights, "staging", 365)
    age(nights, 365)
    old = sets["2.8.0"]
    wheel = next(key for key in nights.objects if key.endswith("/torch-2.8.0-py3-none-any.whl"))
    renewed = (wheel, keys.set_key(old.id, "set.json"))

    def renew(step: str) -> None:
        if step.startswith("removing"):
            for key in renewed:
                nights.renew(key)

    done = collect(nights, older_than=MONTH, on_step=renew)
    of_set = {key for key in nights.objects if key.startswith(f"sets/{old.id}/")}
    assert {wheel, *of_set}.isdisjoint(done.keys)
    assert of_set >= {keys.set_key(old.id, name) for name in ("set.json", "manifest.json", "builder.json")}


@pytest.mark.parametrize("meanwhile", [False, True])
def test_empty_pages_of_projects_that_are_gone_go(released: MemoryStore, *, meanwhile: bool) -> None:
    """A project that comes again while its empty page goes has its page."""
    rollback(released, "release", "0")
    age(released, 60, "release/simple/")
    store = Meddled(
        released,
        lambda it: rollback(it, "release", "3"),
        kind="delete",
        at="^release/simple/torch/index.html",
        times=1 if meanwhile else 0,
    )
    collect(store, older_than=MONTH)
    assert not store.left
    if not meanwhile:
        root = ["release/simple/index.html", "release/simple/index.json"]
        assert keys_of(store, "release/simple/") == root
        rollback(store, "release", "3")
    assert audit(store, hashes=True).good


@pytest.mark.parametrize(
    "damage",
    [
        lambda s: s.delete("release/state.json"),
        lambda s: s.write("release/state.json", b"{"),
        lambda s: s.delete(next(k for k in s.objects if k.startswith("release/generations/00000003"))),
        lambda s: s.delete(keys.part_key("release", Index(s, "release").load().project_parts["torch"])),
        lambda s: s.delete(next(iter(bins_of(Index(s, "release").load(), "projects")))),
        lambda s: s.delete(next(iter(bins_of(Index(s, "release").load(), "sets")))),
    ],
)
def test_nothing_goes_while_it_is_not_known_what_an_index_needs(
    released: MemoryStore, damage: Callable[[MemoryStore], None]
) -> None:
    everything_is_a_year_old(released)
    damage(released)
    before = contents(released)
    with pytest.raises(StoreError):
        collect(released, older_than=MONTH)
    assert contents(released) == before


def test_a_set_that_lost_its_last_index_goes_whole(nights: MemoryStore, sets: Sets) -> None:
    move(nights, sets["2.8.0"])
    stray = keys.set_key("ab" * 32, "simple/index.html")
    nights.write(stray, b"")
    nights.write(keys.set_key("ab" * 32, "set.json"), b"{}")
    nights.modified[stray] = datetime.now(UTC) - timedelta(days=99)
    collect(nights, older_than=MONTH)
    assert nights.exists(stray)
    age(nights, 99, "sets/")
    nights.write(
        keys.set_key("ab" * 32, f"judgements/{'cd' * 32}.json"), b""
    )  # a gate that is asked just now
    collect(nights, older_than=MONTH)
    assert len(keys_of(nights, f"sets/{'ab' * 32}/")) == 3
    age(nights, 99, "sets/")
    collect(nights, older_than=MONTH)
    assert keys_of(nights, f"sets/{'ab' * 32}/") == []


def test_nothing_is_collected_that_a_writer_may_be_about_to_name(released: MemoryStore) -> None:
    before = contents(released)
    with pytest.raises(UsageError, match="what is younger than a day cannot be collected: 23:59:59 is less"):
        collect(released, older_than=timedelta(days=1) - timedelta(seconds=1))
    assert contents(released) == before


def test_what_a_shorter_time_has_taken_holds_up_no_longer_one(released: MemoryStore) -> None:
    retain(released, "release", Rule(last=1))
    for index in ("staging", "release"):
        backdate(released, index, 2)
    age(released, 2)
    assert collect(released, older_than=timedelta(days=1)).keys
    collect(released, older_than=MONTH)
    assert audit(released, hashes=True).good


def test_what_a_publisher_renews_while_others_are_removed_stays(
    nights: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large store takes minutes: each object is looked at right before it goes, and a set goes whole."""
    monkeypatch.setattr(gc, "_AT_ONCE", 1)
    retain(nights, "staging", Rule(last=1))
    backdate(nights, "staging", 365)
    age(nights, 365)
    planned = collect(nights, older_than=MONTH, dry_run=True).keys
    removed: list[str] = []
    delete = nights.delete

    def delete_and_renew(key: str) -> None:
        delete(key)
        removed.append(key)
        for other in planned if len(removed) == 1 else ():
            if other.startswith("files/") or other.endswith("/set.json"):
                nights.renew(other)

    monkeypatch.setattr(nights, "delete", delete_and_renew)
    assert {*collect(nights, older_than=MONTH).keys} == {*removed}
    # All that was renewed is there, and of each set all or nothing.
    of_others = {key for key in planned if key.startswith("files/") or key.endswith("/set.json")} - {*removed}
    assert len(of_others) > 1
    assert of_others <= nights.objects.keys()
    for key in of_others:
        beside = {other for other in planned if other.split("/")[:2] == key.split("/")[:2] and key[0] == "s"}
        assert beside <= nights.objects.keys()
    assert {key for key in planned if key.startswith("files/")} - of_others <= {removed[0]}
