"""What is lost or fails in one place keeps nothing else from being marked, shown or kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cairn.errors import CairnError, NetworkError, StoreError
from cairn.release.gc import collect
from cairn.release.history.rollback import rollback
from cairn.release.history.yank import manifest_of, yank
from cairn.release.index import keys, people
from cairn.release.index.commit import render_all
from cairn.release.index.generation import DamagedIndexError, digest_of
from cairn.release.index.snapshot import SET_FILE, Index, existing
from cairn.release.publish.files import publish
from cairn.store.memory import MemoryStore
from cairn.wheels.wheelset import WheelSet
from helpers.moments import Meddled
from helpers.nights import age, backdate
from helpers.release import audit, keys_of, make_wheel, move

Sets = Mapping[str, WheelSet]


@pytest.fixture
def two_nights(nights: MemoryStore, sets: Sets) -> tuple[MemoryStore, Sets]:
    """A store with two nights released; 2.9.0 is the last known good one."""
    for version in ("2.8.0", "2.9.0"):
        move(nights, sets[version])
    return nights, sets


def test_an_index_that_is_damaged_keeps_no_yanked_set_in_another(
    two_nights: tuple[MemoryStore, Sets],
) -> None:
    store, sets = two_nights
    made = sets["2.9.0"]
    damage_pointer(store, "staging")
    with pytest.raises(StoreError, match="is not yet on all pages of staging"):
        yank(store, made.id[:12], reason="wrong results")
    assert Index(store, "release").load().set(made.id).yanked == "wrong results"
    locks = keys_of(store, "release/locks/")
    assert locks
    assert [key for key in locks if made.id.encode() in store.read(key).data] == []
    assert made.id not in store.read("release/targets.json").data.decode()


def test_a_set_that_is_lost_keeps_no_other_from_being_marked(two_nights: tuple[MemoryStore, Sets]) -> None:
    store, sets = two_nights
    # It has a wheel of the version that the other one has; so whether it is yanked too cannot be known.
    store.delete(keys.set_key(sets["2.10.0"].id, SET_FILE))
    with pytest.raises(StoreError, match=r"holds no sets/"):
        yank(store, sets["2.9.0"].id, reason="wrong results")
    for index in ("release", "staging"):
        assert Index(store, index).load().set(sets["2.9.0"].id).yanked == "wrong results"


def damage_pointer(store: MemoryStore, index: str) -> str:
    store.write(keys.state_key(index), b"damaged")
    return keys.state_key(index)


def lose_pointer(store: MemoryStore, index: str) -> str:
    store.delete(keys.state_key(index))
    return keys.state_key(index)


def lose_generation(store: MemoryStore, index: str) -> str:
    current = Index(store, index).load()
    key = keys.generation_key(index, current.generation.number, current.digest or "")
    store.delete(key)
    return key


def change_a_set(store: MemoryStore, index: str) -> str:
    part = next(filter(None, Index(store, index).load().generation.sets))
    key = keys.part_key(index, part)
    assert digest_of(store.read(key).data) == part
    store.write(key, b"{}")
    return key


@pytest.mark.parametrize("damaged", ["nightly", "release/gfx110X-all"])
@pytest.mark.parametrize("damage", [damage_pointer, lose_pointer, lose_generation, change_a_set])
def test_an_index_that_is_damaged_is_marked_so_and_keeps_no_other_from_being_changed(
    nights: MemoryStore, sets: Sets, damage: Callable[[MemoryStore, str], str], damaged: str
) -> None:
    store = nights
    move(store, sets["2.8.0"], target=damaged)
    whole = MemoryStore(store.objects)
    key = damage(store, damaged)
    for version in ("2.8.0", "2.9.0", "2.10.0"):
        move(store, sets[version])
        assert sets[version].id.encode() in store.read("release/index.html").data
        assert sets[version].id.encode() in store.read("index.html").data
    pages = ["index.html", *(f"release/{name}.html" for name in ("index", "status"))]
    assert b"damaged" in store.read("index.html").data
    if damaged.startswith("release/"):
        assert all(f"{damaged} is damaged".encode() in store.read(page).data for page in pages[1:])
    current = Index(store, "release").load().pointer
    assert current is not None
    assert current.rendered == current.generation

    store.write(key, whole.read(key).data)
    render_all(Index(store, damaged))
    assert not any(b"damaged" in store.read(page).data for page in pages)
    assert audit(store, damaged, hashes=True) == ()


@pytest.mark.parametrize(
    "error",
    [NetworkError("the bucket does not answer"), StoreError("access to nightly is denied")],
)
def test_an_index_that_cannot_be_reached_is_not_taken_for_damaged(
    two_nights: tuple[MemoryStore, Sets], error: CairnError
) -> None:
    def unreachable(_: MemoryStore) -> None:
        raise error

    memory, sets = two_nights
    move(memory, sets["2.8.0"], target="nightly")
    store = Meddled(memory, unreachable, kind="read", at=keys.state_key("nightly"), times=99)
    with pytest.raises(type(error), match=str(error)):
        move(store, sets["2.10.0"])
    assert store.read("index.html").data == memory.read("index.html").data


def test_an_index_that_holds_nothing_has_pages_that_say_so(two_nights: tuple[MemoryStore, Sets]) -> None:
    store, _ = two_nights
    pages = people.objects(store, "release/gfx110X-all")
    assert {"index.html", "release/index.html", "release/gfx110X-all/index.html"} <= pages.keys()


@pytest.mark.parametrize("damage", [damage_pointer, change_a_set])
def test_a_night_that_only_a_damaged_index_lists_is_known_by_the_beginning_of_its_digest(
    two_nights: tuple[MemoryStore, Sets], damage: Callable[[MemoryStore, str], str]
) -> None:
    store, sets = two_nights
    made = sets["2.10.0"]
    for index in existing(store):
        damage(store, index)
    assert manifest_of(store, made.manifest_sha256[:12]) == made.manifest_sha256


class StoreAtMoments(MemoryStore):
    """A store that does what a test wants when a key is put or opened."""

    def __init__(self) -> None:
        super().__init__()
        self.on_put: Callable[[str], None] = lambda _key: None
        self.on_open: Callable[[str], None] = lambda _key: None

    def put_file(self, key: str, source: Path, **options: Any) -> bool:
        put = super().put_file(key, source, **options)
        self.on_put(key)
        return put

    def open(self, key: str, **options: Any) -> Any:
        stream = super().open(key, **options)
        self.on_open(key)
        return stream


def test_a_disk_that_is_full_for_one_index_leaves_the_others_to_be_marked(
    two_nights: tuple[MemoryStore, Sets],
) -> None:
    def full(_: MemoryStore) -> None:
        raise OSError(28, "No space left on device")

    memory, sets = two_nights
    store = Meddled(memory, full, at="^release/", times=99)
    with pytest.raises(StoreError, match="No space left"):
        yank(store, sets["2.9.0"].id, reason="wrong results")
    assert Index(store, "staging").load().set(sets["2.9.0"].id).yanked == "wrong results"


def an_old_wheel_that_no_page_has(tmp_path: Path) -> tuple[StoreAtMoments, Path, str]:
    """A store that offered a wheel a year ago: itself, the wheel, and the generation that had it."""
    store, wheel = StoreAtMoments(), make_wheel(tmp_path, "alpha", "1.0")
    publish(store, "staging", [make_wheel(tmp_path, "other", "1.0")])
    publish(store, "staging", [wheel])
    number = Index(store, "staging").load().generation.number
    rollback(store, "staging", str(number - 1), reason="to begin with")
    backdate(store, "staging", 365)
    age(store, 365)
    return store, wheel, str(number)


def test_a_wheel_that_is_there_is_not_collected_while_others_are_sent(tmp_path: Path) -> None:
    store, wheel, _ = an_old_wheel_that_no_page_has(tmp_path)
    collected: list[str] = []

    def collect_then(key: str) -> None:
        if "beta" in key:
            collected.extend(collect(store, older_than=timedelta(days=30)).keys)

    store.on_put = collect_then
    publish(store, "staging", [wheel, make_wheel(tmp_path, "beta", "1.0")])
    assert [key for key in collected if key.endswith(".whl")] == []
    assert audit(store, "staging", hashes=True) == ()


def test_a_wheel_that_comes_back_is_not_collected_after_it_was_read(tmp_path: Path) -> None:
    store, _, number = an_old_wheel_that_no_page_has(tmp_path)
    moments: list[str] = []

    def collect_once(key: str) -> None:
        moments.append(key)
        if len(moments) == 1:
            collect(store, older_than=timedelta(days=30))

    store.on_open = collect_once
    rollback(store, "staging", number, reason="it is needed after all")
    assert moments
    assert audit(store, "staging", hashes=True) == ()


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("data", "is_newer"),
    [
        (b'{"schema":"cairn.project/2","name":"torch","files":[],"novel":1}', True),
        (b'{"schema":"cairn.project/3","name":"torch","files":[]}', True),
        (b'{"schema":"cairn.project/2","name":"torch"}', False),
    ],
    ids=["a field", "a schema", "a lost field"],
)
def test_a_part_of_a_newer_cairn_asks_for_an_update(data: bytes, *, is_newer: bool, strict: bool) -> None:
    store = MemoryStore()
    store.write(keys.part_key("release", digest_of(data)), data)
    with pytest.raises(DamagedIndexError) as caught:
        Index(store, "release", strict=strict).project(digest_of(data), "torch")
    assert ("update Cairn" in (caught.value.tip or "")) == is_newer
    assert "restore it from a copy" in (caught.value.tip or "")


@pytest.mark.parametrize("change", [(b"{", b'{"novel":1,'), (b"cairn.pointer/1", b"cairn.pointer/2")])
def test_a_pointer_of_a_newer_cairn_asks_for_an_update(
    two_nights: tuple[MemoryStore, Sets], change: tuple[bytes, bytes]
) -> None:
    store, _ = two_nights
    key = keys.state_key("release")
    store.write(key, store.read(key).data.replace(*change))
    with pytest.raises(DamagedIndexError) as caught:
        Index(store, "release").load()
    assert "update Cairn" in (caught.value.tip or "")
