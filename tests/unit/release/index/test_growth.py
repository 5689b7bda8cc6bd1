"""What a change writes is about what changed, however much an index has; what it offers is the same."""

from __future__ import annotations

import hashlib
import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.errors import StoreError
from cairn.release.history.rollback import rollback
from cairn.release.index import keys
from cairn.release.index.generation import FileEntry, ProjectState
from cairn.release.index.snapshot import Change, Index, Snapshot
from cairn.release.provenance import evidence
from cairn.store.memory import MemoryStore
from helpers.faults import FaultyStore, Plan
from helpers.release import commit

PROJECTS = ("torch", "triton")


def entry(name: str, version: str, yanked: str | None = None) -> FileEntry:
    filename = f"{name}-{version}-cp311-cp311-manylinux_2_28_x86_64.whl"
    digest = hashlib.sha256(filename.encode()).hexdigest()
    return FileEntry(
        filename=filename,
        sha256=digest,
        size=123_456_789,
        version=version,
        build=hashlib.sha256(version.encode()).hexdigest(),
        upload_time="2026-01-02T03:04:05.678901Z",
        needs=("numpy", "triton"),
        requires_python=">=3.10",
        metadata_sha256=digest,
        sets=(digest,),
        yanked=yanked,
    )


def promote(index: Index, number: int) -> None:
    def plan(now: Snapshot) -> Change:
        version = f"2.{number}.0+rocm7.10.0"
        return Change(projects={n: now.project(n).with_files((entry(n, version),)) for n in PROJECTS})

    commit(index, "promote", plan)


@pytest.fixture(scope="module")
def promoted() -> tuple[MemoryStore, list[int]]:
    """A store after 200 promotions, and the bytes of all parts after each."""
    store = MemoryStore()
    sizes = []
    for number in range(200):
        promote(Index(store, "release"), number)
        sizes.append(sum(found.size for found in store.list("release/parts/")))
    return store, sizes


def test_a_file_comes_to_its_place_among_many() -> None:
    every = [entry("torch", f"2.{number}.0") for number in range(40)]
    many = ProjectState(name="torch", files=()).with_files(tuple(reversed(every)))
    new = entry("torch", "2.9.1")
    assert many.with_files((new,)).files == (*every[:10], new, *every[10:])


def test_parts_of_200_promotions_grow_with_what_changes_and_are_read_in_a_few_requests(
    promoted: tuple[MemoryStore, list[int]],
) -> None:
    store, sizes = promoted
    offered = sum(len(msgspec.json.encode(p)) for p in Index(store, "release").load().projects())
    assert sizes[199] - sizes[99] < 1.35 * sizes[99]  # it was three times the first hundred
    assert sizes[199] < 6 * offered
    counted = FaultyStore(store, Plan())
    now = Index(counted, "release").load()
    begun = len(counted.plan.requests)
    assert len(now.project("torch").files) == 200
    assert len(counted.plan.requests) - begun <= 1 + math.log2(200)
    # A wheel is checked with the newest parts alone.
    counted = FaultyStore(store, Plan())
    name = entry("torch", "2.199.0+rocm7.10.0").filename
    found = evidence.offer(counted, "release", name)
    assert found.file == Index(store, "release").load().project("torch").file(name)
    assert [kind for kind, _ in counted.plan.requests] == ["read"] * 4  # pointer, generation, bin, part


def test_a_rollback_by_number_reads_no_generation_below_it(promoted: tuple[MemoryStore, list[int]]) -> None:
    counted = FaultyStore(MemoryStore(promoted[0].objects), Plan())
    assert rollback(counted, "release", "0000198", dry_run=True).to == 198
    read = [key for kind, key in counted.plan.requests if kind == "read" and "/generations/" in key]
    assert len(set(read)) == 3


def test_a_change_reads_each_page_once_and_writes_it_once(promoted: tuple[MemoryStore, list[int]]) -> None:
    counted = FaultyStore(MemoryStore(promoted[0].objects), Plan())
    promote(Index(counted, "release"), 200)
    for name in PROJECTS:
        for page in ("index.html", "index.json"):
            requests = [kind for kind, key in counted.plan.requests if key == f"release/simple/{name}/{page}"]
            assert requests == ["read", "write_if"]


@pytest.mark.parametrize("act", ["lose", "edit"])
def test_a_part_below_others_is_as_needed_as_they_are(
    promoted: tuple[MemoryStore, list[int]], act: str
) -> None:
    store = MemoryStore(promoted[0].objects)
    there = Index(store, "release")
    _, *below = there.parts_of(there.load().project_parts["torch"])
    key = keys.part_key("release", below[-1])
    if act == "lose":
        store.delete(key)
    else:
        store.write(key, store.read(key).data.replace(b"2.0.0", b"6.6.6"))
    with pytest.raises(StoreError, match="is lost" if act == "lose" else "was changed"):
        Index(store, "release").load().project("torch")
    with pytest.raises(StoreError, match="is lost" if act == "lose" else "was changed"):
        evidence.offer(store, "release", entry("torch", "2.1.0+rocm7.10.0").filename)


def test_parts_that_do_not_belong_together_are_no_state(promoted: tuple[MemoryStore, list[int]]) -> None:
    store = MemoryStore(promoted[0].objects)
    now = Index(store, "release").load().project_parts
    with pytest.raises(StoreError, match="is not a state of torch"):
        Index(store, "release").project(now["triton"], "torch")
    with pytest.raises(StoreError, match="is not a state of torch"):
        bins = now.put({"torch": now["triton"]}, Index(store, "release").put_part)
        forged = msgspec.structs.replace(Index(store, "release").load().generation, projects=bins)
        data = msgspec.json.encode(forged) + b"\n"
        digest = hashlib.sha256(data).hexdigest()
        store.write(keys.generation_key("release", forged.number, digest), data)
        pointer = Index(store, "release").load().pointer
        assert pointer is not None
        store.write(
            keys.state_key("release"), msgspec.json.encode(msgspec.structs.replace(pointer, digest=digest))
        )
        evidence.offer(store, "release", entry("torch", "2.1.0+rocm7.10.0").filename)


VERSIONS = st.integers(0, 40).map(lambda n: f"{n}.0")
STATES = st.dictionaries(VERSIONS, st.sampled_from([None, "bad"]), max_size=30)


@settings(max_examples=60, deadline=None)
@given(st.lists(STATES, min_size=1, max_size=12))
def test_every_state_is_read_as_it_was_written(states: list[dict[str, str | None]]) -> None:
    store = MemoryStore()
    digests: list[str] = []
    written: list[ProjectState] = []
    for serial, marks in enumerate(states, start=1):
        files = tuple(entry("torch", version, mark) for version, mark in marks.items())
        state = ProjectState(name="torch", files=(), serial=serial).with_files(files)
        digests.append(Index(store, "release").put_project(state, digests[-1] if digests else None))
        written.append(state)
    for digest, state in zip(digests, written, strict=True):
        there = Index(store, "release")
        assert there.project(digest, "torch") == state
        assert len(there.parts_of(digest)) <= 2 + math.log2(1 + max(map(len, states)))
