"""What every store keeps, as tests: a kind of store is held to it by a subclass with the fixture `store`."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cairn.errors import StoreError
from cairn.store.protocol import MissingKeyError, Store, write_once
from helpers.faults import Fault, FaultyStore, Plan
from helpers.release import keys_of

PARTS = [
    (0, None, b"0123456789"),
    (3, None, b"3456789"),
    (3, 4, b"3456"),
    (0, 4, b"0123"),
    (8, 9, b"89"),
    (0, 0, b""),
    (10, 5, b""),
    (99, None, b""),
]


class StoreContract:
    """The tests of the contract."""

    def test_an_object_is_read_back_with_an_etag_of_its_bytes(self, store: Store) -> None:
        store.write("a/b", b"one")
        first = store.read("a/b")
        store.write("a/b", b"two")
        second = store.read("a/b")
        assert (first.data, second.data) == (b"one", b"two")
        assert first.etag != second.etag
        assert store.read("a/b").etag == second.etag

    def test_its_clock_is_compared_with_ours(self, store: Store) -> None:
        ahead = store.clock_ahead()
        assert ahead is None or abs(ahead) < timedelta(minutes=1)
        assert not list(store.strays())

    def test_an_object_may_be_empty(self, store: Store) -> None:
        store.write("a", b"")
        assert store.read("a").data == b""
        with store.open("a") as stream:
            assert stream.read() == b""
        with store.as_file("a") as path:
            assert path.read_bytes() == b""

    def test_a_missing_key_is_said_to_be_missing(self, store: Store) -> None:
        store.write("a/b", b"one")
        for key in ("nothing", "a", "a/b/c"):
            for use in (
                store.read,
                store.open,
                lambda key: store.open(key, start=3),
                lambda key: store.open(key, count=0),
            ):
                with pytest.raises(MissingKeyError):
                    use(key)
            with pytest.raises(MissingKeyError), store.as_file(key):
                pass
            assert store.stat(key) is None
            assert not store.exists(key)

    def test_deleting_what_is_no_object_does_nothing(self, store: Store) -> None:
        store.write("a/b", b"one")
        for key in ("a", "a/b/c", "nothing"):
            store.delete(key)
        assert keys_of(store) == ["a/b"]

    @pytest.mark.parametrize("key", ["a b", "ä/+%2B", "a'\"<>&", "simple/torch/index.html", "~!@$^*()"])
    def test_a_key_may_have_any_character(self, store: Store, key: str) -> None:
        assert store.write_if(key, b"1", etag=None)
        assert store.write_if(key, b"2", etag=store.read(key).etag)
        assert keys_of(store) == [key]
        assert store.exists(key)
        with store.open(key, start=0) as stream:
            assert stream.read() == b"2"
        store.delete(key)
        assert keys_of(store) == []

    def test_what_is_renewed_keeps_its_bytes_and_is_as_old_as_now(self, store: Store) -> None:
        store.write("a/b+c", b"one")
        before = store.stat("a/b+c")
        time.sleep(1.1)  # a bucket tells whole seconds
        store.renew("a/b+c")
        store.renew("none")
        after = store.stat("a/b+c")
        assert before is not None
        assert after is not None
        assert after.modified > before.modified
        assert (after.size, after.sha256) == (3, hashlib.sha256(b"one").hexdigest())
        assert store.read("a/b+c").data == b"one"
        assert not store.exists("none")

    def test_write_if_writes_only_over_what_was_seen(self, store: Store) -> None:
        assert store.write_if("state", b"1", etag=None)
        assert not store.write_if("state", b"x", etag=None)
        etag = store.read("state").etag
        assert store.write_if("state", b"2", etag=etag)
        assert not store.write_if("state", b"x", etag=etag)
        assert store.read("state").data == b"2"

    def test_what_is_written_once_is_mended_and_never_lost(self, store: Store) -> None:
        write_once(store, "parts/1", b"1")
        write_once(store, "parts/1", b"1")
        assert store.read("parts/1").data == b"1"
        store.write("parts/1", b"damaged")
        write_once(store, "parts/1", b"1")
        assert store.read("parts/1").data == b"1"
        refusing = FaultyStore(store, Plan(Fault.REFUSED, 1))
        write_once(refusing, "parts/2", b"2")
        assert store.read("parts/2").data == b"2"

    def test_what_was_deleted_has_no_etag_any_more(self, store: Store) -> None:
        store.write("state", b"1")
        etag = store.read("state").etag
        store.delete("state")
        assert not store.write_if("state", b"x", etag=etag)
        assert not store.exists("state")

    @pytest.mark.parametrize("begun", [False, True])
    def test_of_many_writers_exactly_one_wins(self, store: Store, *, begun: bool) -> None:
        if begun:
            store.write("state", b"0")
        etag = store.read("state").etag if begun else None
        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(lambda i: store.write_if("state", b"%d" % i, etag=etag), range(1, 9)))
        assert won.count(True) == 1
        assert store.read("state").data == b"%d" % (won.index(True) + 1)

    def test_list_gives_what_begins_so(self, store: Store) -> None:
        for key in ("a/x/2", "a/x/1", "a/xy", "b/1", "a-b", "a/x/1.d/0"):
            store.write(key, b"")
        store.write_if("a/xz", b"", etag=None)  # in a folder, this leaves a lock behind
        assert keys_of(store, "a/x") == ["a/x/1", "a/x/1.d/0", "a/x/2", "a/xy", "a/xz"]
        assert keys_of(store, "a/x/") == ["a/x/1", "a/x/1.d/0", "a/x/2"]
        assert keys_of(store) == ["a-b", "a/x/1", "a/x/1.d/0", "a/x/2", "a/xy", "a/xz", "b/1"]
        assert keys_of(store, "none/") == keys_of(store, "c") == []

    def test_folders_are_what_keys_have_before_the_next_slash(self, store: Store) -> None:
        for key in ("a/x/2", "a/x/1", "a/xy", "b/1", "a/z/y/1", "c"):
            store.write(key, b"")
        assert list(store.folders("")) == ["a", "b"]
        assert list(store.folders("a/")) == ["x", "z"]
        assert list(store.folders("none/")) == []

    def test_what_is_listed_and_what_is_asked_for_agree(self, store: Store) -> None:
        begun = datetime.now(UTC) - timedelta(seconds=2)
        store.write("a/b", b"four")
        (listed,) = store.list("a/")
        found = store.stat("a/b")
        assert found is not None
        assert (listed.key, listed.size) == (found.key, found.size) == ("a/b", 4)
        # A bucket tells one of them in seconds (the header `Last-Modified`), the other in fractions.
        assert abs(listed.modified - found.modified) < timedelta(seconds=1)
        assert begun < found.modified < datetime.now(UTC) + timedelta(seconds=2)
        assert found.etag == store.read("a/b").etag
        assert found.sha256 == hashlib.sha256(b"four").hexdigest()
        assert store.stat("a") is None

    @pytest.mark.parametrize(("start", "count", "part"), PARTS)
    def test_a_part_of_an_object(self, store: Store, start: int, count: int | None, part: bytes) -> None:
        store.write("a", b"0123456789")
        with store.open("a", start=start, count=count) as stream:
            assert stream.read() == part
            assert stream.read(1) == b""
        with store.open("a", start=start, count=count) as stream:
            assert b"".join(iter(lambda: stream.read(2), b"")) == part

    def test_a_file_is_put_and_handed_out_with_its_name(self, store: Store, tmp_path: Path) -> None:
        source = tmp_path / "torch-1.0-py3-none-any.whl"
        source.write_bytes(os.urandom(3_000_000))
        key, arrived, fetched = f"files/{source.name}", list[int](), list[int]()
        assert store.put_file(key, source, on_bytes=arrived.append)
        assert sum(arrived) == 3_000_000
        found = store.stat(key)
        assert found is not None
        assert (found.size, found.sha256) == (3_000_000, hashlib.sha256(source.read_bytes()).hexdigest())
        with store.as_file(key, on_bytes=fetched.append) as path:
            assert (path.name, path.read_bytes()) == (source.name, source.read_bytes())
        assert sum(fetched) in (0, 3_000_000)  # a folder hands out its own

    def test_what_was_put_does_not_follow_its_source(self, store: Store, tmp_path: Path) -> None:
        source = tmp_path / "wheel"
        source.write_bytes(b"bytes")
        store.put_file("files/wheel", source)
        with source.open("r+b") as file:
            file.write(b"edits")
        assert store.read("files/wheel").data == b"bytes"

    def test_a_file_that_is_not_what_it_was_is_not_put(self, store: Store, tmp_path: Path) -> None:
        source = tmp_path / "wheel"
        source.write_bytes(b"bytes")
        looked_at = hashlib.sha256(b"bytes").hexdigest()
        assert store.put_file("files/good", source, sha256=looked_at)
        source.write_bytes(b"edits")
        for key in ("files/good", "files/new"):
            with contextlib.suppress(StoreError):
                assert not store.put_file(key, source, sha256=looked_at)
        assert store.read("files/good").data == b"bytes"
        assert not store.exists("files/new")
        assert list(store.strays()) == []

    def test_putting_again_mends_what_is_there(self, store: Store, tmp_path: Path) -> None:
        source = tmp_path / "wheel"
        source.write_bytes(b"bytes")
        store.write("files/wheel", b"other")
        assert store.put_file("files/wheel", source)
        arrived = list[int]()
        assert not store.put_file("files/wheel", source, on_bytes=arrived.append)
        assert sum(arrived) == len(b"bytes")
        assert store.read("files/wheel").data == b"bytes"

    def test_delete_takes_away_what_may_not_be_there(self, store: Store) -> None:
        store.write("a", b"")
        store.delete("a")
        store.delete("a")
        assert not store.exists("a")

    def test_nothing_of_it_is_a_stray(self, store: Store) -> None:
        store.write("a/b", b"1")
        store.write_if("state.json", b"1", etag=None)
        assert list(store.strays()) == []

    @pytest.mark.parametrize(
        "key",
        [
            *("", "/etc/passwd", "../x", "a/../../x", "a//b", "a/", ".locks/x", "a/.hidden", "a\0b"),
            *("a\tb", "a\nb", "a/\x1b[31m", "a\x7fb", "a\x85b", "a\ud800b"),
        ],
    )
    def test_a_key_cannot_leave_the_store(self, store: Store, key: str, tmp_path: Path) -> None:
        source = tmp_path / "source"
        source.touch()
        uses = (
            store.read,
            store.open,
            store.stat,
            store.exists,
            store.delete,
            lambda key: store.write(key, b""),
            lambda key: store.write_if(key, b"", etag=None),
            lambda key: store.put_file(key, source),
            lambda key: store.as_file(key).__enter__(),
            store.renew,
        )
        for use in uses:
            with pytest.raises(StoreError, match="cannot name") as raised:
                use(key)
            assert str(raised.value).isprintable()

    def test_nothing_lies_where_no_key_leads(self, store: Store) -> None:
        store.write("a/b", b"1")
        for prefix in ("a//", "a\tb/", "a\x7f/b", ".a/"):
            assert keys_of(store, prefix) == []
        for prefix in ("a//", "a\tb/", ".a/"):
            assert list(store.folders(prefix)) == []
