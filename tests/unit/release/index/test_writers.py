"""Two writers of one index at once: installers never meet what one adds and the other takes away, mixed."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from cairn.errors import StoreError
from cairn.release.index import keys, write
from cairn.release.index.commit import attempts, recover
from cairn.release.index.generation import Action, ProjectState
from cairn.release.index.snapshot import Change, Index, Snapshot
from cairn.store.memory import MemoryStore
from cairn.store.protocol import StoredObject
from helpers.gate import stage_torch
from helpers.release import Breaking, Broken, audit, commit, make_wheel, put


class Interrupted(MemoryStore):
    """A store in which something else happens just before the n-th write."""

    def __init__(self, before: MemoryStore, *, at: int, meanwhile: Callable[[MemoryStore], None]) -> None:
        super().__init__(before.objects)
        self.left, self.meanwhile, self.watch = at, meanwhile, lambda: None
        # What is written side by side waits: `meanwhile` gives the store other objects as a whole.
        self.one_at_a_time = threading.RLock()

    def write_if(self, key: str, data: bytes, *, etag: str | None) -> bool:
        with self.one_at_a_time:
            self.left -= 1
            if self.left == -1:
                self.meanwhile(self)
            done = super().write_if(key, data, etag=etag)
            self.watch()
            return done


def complete(store: MemoryStore) -> bool:
    """Whether each torch on its page has the triton it pins on that one's."""
    listed = {name: versions(store, name) for name in ("torch", "triton")}
    return listed["torch"] <= listed["triton"]


def versions(store: MemoryStore, name: str) -> set[str]:
    return set(json.loads(store.read(f"staging/simple/{name}/index.json").data)["versions"])


def change(store: MemoryStore, action: Action, state: MemoryStore) -> None:
    """Give the index of `store` the projects that it has in `state`."""
    wanted = list(Index(state, "staging").load().projects())

    def plan(now: Snapshot) -> Change:
        return Change(projects={p.name: p for p in wanted if now.project(p.name).files != p.files})

    commit(Index(store, "staging"), action, plan)


@pytest.fixture
def states(tmp_path: Path) -> list[MemoryStore]:
    """An index before and after it gains a torch with the triton it needs."""
    found = []
    store = MemoryStore()
    for version in ("1.0", "2.0"):
        wheels = [make_wheel(tmp_path, "triton", version)]
        wheels += [make_wheel(tmp_path, "torch", version, requires=[f"triton=={version}"])]
        put(store, "staging", wheels)
        found.append(MemoryStore(store.objects))
    return found


@pytest.mark.parametrize("dies_after", range(8))
def test_pages_of_a_writer_that_adds_and_of_one_that_removes_are_never_mixed(
    states: list[MemoryStore], dies_after: int
) -> None:
    first, second = states
    mixed = []
    for at in range(12):

        def remove(store: MemoryStore) -> None:
            """A different process takes away what was just added, and dies on its way."""
            recover(Index(store, "staging"))
            dying = Breaking(store, left=dies_after)
            with contextlib.suppress(Broken):
                change(dying, "rollback", first)
            store.objects, store.modified = dying.objects, dying.modified

        store = Interrupted(MemoryStore(first.objects), at=at, meanwhile=remove)
        store.watch = lambda store=store, at=at: mixed.append(at) if not complete(store) else None
        put_all(store, second)
        recover(Index(store, "staging"))
        assert audit(store, "staging", hashes=False) == ()
    assert mixed == []


def put_all(store: MemoryStore, state: MemoryStore) -> None:
    for key, data in state.objects.items():
        if key.startswith("files/"):
            store.write(key, data)
    change(store, "publish", state)


def test_the_first_change_of_an_index_is_not_made_over_that_of_another_writer(tmp_path: Path) -> None:
    store = MemoryStore()
    attempt = next(attempts(Index(store, "staging")))
    put(store, "staging", [make_wheel(tmp_path, "torch", "1.0")])
    empty = Change(projects={"torch": ProjectState(name="torch", files=())})
    assert not attempt.commit(empty, "publish")
    assert versions(store, "torch") == {"1.0"}


