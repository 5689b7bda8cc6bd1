"""The way back, the audit and the collector in a bucket."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from pathlib import Path

import pytest

from cairn.release.audit.audit import audit
from cairn.release.gc import collect
from cairn.release.history.retain import Rule, retain
from cairn.release.history.rollback import rollback
from cairn.release.history.yank import lift, yank
from cairn.release.index.restore import candidates, restore
from cairn.release.index.snapshot import Index
from cairn.retry import RetryPolicy
from cairn.store.buckets.bucket import BucketStore
from cairn.store.buckets.client import connect
from cairn.store.protocol import Store
from helpers.buckets import Server
from helpers.faults import Fault, FaultyStore, Plan
from helpers.nights import stage_nights
from helpers.release import make_sdist, make_set, make_wheel, move, put, stage_set

pytestmark = pytest.mark.slow


@pytest.fixture
def bucket(s3_server: Server) -> BucketStore:
    """A new bucket, and short waits."""
    connection = connect(f"s3://{s3_server.new_bucket()}", endpoint_url=s3_server.endpoint)
    return BucketStore(dataclasses.replace(connection, policy=RetryPolicy(attempts=4, wait=0.01)))


def test_a_night_is_taken_back_in_a_bucket(bucket: Store, tmp_path: Path) -> None:
    made, sets = stage_nights(tmp_path)
    for key, data in made.objects.items():
        bucket.write(key, data)
    for one in sets.values():
        move(bucket, one)
    assert audit(bucket, hashes=True).problems == ()
    assert yank(bucket, sets["2.8.0"].id, reason="wrong").changed
    assert rollback(bucket, "release", "1").still_yanked == (sets["2.8.0"].id,)
    assert rollback(bucket, "release", "3").changed
    assert retain(bucket, "release", Rule(last=1)).changed
    assert collect(bucket, older_than=timedelta(days=30)).keys == ()
    report = audit(bucket, hashes=True)
    assert report.problems == ()
    assert report.indexes["release"] == 7


def test_a_set_that_needs_an_sdist_is_staged_in_a_bucket(bucket: Store, tmp_path: Path) -> None:
    # What builds an sdist is in the archive itself, which is read back and forth.
    builder = make_wheel(tmp_path, "setuptools", "84.0")
    sdist = make_sdist(tmp_path, "rocm", "7.10.0", build_requires=["setuptools"])
    wheel = make_wheel(tmp_path, "torch", "2.9.0", requires=["rocm==7.10.0"])
    put(bucket, "staging", [builder, sdist])
    sealed = stage_set(bucket, "staging", make_set([wheel]), [wheel])
    assert {file.file_name for file in sealed.closure} == {builder.name, sdist.name}


def test_a_lost_pointer_is_found_and_restored_in_a_bucket(bucket: Store, tmp_path: Path) -> None:
    made, sets = stage_nights(tmp_path)
    for key, data in made.objects.items():
        bucket.write(key, data)
    move(bucket, sets["2.8.0"])
    bucket.delete("release/state.json")
    assert not audit(bucket).good
    (found,) = candidates(Index(bucket, "release"))
    restore(Index(bucket, "release"), found.name)
    assert audit(bucket, hashes=True).problems == ()


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.LOST_AND_REPEATED, Fault.REFUSED])
def test_a_lost_reply_to_the_pointer_is_not_nothing_to_do(
    bucket: Store, tmp_path: Path, fault: Fault
) -> None:
    staged, sets = stage_nights(tmp_path)
    for key, data in staged.objects.items():
        bucket.write(key, data)
    made = sets["2.8.0"].id
    move(bucket, sets["2.8.0"])
    for store in (bucket, counted := FaultyStore(bucket, Plan())):  # the parts are there from the second on
        assert yank(store, made, reason="wrong").changed
        assert lift(bucket, made, by="ann", reason="fixed").changed
    at = counted.plan.requests.index(("write_if", "release/state.json")) + 1
    faulty = FaultyStore(bucket, Plan(fault, at))
    done = yank(faulty, made, reason="wrong")
    assert faulty.plan.happened
    assert done.changed
    assert audit(bucket).problems == ()
