"""One request of each operation breaks, in each way: what was asked is done all the same, once."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from cairn.errors import NetworkError, StoreError
from cairn.retry import RetryPolicy
from cairn.store.buckets.bucket import BucketStore
from helpers.buckets import ENDPOINT
from helpers.faults import Fault, Plan
from helpers.faulty_server import FaultyServer
from helpers.release import keys_of

BREAKING = (Fault.LOST, Fault.CONFLICT, Fault.FAILED, Fault.BUSY, Fault.TRUNCATED)
BIG = os.urandom(11 << 20)  # three parts

Act = Callable[[BucketStore, Path], object]


def put(store: BucketStore, folder: Path, data: bytes) -> None:
    source = folder / "source"
    source.write_bytes(data)
    assert store.put_file("files/new", source)  # although the next try learns that someone was first


def fetched(store: BucketStore, key: str) -> bytes:
    with store.as_file(key) as path:
        return path.read_bytes()


def streamed(store: BucketStore) -> bytes:
    with store.open("big", start=1) as stream:
        return b"".join(iter(lambda: stream.read(100_000), b""))


READS: dict[str, tuple[Act, object]] = {
    "read": (lambda store, _: store.read("small").data, b"small"),
    "stat": (lambda store, _: store.exists("small"), True),
    "list": (lambda store, _: keys_of(store), ["big", "small"]),
    "open": (lambda store, _: streamed(store), BIG[1:]),
    "small file": (lambda store, _: fetched(store, "small"), b"small"),
    "big file": (lambda store, _: fetched(store, "big"), BIG),
}
WRITES: dict[str, tuple[Act, object]] = {
    "write": (lambda store, _: store.write("files/new", b"new"), b"new"),
    "put small": (lambda store, folder: put(store, folder, b"new"), b"new"),
    "put big": (lambda store, folder: put(store, folder, BIG), BIG),
}


def at_every_request(line: FaultyServer, fault: Fault, act: Callable[[], object]) -> list[object]:
    found = []
    for at in itertools.count(1):
        line.plan = Plan(fault, at)
        found.append(act())
        if not line.plan.happened:
            return found
    raise AssertionError


@pytest.mark.parametrize("fault", BREAKING, ids=lambda fault: fault.name)
@pytest.mark.parametrize("name", READS)
def test_what_is_read_over_a_broken_line_is_whole(
    store: BucketStore, behind: BucketStore, line: FaultyServer, tmp_path: Path, name: str, fault: Fault
) -> None:
    store.write("small", b"small")
    (tmp_path / "big").write_bytes(BIG)
    store.put_file("big", tmp_path / "big")
    act, expected = READS[name]
    assert all(found == expected for found in at_every_request(line, fault, lambda: act(behind, tmp_path)))


def test_a_stream_that_breaks_does_not_go_on_with_other_bytes(
    store: BucketStore, behind: BucketStore, line: FaultyServer, tmp_path: Path
) -> None:
    (tmp_path / "big").write_bytes(BIG)
    store.put_file("big", tmp_path / "big")
    line.plan = Plan(Fault.TRUNCATED, 1)
    stream = behind.open("big")
    (tmp_path / "big").write_bytes(BIG[::-1])
    store.put_file("big", tmp_path / "big")
    with stream, pytest.raises(StoreError, match="was changed meanwhile"):
        while stream.read(100_000):
            pass


@pytest.mark.parametrize("fault", BREAKING, ids=lambda fault: fault.name)
@pytest.mark.parametrize("name", WRITES)
def test_what_is_written_over_a_broken_line_is_there(
    store: BucketStore, behind: BucketStore, line: FaultyServer, tmp_path: Path, name: str, fault: Fault
) -> None:
    act, expected = WRITES[name]

    def once() -> None:
        store.delete("files/new")
        act(behind, tmp_path)
        assert store.read("files/new").data == expected

    at_every_request(line, fault, once)


@pytest.mark.parametrize("begun", [False, True])
def test_a_conditional_write_is_tried_again_until_its_answer_is_true(
    store: BucketStore, behind: BucketStore, line: FaultyServer, *, begun: bool
) -> None:
    for number, fault in enumerate((Fault.CONFLICT, Fault.FAILED, Fault.BUSY)):
        key = f"{number}/state.json"
        if begun:
            store.write(key, b"0")
        etag = store.read(key).etag if begun else None
        behind.write_if("tried", b"", etag=None)
        line.plan = Plan(fault, 1)
        assert behind.write_if(key, b"1", etag=etag)
        assert line.plan.happened
        assert store.read(key).data == b"1"


def test_a_conditional_write_whose_answer_was_lost_is_found_by_reading(
    store: BucketStore, behind: BucketStore, line: FaultyServer
) -> None:
    behind.write_if("tried", b"", etag=None)
    line.plan = Plan(Fault.LOST, 1)
    assert not behind.write_if("state.json", b"1", etag=None)
    assert store.read("state.json").data == b"1"
    line.plan = Plan(Fault.REFUSED, 1)
    assert not behind.write_if("state.json", b"2", etag=store.read("state.json").etag)
    assert store.read("state.json").data == b"1"


def test_a_server_that_is_silent_is_asked_again(
    store: BucketStore, impatient: BucketStore, line: FaultyServer
) -> None:
    store.write("a", b"1")
    line.plan = Plan(Fault.TIMEOUT, 1)
    assert impatient.read("a").data == b"1"
    assert len(line.plan.requests) == 2


@pytest.mark.parametrize("fault", [Fault.FAILED, Fault.BUSY, Fault.LOST], ids=lambda fault: fault.name)
def test_in_the_end_it_is_said_what_failed(behind: BucketStore, line: FaultyServer, fault: Fault) -> None:
    said: list[str] = []
    object.__setattr__(behind.bucket, "say", said.append)
    line.plan = Plan(fault, 1, times=99)
    with pytest.raises(NetworkError, match=line.endpoint) as raised:
        behind.read("a")
    assert "\n" not in str(raised.value)
    assert raised.value.tip
    assert len(line.plan.requests) == behind.bucket.policy.attempts
    assert [f"({n} of 2)" in line for n, line in enumerate(said, start=1)] == [True, True]


def test_a_server_that_ignores_conditions_is_refused_before_anything_is_lost(
    store: BucketStore, behind: BucketStore, line: FaultyServer
) -> None:
    if ENDPOINT in os.environ:
        pytest.skip("this server signs its headers, so that none can be dropped")
    line.plan = Plan()
    line.dropped = {"if-none-match"}
    try:
        with pytest.raises(StoreError, match="ignores If-None-Match: two writers at once would lose changes"):
            behind.write_if("state.json", b"1", etag=None)
        line.dropped = {"if-match"}
        with pytest.raises(StoreError, match="ignores If-Match"):
            behind.write_if("state.json", b"1", etag=None)
    finally:
        line.dropped = set()
    assert keys_of(store) == []
    assert list(store.strays()) == []
    assert behind.write_if("state.json", b"1", etag=None)
    line.plan = Plan()
    assert BucketStore(behind.bucket).write_if("a", b"1", etag=None)
    assert [kind for kind, _ in line.plan.requests] == ["HEAD", "PUT"]
    assert list(store.strays()) == []


def test_an_outage_that_ends_in_time_costs_nothing_but_time(
    store: BucketStore, behind: BucketStore, line: FaultyServer
) -> None:
    """A night waits ten minutes for its bucket, where a person is told after a quarter of one."""
    store.write("small", b"small")
    patient = structs.replace(RetryPolicy.lasting(600), wait=0.01)
    lines: list[str] = []
    waiting = BucketStore(dataclasses.replace(behind.bucket, policy=patient, say=lines.append))
    line.plan = Plan(Fault.BUSY, 1, times=6)
    assert waiting.read("small").data == b"small"
    assert len(lines) == 6
    assert all("trying again in" in text for text in lines)


def test_an_outage_that_does_not_end_is_waited_for_once(
    store: BucketStore, behind: BucketStore, line: FaultyServer
) -> None:
    """A step with a hundred requests would wait for a hundred times ten minutes, until its job is ended."""
    store.write("a", b"1")
    asked = []
    for away in (True, True, False):
        line.away, line.plan = away, Plan()
        if away:
            with pytest.raises(NetworkError):
                behind.read("a")
        else:
            assert behind.read("a").data == b"1"
        asked.append(len(line.plan.requests))
    assert asked == [behind.bucket.policy.attempts, 1, 1]
    line.plan = Plan(Fault.BUSY, 1)
    assert behind.read("a").data == b"1"  # it has answered: the next outage is waited for again
