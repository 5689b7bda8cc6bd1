"""What nothing needs is collected; what anything may need, now or in a moment, is not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from cairn.errors import StoreError
from cairn.release.audit.audit import audit
from cairn.release.gc import collect
from cairn.release.history.retain import Rule, retain
from cairn.release.history.rollback import rollback
from cairn.release.index import commit, generation, keys
from cairn.release.index.generation import digest_of
from cairn.release.index.snapshot import Index
from cairn.release.publish.files import publish
from cairn.store.memory import MemoryStore
from cairn.wheels.wheelset import WheelSet
from helpers.nights import stage_night
from helpers.release import contents, keys_of, make_wheel, move

Sets = dict[str, WheelSet]
MONTH = timedelta(days=30)


def age(store: MemoryStore, days: float, prefix: str = "") -> None:
    """Have what is there be older."""
    for key in keys_of(store, prefix):
        store.modified[key] -= timedelta(days=days)


def backdate(store: MemoryStore, index: str, days: float) -> None:
    """Have the generations of an index say that they were made earlier, each under a name that fits."""
    there = Index(store, index)
    now = there.load()
    parent, pointer = None, now.pointer
    assert pointer is not None
    for _, found in reversed(list(there.chain(now))):
        when = datetime.fromisoformat(found.when) - timedelta(days=days)
        text = when.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        old = next(k for k in store.objects if k.startswith(f"{index}/generations/{found.number:08}"))
        data = generation.encode(msgspec.structs.replace(found, when=text, parent=parent))
        parent = digest_of(data)
        store.delete(old)
        store.write(keys.generation_key(index, found.number, parent), data)
    pointer = msgspec.structs.replace(pointer, digest=parent, rendered_digest=parent)
    store.write(keys.state_key(index), generation.encode(pointer))


def everything_is_a_year_old(store: MemoryStore) -> None:
    for index in ("staging", "release"):
        backdate(store, index, 365)
    age(store, 365)


def test_what_any_index_offers_stays_as_old_as_it_may_be(released: MemoryStore) -> None:
    everything_is_a_year_old(released)
    before = set(released.objects)
    done = collect(released, older_than=MONTH)
    gone = before - set(released.objects)
    # Parts of generations that counted until a year ago are all that goes.
    assert {keys.kind_of(key) for key in gone} == {"part"}
    assert set(done.keys) == gone
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


def test_what_a_publisher_has_put_and_not_yet_named_stays(released: MemoryStore, tmp_path: Path) -> None:
    everything_is_a_year_old(released)
    wheel = make_wheel(tmp_path, "fresh", "1.0")

    class Between(MemoryStore):
        """Another process collects between the bytes of a publisher and its commit."""

        collected = 0

        def write_if(self, key: str, data: bytes, *, etag: str | None) -> bool:
            if "/generations/" in key or key.endswith("state.json"):
                self.collected += 1
                collect(self, older_than=timedelta(days=1))
            return super().write_if(key, data, etag=etag)

    store = Between(released.objects)
    store.modified = released.modified
    publish(store, "staging", [wheel])
    assert store.collected > 1
    assert audit(store, hashes=True).good


@pytest.mark.parametrize("act", ["stage again", "roll back"])
def test_old_bytes_that_are_about_to_be_named_again_stay(
    nights: MemoryStore, sets: Sets, tmp_path: Path, act: str
) -> None:
    """A publisher finds the bytes of long ago, and puts none; a collector comes before it names them."""
    retain(nights, "staging", Rule(last=1))
    backdate(nights, "staging", 365)
    age(nights, 365)

    class Between(MemoryStore):
        armed = True

        def write_if(self, key: str, data: bytes, *, etag: str | None) -> bool:
            if "/generations/" in key and self.armed:
                self.armed = False
                collect(self, older_than=timedelta(days=1))
            return super().write_if(key, data, etag=etag)

    store = Between(nights.objects)
    store.modified = nights.modified
    if act == "stage again":
        stage_night(store, tmp_path, "2.8.0")
    else:
        number = next(
            found.number
            for _, found in Index(store, "staging").chain(Index(store, "staging").load())
            if sets["2.8.0"].id in found.sets
        )
        rollback(store, "staging", str(number))
    assert not store.armed
    report = audit(store, hashes=True)
    assert report.problems == ()
    assert sets["2.8.0"].id in Index(store, "staging").load().set_ids


def test_empty_pages_of_projects_that_are_gone_go(released: MemoryStore) -> None:
    rollback(released, "release", "0")
    age(released, 60, "release/simple/")
    collect(released, older_than=MONTH)
    assert keys_of(released, "release/simple/") == ["release/simple/index.html", "release/simple/index.json"]
    rollback(released, "release", "3")
    assert audit(released, hashes=True).good


def test_a_project_that_comes_again_while_its_empty_page_goes_has_its_page(released: MemoryStore) -> None:
    rollback(released, "release", "0")
    age(released, 60, "release/simple/")

    class Racing(MemoryStore):
        armed = True

        def delete(self, key: str) -> None:
            if key == "release/simple/torch/index.html" and self.armed:
                self.armed = False
                rollback(self, "release", "3")
            super().delete(key)

    store = Racing(released.objects)
    store.modified = released.modified
    collect(store, older_than=MONTH)
    assert not store.armed
    assert audit(store, hashes=True).good


def test_generations_and_what_is_not_ours_never_go(released: MemoryStore) -> None:
    released.write("notes.txt", b"")
    everything_is_a_year_old(released)
    kept = {key for key in released.objects if "/generations/" in key} | {"notes.txt"}
    collect(released, older_than=MONTH)
    assert kept <= set(released.objects)


@pytest.mark.parametrize(
    "damage",
    [
        lambda s: s.delete("release/state.json"),
        lambda s: s.write("release/state.json", b"{"),
        lambda s: s.delete(next(k for k in s.objects if k.startswith("release/generations/00000003"))),
        lambda s: s.delete(keys.part_key("release", Index(s, "release").load().generation.projects["torch"])),
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
    collect(nights, older_than=MONTH)
    assert keys_of(nights, f"sets/{'ab' * 32}/") == []
