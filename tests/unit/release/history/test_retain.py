"""Old sets go off an index; what anything names stays."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from cairn.errors import StoreError, UsageError
from cairn.files import sha256_of
from cairn.release.gc import collect
from cairn.release.history.retain import Rule, retain
from cairn.release.history.rollback import rollback
from cairn.release.history.yank import yank
from cairn.release.index.generation import MIRRORED
from cairn.release.index.snapshot import Change, Index, Snapshot
from cairn.release.publish import distribution
from cairn.release.publish.files import publish, publish_dists
from cairn.release.publish.mirror import publish_by_hash
from cairn.store.memory import MemoryStore
from cairn.wheels.wheelset import WheelSet
from helpers.nights import age, backdate
from helpers.release import audit, commit, contents, keys_of, make_set, make_wheel, move, stage_set

Sets = dict[str, WheelSet]


def offered(store: MemoryStore, index: str = "release") -> list[str]:
    files = [f.filename for p in Index(store, index).load().projects() for f in p.files]
    return [name.removesuffix("-py3-none-any.whl") for name in files]


def aged(store: MemoryStore, days: dict[str, int], index: str = "release") -> None:
    """Have sets be so many days old."""

    def plan(now: Snapshot) -> Change:
        sets = {}
        for set_id, old in days.items():
            added = (datetime.now(UTC) - timedelta(days=old)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            sets[set_id] = msgspec.structs.replace(now.set(set_id), added=added)
        return Change(sets=sets)

    commit(Index(store, index), "promote", plan)


def test_the_newest_stay_with_all_that_they_need(released: MemoryStore, sets: Sets) -> None:
    before, files = contents(released), keys_of(released, "files/")
    done = retain(released, "release", Rule(last=3))
    assert (done.changed, done.generation) == (False, 3)
    planned = retain(released, "release", Rule(last=2), reason="two are enough", dry_run=True)
    assert contents(released) == before
    assert retain(released, "release", Rule(last=2), reason="two are enough") == planned
    assert planned.difference.gone_sets == (sets["2.8.0"].id,)
    assert [ref.filename.partition("-py3")[0] for ref in planned.difference.gone] == [
        *("numpy-1.0", "torch-2.8.0", "torchvision-2.8.0", "triton-3.4")
    ]
    assert offered(released) == [
        *("numpy-2.0", "torch-2.9.0", "torch-2.10.0", "torchvision-2.9.0", "torchvision-2.10.0", "triton-3.5")
    ]
    retain(released, "release", Rule(last=1))
    assert offered(released) == ["numpy-2.0", "torch-2.10.0", "torchvision-2.10.0", "triton-3.5"]
    assert Index(released, "release").load().set_ids == (sets["2.10.0"].id,)
    assert audit(released, "release", hashes=True) == ()
    assert keys_of(released, "files/") == files


def test_days_keep_what_is_young_and_the_newest_in_any_case(released: MemoryStore, sets: Sets) -> None:
    aged(released, {sets["2.8.0"].id: 40, sets["2.9.0"].id: 20, sets["2.10.0"].id: 10})
    assert retain(released, "release", Rule(days=30), dry_run=True).difference.gone_sets == (
        sets["2.8.0"].id,
    )
    retain(released, "release", Rule(days=1))
    assert Index(released, "release").load().set_ids == (sets["2.10.0"].id,)


def test_neither_a_yanked_set_nor_one_of_another_kind_is_the_one_that_is_kept(
    released: MemoryStore, sets: Sets
) -> None:
    old, newer, newest = (sets[version].id for version in ("2.8.0", "2.9.0", "2.10.0"))
    other_kind, before = MemoryStore(released.objects), offered(released)

    def plan(now: Snapshot) -> Change:
        return Change(sets={old: msgspec.structs.replace(now.set(old), python="3.12")})

    commit(Index(other_kind, "release"), "promote", plan)
    retain(other_kind, "release", Rule(last=1))
    assert set(Index(other_kind, "release").load().set_ids) == {old, newest}
    yank(released, newest, reason="wrong results")
    retain(released, "release", Rule(last=1))
    assert set(Index(released, "release").load().set_ids) == {newest, newer}
    rollback(released, "release", "3")
    assert offered(released) == before


def test_what_is_to_be_kept_by_name_stays(released: MemoryStore, sets: Sets) -> None:
    done = retain(released, "release", Rule(last=1, keep=(sets["2.8.0"].id[:9],)))
    assert done.held == ((sets["2.8.0"].id, "--keep"),)
    assert "torch-2.8.0" in offered(released)
    assert "torch-2.9.0" not in offered(released)
    with pytest.raises(StoreError, match="has no set ffff"):
        retain(released, "release", Rule(last=1, keep=("ffff",)))


@pytest.mark.parametrize("how", ["set id", "hash", "pin"])
def test_what_a_lock_names_stays(released: MemoryStore, sets: Sets, how: str) -> None:
    made = sets["2.8.0"]
    torch = next(wheel for wheel in made.wheels if wheel.distribution == "torch")
    text = {
        "set id": f"# set {made.id}\n",
        "hash": f'wheels = [{{ hashes = {{ sha256 = "{torch.sha256}" }} }}]\n',
        "pin": "numpy==1.0\ntorch==2.8.0 ; sys_platform == 'linux'\n",
    }[how]
    key = "release/locks/main-cpu-3.11.txt"
    released.write(key, text.encode())
    done = retain(released, "release", Rule(last=1))
    assert done.held == ((made.id, key),)
    assert {"torch-2.8.0", "triton-3.4", "numpy-1.0"} <= set(offered(released))
    assert audit_of_files(released) == []


def audit_of_files(store: MemoryStore) -> list[str]:
    """The files that the index offers and the store does not have."""
    now = Index(store, "release").load()
    there = "\n".join(keys_of(store, "files/"))
    return [f.filename for p in now.projects() for f in p.files if f.filename not in there]


@pytest.mark.parametrize(("other", "stays"), [("release", True), ("prerelease", True), ("dev", False)])
def test_what_a_different_release_index_has_stays(
    nights: MemoryStore, sets: Sets, other: str, *, stays: bool
) -> None:
    for made in sets.values():
        move(nights, made, target="nightly")
    move(nights, sets["2.8.0"], target=other)
    done = retain(nights, "nightly", Rule(last=1))
    assert done.held == (((sets["2.8.0"].id, other),) if stays else ())
    assert ("torch-2.8.0" in offered(nights, "nightly")) == stays


def test_what_no_set_ever_needed_stays_with_what_it_needs(nights: MemoryStore, tmp_path: Path) -> None:
    publish(nights, "staging", [make_wheel(tmp_path, "tool", "1.0", requires=["numpy==1.0"])])
    wheel = distribution.read(make_wheel(tmp_path, "other", "1.0"))
    publish_dists(Index(nights, "staging"), [wheel], "mirror", build=MIRRORED)
    retain(nights, "staging", Rule(last=1))
    assert {"tool-1.0", "numpy-1.0", "other-1.0", "torch-2.10.0"} <= set(offered(nights, "staging"))
    assert not {"torch-2.8.0", "triton-3.4"} & set(offered(nights, "staging"))


def test_the_sdk_of_an_index_goes_with_the_last_set_that_needs_it(
    nights: MemoryStore, tmp_path: Path
) -> None:
    """A newer SDK needs projects of the same names, and holds none of the older files."""
    for number, version in enumerate(("7.10.0", "7.11.0")):
        sdk = [
            make_wheel(tmp_path / "sdk", "rocm-sdk-core", version),
            make_wheel(tmp_path / "sdk", "rocm", version, requires=[f"rocm-sdk-core=={version}"]),
        ]
        sha256s = {path.name: sha256_of(path) for path in sdk}
        publish_by_hash(Index(nights, "staging"), sha256s, lambda _names, _folder, sdk=sdk: sdk)  # type: ignore[misc]
        wheels = [make_wheel(tmp_path, "torch", f"2.{number}", requires=[f"rocm=={version}"])]
        stage_set(nights, "staging", make_set(wheels), wheels)
    retain(nights, "staging", Rule(last=1))
    assert offered(nights, "staging") == ["rocm-7.11.0", "rocm_sdk_core-7.11.0", "torch-2.1"]
    backdate(nights, "staging", 365)
    age(nights, 365)
    collect(nights, older_than=timedelta(days=30))
    assert not [key for key in keys_of(nights, "files/") if "7.10.0" in key]
    assert [key for key in keys_of(nights, "files/") if "rocm_sdk_core-7.11.0" in key]


@pytest.mark.parametrize("rule", [{}, {"last": 0}, {"days": 0}, {"last": 1, "days": 1}, {"last": -1}])
def test_a_rule_that_says_nothing_or_too_much_is_refused(rule: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="how much is to stay"):
        Rule(**rule)
