"""A generation names bins, which are read where they are needed, also in a store that Cairn 0.1 wrote."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.errors import StoreError
from cairn.release.audit.audit import audit
from cairn.release.gc import collect
from cairn.release.history import difference
from cairn.release.history.retain import Rule, retain
from cairn.release.history.rollback import rollback
from cairn.release.history.yank import yank
from cairn.release.index import generation, keys
from cairn.release.index.commit import render_all
from cairn.release.index.generation import Generation, IndexSet, digest_of
from cairn.release.index.marks import finish_interrupted
from cairn.release.index.names import Bin, FlatGeneration, Names, differing
from cairn.release.index.snapshot import Index, Snapshot, existing
from cairn.store.memory import MemoryStore
from cairn.store.protocol import ObjectInfo
from cairn.wheels.wheelset import WheelSet
from helpers.faults import EVERY_MOMENT
from helpers.moments import dying
from helpers.release import move

Sets = dict[str, WheelSet]


class Collected(MemoryStore):
    """A store of old objects, from which a part is collected just before or after it is looked at."""

    def __init__(self, before: MemoryStore, when: str) -> None:
        super().__init__(before.objects)
        self.modified = dict.fromkeys(self.objects, datetime(2026, 1, 1, tzinfo=UTC))
        self.when = when

    def stat(self, key: str) -> ObjectInfo | None:
        when, self.when = self.when, ""
        if when == "before":
            del self.objects[key]
        info = super().stat(key)
        if when == "after":
            del self.objects[key]
        return info


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_part_that_is_collected_once_it_was_found_is_written_again(
    released: MemoryStore, when: str
) -> None:
    index, store = Index(released, "release"), Collected(released, when)
    digest = next(digest for digest in index.load().generation.projects if digest)
    assert Index(store, "release").put_part(index.part(digest, Bin)) == digest
    assert keys.part_key("release", digest) in store.objects
    assert store.when == ""


COMMANDS: dict[str, Callable[[MemoryStore, Sets], object]] = {
    "promote": lambda store, sets: move(store, sets["2.10.0"]),
    "yank": lambda store, sets: yank(store, sets["2.9.0"].id, reason="wrong results"),
    "rollback": lambda store, _: rollback(store, "release", "1"),
    "retain": lambda store, _: retain(store, "release", Rule(last=1)),
    "collect": lambda store, _: collect(store, older_than=timedelta(days=30)),
    "repair": lambda store, _: repair(store),
}


def repair(store: MemoryStore) -> None:
    for index in existing(store):
        render_all(Index(store, index))
    finish_interrupted(store)


def as_cairn_0_1_wrote_it(store: MemoryStore, index: str) -> None:
    """Have every generation of an index name each part, and have no bins."""
    there = Index(store, index)
    now = there.load()
    digests = {0: "0" * 64}
    bins = set[str]()
    for digest, made in reversed(list(there.chain(now))):
        state = there.at(made, digest)
        sets = (msgspec.structs.replace(entry, derived_from=None) for entry in state.sets())
        plain = {field: getattr(made, field) for field in FIELDS} | {
            "parent": digests[made.number - 1] if made.number > 1 else None,
            "projects": dict(sorted(state.project_parts.items())),
            "sets": {entry.set_id: there.put_part(entry) for entry in sets},
        }
        old = msgspec.json.encode({"schema": "cairn.generation/1", **plain}) + b"\n"
        store.delete(keys.generation_key(index, made.number, digest))
        store.write(keys.generation_key(index, made.number, digest_of(old)), old)
        digests[made.number] = digest_of(old)
        bins |= {*made.projects, *made.sets}
    for digest in filter(None, bins):
        store.delete(keys.part_key(index, digest))
    assert now.pointer is not None
    pointer = msgspec.structs.replace(
        now.pointer, digest=digests[now.pointer.generation], rendered_digest=digests[now.pointer.rendered]
    )
    store.write(keys.state_key(index), generation.encode(pointer))


# Those that generations of Cairn 0.1 have.
FIELDS = ("index", "number", "action", "who", "when", "change_id", "why", "serial", "ledger", "recent")


@pytest.fixture
def whole(nights: MemoryStore, sets: Sets) -> MemoryStore:
    """A store with two of its three sets in release."""
    for version in ("2.8.0", "2.9.0"):
        move(nights, sets[version])
    return nights


@pytest.fixture
def old(whole: MemoryStore) -> MemoryStore:
    """The same, as Cairn 0.1 wrote it."""
    store = MemoryStore(whole.objects)
    for index in ("staging", "release"):
        as_cairn_0_1_wrote_it(store, index)
    assert isinstance(Index(store, "release").load().generation, FlatGeneration)
    return store


def offered(store: MemoryStore) -> dict[str, object]:
    """What pip is offered of torch in release, with its marks."""
    page = json.loads(store.read("release/simple/torch/index.json").data)
    return {file["filename"]: file["yanked"] for file in page["files"]}


def log(store: MemoryStore) -> list[tuple[object, ...]]:
    entries = difference.entries(store, "release")
    return [(one.number, one.brought, one.removed, one.marked, one.projects) for one in entries]


def test_an_old_store_is_read_as_it_was(whole: MemoryStore, old: MemoryStore) -> None:
    for index in ("staging", "release"):
        new, before = (Index(store, index).load() for store in (whole, old))
        assert new.set_ids == before.set_ids
        assert list(new.projects()) == list(before.projects())
        assert [msgspec.structs.replace(one, derived_from=None) for one in new.sets()] == list(before.sets())
    assert log(whole) == log(old)
    assert audit(old, hashes=True).problems == ()


@pytest.mark.parametrize("command", COMMANDS)
def test_an_old_store_becomes_new_by_the_next_change_whenever_its_writer_dies(
    whole: MemoryStore, old: MemoryStore, sets: Sets, command: str
) -> None:
    after = MemoryStore(whole.objects)
    COMMANDS[command](after, sets)
    expected = [offered(whole), offered(after)]
    for left, dead in dying(old, lambda store: COMMANDS[command](store, sets)):
        chosen = list(COMMANDS) if EVERY_MOMENT else [list(COMMANDS)[left % len(COMMANDS)]]
        for name in chosen:
            store = MemoryStore(dead.objects)
            COMMANDS[name](store, sets)
            repair(store)
            report = audit(store, hashes=True)
            assert report.problems == (), (left, name)
            if name in ("collect", "repair"):
                assert offered(store) in expected, (left, name)
    COMMANDS[command](old, sets)
    now = Index(old, "release").load()
    if command in ("promote", "yank", "rollback", "retain"):
        assert not isinstance(now.generation, FlatGeneration)
        assert log(old)[0][1:] == log(after)[0][1:]
    assert offered(old) == expected[1]


LOST: dict[str, Callable[[MemoryStore, str], None]] = {
    "is lost": lambda store, key: store.delete(key),
    "was changed": lambda store, key: store.write(key, store.read(key).data[:99]),
}


@pytest.mark.parametrize("damage", LOST)
@pytest.mark.parametrize("field", ["projects", "sets"])
def test_a_damaged_bin_is_named_and_is_no_empty_index(
    whole: MemoryStore, sets: Sets, field: str, damage: str
) -> None:
    digest = next(filter(None, getattr(Index(whole, "release").load().generation, field)))
    LOST[damage](whole, keys.part_key("release", digest))
    before = dict(whole.objects)
    for name, work in COMMANDS.items():
        store = MemoryStore(before)
        with pytest.raises(StoreError, match=f"{digest}.json {damage}"):
            work(store, sets)
        if name != "yank":  # whose ban counts before any index says so
            changed = {key for key in store.objects if store.objects[key] != before.get(key)}
            assert {key for key in changed if key.startswith("release/state")} == set(), name
    snapshot = Index(whole, "release").load()
    with pytest.raises(StoreError, match=f"{digest}.json {damage}"):
        _ = (*snapshot.projects(), *snapshot.sets())


def test_a_bin_of_another_index_or_at_another_place_is_refused(whole: MemoryStore) -> None:
    index = Index(whole, "release")
    entries = {set_id: index.load().set(set_id) for set_id in index.load().set_ids}
    names = Names("release", "sets", (), index.part)
    many = {digest_of(bytes([n])): next(iter(entries.values())) for n in range(99)}
    bins = names.put(many, index.put_part)
    assert len(bins) > 1
    swapped = Names("release", "sets", (*bins[1:], bins[0]), index.part)
    for name in many:
        with pytest.raises(StoreError, match=r"is not bin [0-9]+ of the sets of release"):
            swapped.get(name)
    with pytest.raises(StoreError, match="no power of two"):
        Names("release", "sets", (*bins, ""), index.part)
    with pytest.raises(StoreError, match="131072 bins of sets, which are too many"):
        Names("release", "sets", ("",) * (1 << 17), index.part)
    projects = Index(whole, "release").load().generation.projects
    assert list(Names("release", "sets", projects, index.part)) == []  # of the other kind: it names no set


@pytest.mark.parametrize("fact", ["brought", "removed", "marked", "changed", "recent", "who"])
@pytest.mark.parametrize("number", [1, 2])
def test_a_generation_that_describes_another_change_than_it_made_is_found(
    whole: MemoryStore, sets: Sets, number: int, fact: str
) -> None:
    index = Index(whole, "release")
    pointer = index.load().pointer
    assert pointer is not None
    parent = None
    for _, made in reversed(list(index.chain(index.load()))):
        forged = msgspec.structs.replace(made, parent=parent)
        if made.number == number:
            more: dict[str, object] = {
                "changed": made.changed + 1,
                "recent": made.recent[1:],
                "who": "mallory",
            }
            more |= dict.fromkeys(("brought", "removed", "marked"), (sets["2.10.0"].id,))
            forged = msgspec.structs.replace(forged, **{fact: more[fact]})
        parent = digest_of(generation.encode(forged))
        whole.write(keys.generation_key("release", made.number, parent), generation.encode(forged))
    pointer = msgspec.structs.replace(pointer, digest=parent, rendered_digest=parent)
    whole.write(keys.state_key("release"), generation.encode(pointer))
    problems = [one for one in audit(whole).problems if "says of its change" in one.said]
    assert f"release/generations/{number:08}-" in problems[-1].where
    # What is told of a change is told again by the generation after it.
    assert len(problems) == (2 if number == 1 and fact == "recent" else 1)


NAMES = st.dictionaries(st.integers(0, 700), st.one_of(st.none(), st.sampled_from("ab")), max_size=400)


@settings(max_examples=30, deadline=None)
@given(st.lists(NAMES, min_size=1, max_size=6))
def test_bins_are_read_as_they_were_written(changes: list[dict[int, str | None]]) -> None:
    index, model, states = Index(MemoryStore(), "release"), dict[str, str](), list[dict[str, str]]()
    names: Names[str] = Names("release", "projects", (), index.part)
    written = []
    for change in changes:
        change_of_names = {f"project-{number}": value for number, value in change.items()}
        names = Names("release", "projects", names.put(change_of_names, index.put_part), index.part)
        model = {name: value for name, value in {**model, **change_of_names}.items() if value is not None}
        states.append(model)
        written.append(names)
    for state, names in zip(states, written, strict=True):
        assert dict(names) == state
        assert all((f"project-{number}" in names) == (f"project-{number}" in state) for number in range(701))
        for other_state, other in zip(states, written, strict=True):
            expected = {n for n in state.keys() | other_state.keys() if state.get(n) != other_state.get(n)}
            assert differing(names, other) == expected


def entry_of(number: int) -> IndexSet:
    return IndexSet(
        set_id=hashlib.sha256(b"%d" % number).hexdigest(),
        stack="pytorch",
        line="release/2.9",
        python="3.11",
        platform="linux_x86_64",
        family="gfx94X-dcgpu",
        targets=("gfx942",),
        manifest_sha256="0" * 64,
        projects={"torch": f"2.{number}.0"},
        added="2026-01-02T03:04:05.678901Z",
    )


def test_what_one_more_set_writes_stays_small() -> None:
    sizes = {}
    for count in (20, 2000):
        store = MemoryStore()
        index = Index(store, "staging")
        entries: Snapshot = index.load()
        made = {entry.set_id: entry for entry in map(entry_of, range(count))}
        bins = entries.set_entries.put(made, index.put_part)
        before = dict(store.objects)
        state = Generation(
            index="staging", number=1, parent=None, action="stage", who="", when="", change_id="", sets=bins
        )
        more = entry_of(count)
        index.at(state, "").set_entries.put({more.set_id: more}, index.put_part)
        new = sum(len(store.read(key).data) for key in store.objects if key not in before)
        sizes[count] = new + len(generation.encode(state))
    assert sizes[2000] < 40_000  # it was 270 kB
