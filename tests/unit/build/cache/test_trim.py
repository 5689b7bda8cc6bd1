import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cairn.build import cache
from cairn.build.cache import entry as entries
from cairn.build.cache import in_use, trim
from cairn.build.cache.tiers import LocalTier
from cairn.errors import UsageError
from cairn.store.folder import LocalStore
from cairn.store.memory import MemoryStore
from helpers.small_builds import wait_for

from .conftest import MakeWheel

KEYS = [f"{number}" * 64 for number in range(5)]


@pytest.fixture
def root(tmp_path: Path, make_wheel: MakeWheel) -> Path:
    """A cache of five wheels of 100 bytes, `KEYS[0]` unused for five days, the last for one."""
    found = tmp_path / "cache"
    store = cache.WheelCache(found)
    for number, key in enumerate(KEYS):
        store.put(key, make_wheel(b"%d" % number * 100), seconds=1, project=f"p{number}")
        used = time.time() - (5 - number) * 86400 - 60
        os.utime(found / entries.entry_key(key), (used, used))
    forget(found)
    return found


def forget(root: Path) -> None:
    """Have this process use nothing of a cache, as after its end."""
    note = in_use._of_root.pop(root)
    assert note._lock is not None
    os.close(note._lock)


def kept(root: Path) -> list[str]:
    store = cache.WheelCache(root)
    return [key for key in KEYS if store.local.look(key) is not None]


def wheels(root: Path) -> int:
    return len(list(root.glob("files/*/*/*.whl")))


def test_what_was_used_longest_ago_goes_first(root: Path) -> None:
    tier = LocalTier(root)
    would = trim.trim(tier, max_size=250, dry_run=True)
    assert [each.key for each in would.entries] == KEYS[:3]
    assert kept(root) == KEYS
    done = trim.trim(tier, max_size=250)
    assert done == would
    assert (done.freed, done.size, done.kept) == (300, 200, 2)
    assert kept(root) == KEYS[3:]
    assert wheels(root) == 2
    assert len(list(root.glob("files/*/*"))) == 2  # no empty folder stays
    assert trim.trim(tier, max_size=250).entries == ()
    done = trim.trim(tier, older_than=timedelta(days=1.5))  # whatever the size
    assert [each.key for each in done.entries] == KEYS[3:4]
    assert kept(root) == KEYS[4:]


def test_a_wheel_that_was_used_again_stays(root: Path) -> None:
    assert cache.WheelCache(root).get(KEYS[0]) is not None
    forget(root)
    trim.trim(LocalTier(root), max_size=200)
    assert kept(root) == [KEYS[0], KEYS[4]]


def test_the_bytes_of_a_wheel_stay_while_another_entry_names_them(root: Path) -> None:
    store = cache.WheelCache(root)
    hit = store.get(KEYS[0])
    assert hit is not None
    store.put("a" * 64, hit.wheel, seconds=1, first_key=hit.entry.first_key)
    forget(root)
    os.utime(root / entries.entry_key(KEYS[0]), (0, 0))
    trim.trim(LocalTier(root), older_than=timedelta(days=30))
    assert store.local.look(KEYS[0]) is None
    assert store.get("a" * 64) is not None


def test_what_no_entry_names_and_what_cannot_be_read_goes(root: Path) -> None:
    (root / entries.entry_key(KEYS[0])).unlink()
    (root / entries.entry_key(KEYS[1])).write_bytes(b"{")
    next(root.glob(f"files/*/*/{'*'}")).parent.joinpath(".x.0123.part").write_bytes(b"killed")
    part = next(root.glob("files/*/*/.x*"))
    os.utime(part, (0, 0))
    done = trim.trim(LocalTier(root), max_size=10_000)
    assert [each.key for each in done.entries] == [KEYS[1]]
    assert wheels(root) == 3
    assert not part.exists()
    assert kept(root) == KEYS[2:]


_READER = """
import sys
from pathlib import Path
from cairn.build import cache
hit = cache.WheelCache(Path(sys.argv[1])).get(sys.argv[2])
print(hit.wheel, flush=True)
sys.stdin.read()
print(hit.wheel.read_bytes() == b"0" * 100)
"""


