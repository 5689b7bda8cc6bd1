from __future__ import annotations

import os
from pathlib import Path

import pytest

from cairn.store.folder import LocalStore
from cairn.store.protocol import MissingKeyError
from helpers.release import keys_of


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


def test_the_folder_is_made_by_the_first_write(store: LocalStore) -> None:
    assert keys_of(store) == []
    assert list(store.strays()) == []
    assert not store.path.exists()


def test_what_is_no_object_is_a_stray(store: LocalStore, tmp_path: Path) -> None:
    store.write_if("a/b", b"1", etag=None)  # this leaves a lock behind, which is none
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret").write_text("secret")
    (store.path / "a" / ".b.0123.part").write_bytes(b"12")
    (store.path / ".DS_Store").write_bytes(b"123")
    (store.path / "link").symlink_to(tmp_path / "elsewhere")
    (store.path / "a" / "file").symlink_to(tmp_path / "elsewhere" / "secret")
    assert keys_of(store) == ["a/b"]
    found = {stray.name: stray for stray in store.strays()}
    assert {name: stray.kind for name, stray in found.items()} == {
        ".DS_Store": "foreign",
        "a/.b.0123.part": "temporary",
        "a/file": "foreign",
        "link": "foreign",
    }
    assert found["a/.b.0123.part"].size == 2
    for stray in found.values():
        store.discard(stray)
        store.discard(stray)
    assert list(store.strays()) == []
    assert (tmp_path / "elsewhere" / "secret").exists()


def test_a_thousand_keys_do_not_leave_a_thousand_locks(store: LocalStore) -> None:
    for number in range(1000):
        store.write_if(f"a/{number}", b"", etag=None)
    assert len(list((store.path / ".locks").iterdir())) <= 256


def test_nothing_is_reached_through_a_link(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    store.write("a/b", b"one")
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "b").write_bytes(b"secret")
    for name, target in (
        ("file", tmp_path / "secret"),
        ("folder", tmp_path / "folder"),
        ("inside", store.path / "a"),
        ("loop", store.path / "loop"),
        ("nowhere", tmp_path / "nothing"),
    ):
        (store.path / name).symlink_to(target)
    for key in ("file", "folder/b", "inside/b", "loop", "loop/b", "nowhere"):
        assert (store.exists(key), store.stat(key)) == (False, None)
        with pytest.raises(MissingKeyError):
            store.read(key)
        with pytest.raises(MissingKeyError), store.as_file(key):
            pass
    assert store.read("a/b").data == b"one"
    # The folder itself may be reached in any way.
    (tmp_path / "elsewhere").symlink_to(store.path)
    assert LocalStore(tmp_path / "elsewhere").read("a/b").data == b"one"


def test_what_is_no_plain_file_is_not_waited_for(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert not store.exists("pipe")
    with pytest.raises(MissingKeyError):
        store.read("pipe")