class Deaf(MemoryStore):
    """A store that changes pointers, and whose client learns only that somebody was first."""

    def write_if(self, key: str, data: bytes, *, etag: str | None) -> bool:
        return super().write_if(key, data, etag=etag) and not key.endswith("/state.json")


def test_a_change_whose_reply_was_lost_is_known_to_be_made(tmp_path: Path) -> None:
    store = Deaf()
    put(store, "staging", [make_wheel(tmp_path, "torch", "1.0")])
    attempt = next(attempts(Index(store, "staging")))
    archived = msgspec.structs.replace(attempt.before.project("torch"), status="archived")
    assert attempt.commit(Change(projects={"torch": archived}), "publish")
    assert Index(store, "staging").load().project("torch").status == "archived"


class Refusing(MemoryStore):
    """A store that refuses the first page, as where another writer was first."""

    refuses = True

    def write_if(self, key: str, data: bytes, *, etag: str | None) -> bool:
        if self.refuses and "/simple/" in key:
            self.refuses = False
            return False
        return super().write_if(key, data, etag=etag)


def test_no_change_is_made_while_pages_of_the_one_before_are_not_written(states: list[MemoryStore]) -> None:
    first, second = states
    counted = Breaking(first, left=100)
    change(counted, "publish", second)
    dying = Breaking(first, left=counted.written.index("staging/state.json") + 1)  # and no page
    with pytest.raises(Broken):
        change(dying, "publish", second)
    store = Refusing(dying.objects)
    pointer = Index(store, "staging").load().pointer
    assert pointer is not None
    assert (pointer.generation, pointer.rendered) == (2, 1)

    def plan(now: Snapshot) -> Change:
        assert now.pointer is not None
        assert now.pointer.rendered == now.pointer.generation
        return Change(projects={"torch": msgspec.structs.replace(now.project("torch"), status="archived")})

    commit(Index(store, "staging"), "publish", plan)
    assert not store.refuses
    assert versions(store, "torch") == {"1.0", "2.0"}


def test_what_never_changes_is_not_taken_for_what_was_to_be_written() -> None:
    store, key = MemoryStore(), f"sets/{'ab' * 32}/manifest.json"
    write.create(store, key, b"1")
    write.create(store, key, b"1")
    with pytest.raises(StoreError, match="has different bytes, and it never changes"):
        write.create(store, key, b"2")
    assert store.read(key).data == b"1"


def test_a_set_that_has_its_set_json_has_all_else(tmp_path: Path) -> None:
    store = MemoryStore()
    made = stage_torch(store, tmp_path)
    manifest, statement = (
        store.read(keys.set_key(made.id, name)).data for name in ("manifest.json", "builder.json")
    )
    whole = Breaking(MemoryStore(), left=99)
    write.write_set(whole, made, manifest, statement, {})
    assert whole.exists(keys.set_key(made.id, "set.json"))
    for left in range(len(whole.written)):
        cut = Breaking(MemoryStore(), left=left)
        with pytest.raises(Broken):
            write.write_set(cut, made, manifest, statement, {})
        assert not cut.exists(keys.set_key(made.id, "set.json"))


def test_a_page_is_not_written_over_that_of_a_writer_who_came_after_the_look_at_the_pointer(
    states: list[MemoryStore],
) -> None:
    first, second = states

    class Overtaken(MemoryStore):
        """A store in which another writer comes just before a page is read."""

        waits = True

        def read(self, key: str) -> StoredObject:
            if key == "staging/simple/torch/index.json" and self.waits:
                self.waits = False
                put_all(self, second)
            return super().read(key)

    store = Overtaken(first.objects)
    shown = Index(store, "staging").load()
    assert not write.put_project_page(shown, "torch")
    assert not store.waits
    assert versions(store, "torch") == {"1.0", "2.0"}