@pytest.fixture
def reader(root: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that was given the wheel of `KEYS[0]` and has not linked it yet."""
    command = [sys.executable, "-c", _READER, str(root), KEYS[0]]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip()
        yield process
        process.kill()


def test_what_a_running_build_uses_stays(root: Path, reader: subprocess.Popen[str]) -> None:
    os.utime(root / entries.entry_key(KEYS[0]), (0, 0))
    done = trim.trim(LocalTier(root), max_size=0)
    assert [each.key for each in done.entries] == KEYS[1:]
    assert (done.in_use, done.kept, done.size) == (1, 1, 100)
    said, _ = reader.communicate()
    assert said.split() == ["True"]
    assert len(trim.trim(LocalTier(root), max_size=0).entries) == 1
    assert list((root / ".in-use").glob("*")) == []


def test_what_a_killed_build_used_goes(root: Path, reader: subprocess.Popen[str]) -> None:
    reader.kill()
    reader.wait()
    assert trim.trim(LocalTier(root), max_size=0).kept == 0
    assert kept(root) == []


def test_a_shared_store_keeps_what_may_be_on_its_way(make_wheel: MakeWheel, tmp_path: Path) -> None:
    store = MemoryStore()
    machine = cache.WheelCache(tmp_path / "machine", shared=store)
    for number, key in enumerate(KEYS):
        machine.put(key, make_wheel(b"%d" % number * 100), seconds=1)
        store.modified[entries.entry_key(key)] = datetime.now(UTC) - timedelta(days=9 - number)
    store.write("files/aa/aa/new.whl", b"x" * 50)
    store.write("files/bb/bb/old.whl", b"x" * 50)
    store.modified["files/bb/bb/old.whl"] = datetime.now(UTC) - timedelta(days=2)
    done = trim.trim(store, max_size=200)
    assert [each.key for each in done.entries] == KEYS[:3]
    assert store.exists("files/aa/aa/new.whl")
    assert not store.exists("files/bb/bb/old.whl")
    assert len(list(store.list("entries/"))) == 2
    assert cache.WheelCache(tmp_path / "next", shared=store).get(KEYS[4]) is not None


def test_a_folder_that_is_not_there_is_empty_and_is_not_made(tmp_path: Path) -> None:
    tier = LocalTier(tmp_path / "none")
    assert trim.contents(tier).entries == ()
    assert trim.trim(tier, max_size=0).files == ()
    trim.keep_within_bound(tier)
    assert not (tmp_path / "none").exists()


def test_after_a_build_the_folder_is_within_its_bound(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tier = LocalTier(root)
    trim.keep_within_bound(tier)
    assert kept(root) == KEYS
    assert capsys.readouterr().err == ""
    monkeypatch.setenv(trim.BOUND, "300B")
    trim.keep_within_bound(tier)
    assert kept(root) == KEYS[2:]
    assert "200 B" in capsys.readouterr().err
    monkeypatch.setenv(trim.BOUND, "much")
    with pytest.raises(UsageError, match=trim.BOUND):
        trim.keep_within_bound(tier)


_WRITER = """
import os, sys
from pathlib import Path
from cairn.build import cache
root, folder = map(Path, sys.argv[1:])
store = cache.WheelCache(root)
wheel = folder / "a-1-py3-none-any.whl"
print("begun", flush=True)
for number in range(100_000):
    wheel.unlink(missing_ok=True)
    wheel.write_bytes(os.urandom(50_000))
    store.put(f"{number % 7}" * 64, wheel, seconds=1, log=wheel, replace=True)
"""


@pytest.mark.slow
def test_whenever_a_writer_is_killed_the_rest_is_whole(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    for number in (1, 4, 7):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        command = [sys.executable, "-c", _WRITER, str(root), str(folder)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.03 * number + 0.01)
            if number == 1:  # on a busy machine, not even the first may be there yet
                wait_for(lambda: any(LocalStore(root).list("entries/")))
            process.kill()
        store = cache.WheelCache(root)
        for entry in store.recent():
            hit = store.get(entry.key)
            assert hit is not None
    forget(root)
    trim.trim(LocalTier(root), max_size=10**9)
    assert wheels(root) == len(list(LocalStore(root).list("entries/")))


def test_a_size_and_an_age() -> None:
    sizes = {"20GB": 20 * 10**9, "1.5 t": 1.5 * 10**12, "7": 7, "0B": 0, "3kb": 3000}
    assert {text: trim.parse_size(text) for text in sizes} == sizes
    for text in ("", "GB", "-1", "1e9", "9" * 99, "5 parsecs"):
        with pytest.raises(UsageError):
            trim.parse_size(text)
    for text in ("", "d", "-1d", "1y", "999999d"):
        with pytest.raises(UsageError):
            trim.parse_age(text)
    assert trim.parse_age("2w") == trim.parse_age("14") == timedelta(days=14)


def test_what_is_used_is_noted_again_where_the_cache_was_removed(tmp_path: Path) -> None:
    """As by somebody who empties the folder while a long run goes on."""
    in_use.note(tmp_path, KEYS[0])
    shutil.rmtree(tmp_path / ".in-use")
    in_use.note(tmp_path, KEYS[1])
    assert in_use.keys(tmp_path) == {KEYS[1]}
    forget(tmp_path)
