from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cairn.errors import StoreError, UsageError
from cairn.store.folder import LocalStore, open_existing, open_store
from cairn.store.memory import MemoryStore
from cairn.store.protocol import MissingKeyError, Store
from helpers.release import keys_of


@pytest.fixture(params=["folder", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Each kind of store: they are held to one contract."""
    return LocalStore(tmp_path / "store") if request.param == "folder" else MemoryStore()


def test_an_object_is_read_back_with_an_etag_of_its_bytes(store: Store) -> None:
    store.write("a/b", b"one")
    first = store.read("a/b")
    store.write("a/b", b"two")
    second = store.read("a/b")
    store.write("a/b", b"one")
    assert (first.data, second.data) == (b"one", b"two")
    assert store.read("a/b").etag == first.etag != second.etag


def test_a_missing_key_is_said_to_be_missing(store: Store) -> None:
    store.write("a/b", b"one")
    for key in ("nothing", "a", "a/b/c"):
        with pytest.raises(MissingKeyError):
            store.read(key)


def test_write_if_writes_only_over_what_was_seen(store: Store) -> None:
    assert store.write_if("state", b"1", etag=None)
    assert not store.write_if("state", b"x", etag=None)
    etag = store.read("state").etag
    assert store.write_if("state", b"2", etag=etag)
    assert not store.write_if("state", b"x", etag=etag)
    assert store.read("state").data == b"2"


def test_of_many_writers_with_one_etag_exactly_one_wins(store: Store) -> None:
    store.write("state", b"0")
    etag = store.read("state").etag
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda i: store.write_if("state", b"%d" % i, etag=etag), range(1, 9)))
    assert won.count(True) == 1
    assert store.read("state").data == b"%d" % (won.index(True) + 1)


def test_list_gives_keys_of_a_prefix_and_no_temporary_file(store: Store, tmp_path: Path) -> None:
    for key in ("a/x/2", "a/x/1", "a/xy", "b/1"):
        store.write(key, b"")
    if isinstance(store, LocalStore):
        (store.path / "a" / ".x.part").write_bytes(b"")
    store.write_if("a/xz", b"", etag=None)  # in a folder, this leaves a lock behind
    assert keys_of(store, "a/x") == ["a/x/1", "a/x/2", "a/xy", "a/xz"]
    assert keys_of(store, "a/x/") == ["a/x/1", "a/x/2"]
    assert keys_of(store) == ["a/x/1", "a/x/2", "a/xy", "a/xz", "b/1"]
    assert keys_of(store, "none/") == keys_of(LocalStore(tmp_path / "none")) == []


def test_what_is_listed_and_what_is_asked_for_agree(store: Store) -> None:
    begun = datetime.now(UTC) - timedelta(seconds=2)
    store.write("a/b", b"four")
    (listed,) = store.list("a/")
    found = store.stat("a/b")
    assert found is not None
    assert (listed.key, listed.size, listed.modified) == (found.key, found.size, found.modified)
    assert (found.key, found.size) == ("a/b", 4)
    assert begun < found.modified < datetime.now(UTC) + timedelta(seconds=2)
    assert found.etag == store.read("a/b").etag
    assert found.sha256 == hashlib.sha256(b"four").hexdigest()
    assert store.stat("a") is None
    assert store.stat("a/b/c") is None


@pytest.mark.parametrize(
    ("start", "count", "part"),
    [
        (0, None, b"0123456789"),
        (3, None, b"3456789"),
        (3, 4, b"3456"),
        (8, 9, b"89"),
        (10, 5, b""),
        (99, None, b""),
    ],
)
def test_a_part_of_an_object(store: Store, start: int, count: int | None, part: bytes) -> None:
    store.write("a", b"0123456789")
    with store.open("a", start=start, count=count) as stream:
        assert stream.read() == part
        assert stream.read(1) == b""
    with store.open("a", start=start, count=count) as stream:
        assert b"".join(iter(lambda: stream.read(2), b"")) == part


def test_an_object_is_handed_out_as_a_file_of_its_name(store: Store) -> None:
    store.write("files/torch-1.0-py3-none-any.whl", b"bytes")
    with store.as_file("files/torch-1.0-py3-none-any.whl") as path:
        assert (path.name, path.read_bytes()) == ("torch-1.0-py3-none-any.whl", b"bytes")
    with pytest.raises(MissingKeyError), store.as_file("files/none"):
        pass


def test_what_was_put_does_not_follow_its_source(store: Store, tmp_path: Path) -> None:
    source = tmp_path / "wheel"
    source.write_bytes(b"bytes")
    store.put_file("files/wheel", source)
    with source.open("r+b") as file:
        file.write(b"edits")
    assert store.read("files/wheel").data == b"bytes"


def test_delete_takes_away_what_may_not_be_there(store: Store) -> None:
    store.write("a", b"")
    store.delete("a")
    store.delete("a")
    assert not store.exists("a")


@pytest.mark.parametrize(
    "key", ["", "/etc/passwd", "../x", "a/../../x", "a//b", ".locks/x", "a/.hidden", "a\0b"]
)
def test_a_key_cannot_leave_the_store(store: Store, key: str) -> None:
    for use in (store.read, store.open, store.exists, store.delete, lambda key: store.write(key, b"")):
        with pytest.raises(StoreError, match="cannot name"):
            use(key)


def test_a_store_is_named_by_path_or_file_url(tmp_path: Path) -> None:
    folder = tmp_path / "a store+1"
    assert open_store(str(folder)).url == str(folder)
    assert open_store(folder.as_uri()).url == str(folder)
    assert open_store(f"FILE://localhost{folder}").url == str(folder)


@pytest.mark.parametrize("url", ["s3://bucket/prefix", "ftp://host/x"])
def test_other_stores_are_refused_in_one_line(url: str) -> None:
    with pytest.raises(UsageError, match=url.partition(":")[0]):
        open_store(url)


@pytest.mark.parametrize("url", ["file://store", "file://host/store", "file://", "file://[x", "file:///", ""])
def test_a_url_without_a_folder_does_not_mean_the_current_one(url: str) -> None:
    with pytest.raises(UsageError, match=r"names no folder|no path"):
        open_store(url)


def test_what_must_exist_is_asked_for_by_name(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no store at"):
        open_existing(str(tmp_path / "none"))


def test_a_file_is_not_a_store(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    for url in (str(path), path.as_uri()):
        with pytest.raises(UsageError, match="file is a file, not the folder of a store"):
            open_store(url)
