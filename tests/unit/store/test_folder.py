from __future__ import annotations

import os
from pathlib import Path

import pytest

from cairn import platforms
from cairn.errors import StoreError
from cairn.platforms import windows
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


def test_a_listing_is_in_the_order_of_whole_keys(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    keys = ["a-b", "a.b/c", "a.c", "a/b", "a/c-d/e", "a/c/d", "a/c0", "a0", "b/a"]
    for key in reversed(keys):
        store.write(key, b"")
    assert [listed.key for listed in store.list("")] == keys == sorted(keys)
    assert [listed.key for listed in store.list("a/c")] == keys[4:7]


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


def refuses(store: LocalStore, key: str, reason: str, file: Path) -> None:
    """Whether a store says in one line that it can have nothing under a key, and has nothing there."""
    for act in (
        lambda: store.write(key, b"new"),
        lambda: store.write_if(key, b"new", etag=None),
        lambda: store.put_file(key, file),
        lambda: store.delete(key),
        lambda: store.renew(key),
    ):
        with pytest.raises(StoreError, match=reason):
            act()
    assert (store.exists(key), store.stat(key), *store.list(key), *store.folders(key)) == (False, None)
    with pytest.raises(MissingKeyError):
        store.read(key)
    assert keys_of(store) == ["a/b"]


@pytest.mark.parametrize("key", ["n" * 256, f"{'n' * 256}/a", f"a/{'石' * 86}"])
def test_a_name_that_is_too_long_is_one_line(store: LocalStore, tmp_path: Path, key: str) -> None:
    store.write("a/b", b"one")
    (tmp_path / "file").write_bytes(b"new")
    refuses(store, key, "has more than 255 bytes", tmp_path / "file")


@pytest.mark.parametrize("key", ["C:/x", "C:", "a/b:stream", r"a\..\x", r"\x", "a/nul.txt", "a/b."])
def test_windows_takes_no_key_for_a_place_outside(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    store.write("a/b", b"one")
    (tmp_path / "file").write_bytes(b"new")
    monkeypatch.setattr(platforms, "here", windows)
    refuses(store, key, "Windows", tmp_path / "file")


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
    for prefix in ("folder/", "folder/b", "inside/", "loop/", "../", "../folder/", "/"):
        assert (*store.list(prefix), *store.folders(prefix)) == ()
    assert (*store.folders(""),) == ("a",)
    assert store.read("a/b").data == b"one"
    # The folder itself may be reached in any way.
    (tmp_path / "elsewhere").symlink_to(store.path)
    assert LocalStore(tmp_path / "elsewhere").read("a/b").data == b"one"


@pytest.mark.parametrize("target", ["secret", "nothing", "loop"])
def test_a_link_under_a_key_is_replaced_and_what_it_leads_to_stays(
    store: LocalStore, tmp_path: Path, target: str
) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "file").write_bytes(b"new")
    for key in ("one", "two", "three"):
        store.write("other", b"")
        (store.path / key).symlink_to(store.path / key if target == "loop" else tmp_path / target)
    assert store.write_if("one", b"new", etag=None)
    store.write("two", b"new")
    assert store.put_file("three", tmp_path / "file")
    for key in ("one", "two", "three"):
        assert store.read(key).data == b"new"
    assert (tmp_path / "secret").read_bytes() == b"secret"
    assert not (tmp_path / "nothing").exists()


def test_nothing_is_written_or_removed_through_a_link(store: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "there").write_bytes(b"theirs")
    (tmp_path / "file").write_bytes(b"new")
    store.write("other", b"")
    (store.path / "link").symlink_to(tmp_path / "elsewhere")
    for act in (
        lambda: store.write("link/a", b"new"),
        lambda: store.write_if("link/a/b", b"new", etag=None),
        lambda: store.put_file("link/a", tmp_path / "file"),
        lambda: store.delete("link/there"),
        lambda: store.renew("link/there"),
    ):
        with pytest.raises(StoreError, match="link is a symbolic link"):
            act()
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["there"]
    assert (tmp_path / "elsewhere" / "there").read_bytes() == b"theirs"


def test_a_folder_in_the_place_of_an_object_is_named(store: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"new")
    store.write("a/b", b"1")
    for key in ("a", "a/b/c"):
        for act in (
            lambda key=key: store.write(key, b"new"),
            lambda key=key: store.write_if(key, b"new", etag=None),
            lambda key=key: store.put_file(key, tmp_path / "file"),
        ):
            with pytest.raises(StoreError, match="in the way"):
                act()
    assert keys_of(store) == ["a/b"]


def test_what_is_no_plain_file_is_not_waited_for(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert not store.exists("pipe")
    with pytest.raises(MissingKeyError):
        store.read("pipe")


def test_a_folder_that_another_writer_makes_meanwhile_is_not_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path / "store")
    real = Path.stat

    def slow(path: Path, **options: bool) -> os.stat_result:
        try:
            return real(path, **options)
        finally:
            if path == store.path / "files" and not options:  # made right after it was looked for
                os.makedirs(path, exist_ok=True)  # noqa: PTH103 - `Path.mkdir` would ask again

    monkeypatch.setattr(Path, "stat", slow)
    store.write("files/ab/wheel", b"bytes")
    assert store.read("files/ab/wheel").data == b"bytes"


def test_a_name_that_is_too_long_for_a_file_is_of_nothing(store: LocalStore) -> None:
    key = f"a/{'b' * 300}"
    assert (store.exists(key), store.stat(key), *store.list(f"{key}/")) == (False, None)
    with pytest.raises(MissingKeyError):
        store.read(key)
