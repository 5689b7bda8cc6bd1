import errno
import hashlib
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from cairn import files, platforms
from cairn.build.cache import trim
from cairn.errors import SystemFailureError
from cairn.pipeline import run
from cairn.store.folder import LocalStore
from helpers.churn import again_and_again, churned


def test_failure_leaves_the_old_bytes_and_nothing_beside(tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    target.write_text("old")
    with pytest.raises(RuntimeError), files.writing_beside(target) as part:
        part.write_text("half")
        raise RuntimeError
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.json"]


def test_written_file_has_ordinary_permissions(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "a"
    files.write_text(target, "é\n")
    plain = tmp_path / "plain"
    plain.touch()
    assert target.read_bytes() == "é\n".encode()
    assert target.stat().st_mode == plain.stat().st_mode


def test_folder_is_replaced_as_a_whole(tmp_path: Path) -> None:
    target = tmp_path / "folder"
    target.mkdir()
    (target / "old").touch()
    with files.folder_beside(target) as part:
        (part / "new").touch()
    assert os.listdir(target) == ["new"]
    with pytest.raises(RuntimeError), files.folder_beside(target) as part:
        (part / "half").touch()
        raise RuntimeError
    assert os.listdir(target) == ["new"]
    assert os.listdir(tmp_path) == ["folder"]


@pytest.mark.parametrize("make", [files.filling, files.folder_beside])
@pytest.mark.parametrize("exists", [False, True])
def test_what_a_killed_run_left_goes_with_the_next_one(
    tmp_path: Path, make: Callable[[Path], AbstractContextManager[Path]], *, exists: bool
) -> None:
    target = tmp_path / "wheels"
    if exists:
        target.mkdir()
    code = f"""
import pathlib, sys
from cairn import files
with files.{make.__name__}(pathlib.Path(sys.argv[1])) as part:
    (part / "a").touch()
    print()
    sys.stdin.read()
"""
    command = [sys.executable, "-uc", code, str(target)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        with make(target) as part:  # beside one that lives
            (part / "b").touch()
        assert len(list(tmp_path.rglob("a"))) == 1
        child.kill()
    if not exists:
        shutil.rmtree(target)
    with make(target) as part:
        (part / "c").touch()
    left = sorted(str(path.relative_to(tmp_path)) for path in files.walk(tmp_path))
    assert left == (["wheels/b"] if exists and make is files.filling else []) + ["wheels/c"]


def test_the_current_folder_is_filled_by_its_dot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with files.filling(Path()) as part:
        (part / "a").touch()
    assert os.listdir() == ["a"]


@pytest.mark.parametrize("error", [errno.EEXIST, errno.EIO])
def test_a_folder_that_cannot_be_renamed_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """Windows says that a folder is in the way, too, where a file of the new one is open."""
    target = tmp_path / "folder"
    target.mkdir()
    (target / "old").touch()
    rename = Path.replace

    def refusing(source: Path, place: Path) -> Path:
        if (source / "new").exists():
            raise OSError(error, os.strerror(error), str(source))
        return rename(source, place)

    monkeypatch.setattr(Path, "replace", refusing)
    with pytest.raises(OSError, match=os.strerror(error)), files.folder_beside(target) as part:
        (part / "new").touch()
    assert os.listdir(target) == ["old"]
    assert os.listdir(tmp_path) == ["folder"]


def test_link_or_copy_replaces_what_was_there(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "t" / "target"
    source.write_bytes(b"new")
    files.write_bytes(target, b"old")
    files.link_or_copy(source, target)
    assert target.read_bytes() == b"new"
    assert files.sha256_of(target) == hashlib.sha256(b"new").hexdigest()


def test_a_copy_does_not_follow_what_happens_to_its_source(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "t" / "target"
    source.write_bytes(b"as published" * 1000)
    files.copy(source, target)
    with source.open("r+b") as file:
        file.write(b"edited later")
    assert target.read_bytes() == b"as published" * 1000
    files.copy(source, target)
    assert target.read_bytes() == source.read_bytes()


def test_a_copy_works_where_the_kernel_cannot_copy_a_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "copy_file_range")
    (tmp_path / "source").write_bytes(b"bytes")
    files.copy(tmp_path / "source", tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == b"bytes"


def test_lock_excludes_and_says_who_waits(tmp_path: Path) -> None:
    lock = tmp_path / "x.lock"
    entered, release = threading.Event(), threading.Event()

    def hold() -> None:
        with files.locked(lock):
            entered.set()
            release.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait(20)
    waits: list[str] = []
    with (
        pytest.raises(SystemFailureError, match="another run"),
        files.locked(lock, timeout=0.1, on_wait=lambda: waits.append("said")),
    ):
        pass
    assert waits == ["said"]
    release.set()
    thread.join()
    with files.locked(lock, timeout=1):
        pass


def test_a_lock_whose_file_was_removed_meanwhile_keeps_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "x.lock"
    taken = platforms.here.try_lock

    def take(file: int) -> bool:
        if not gone:  # its holder removes it between our opening and our locking it
            lock.unlink()
            gone.append(lock)
        return taken(file)

    gone: list[Path] = []
    monkeypatch.setattr(platforms.here, "try_lock", take)
    with files.locked(lock):
        assert files.try_lock(lock) is None


def test_a_lock_goes_with_the_process_that_holds_it(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from cairn import files; files.try_lock(Path(sys.argv[1]))"
    code += "; print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, str(tmp_path / "x.lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert files.try_lock(tmp_path / "x.lock") is None
        holder.kill()
    with files.locked(tmp_path / "x.lock", timeout=0):
        pass


def test_threads_that_write_leave_the_umask_as_it_was(tmp_path: Path) -> None:
    # In a process of its own, since a umask belongs to all threads.
    code = f"""
import os, sys, threading
from pathlib import Path
from cairn import files, platforms
os.umask(0o077)
sys.setswitchinterval(1e-6)
folder = Path({str(tmp_path)!r})
def write(name):
    for number in range(100):
        files.write_text(folder / name, str(number))
        assert (folder / name).stat().st_mode & 0o777 == 0o600
    with files.folder_beside(folder / (name + ".d")) as part:
        pass
    assert (folder / (name + ".d")).stat().st_mode & 0o777 == 0o700
failed = []
threading.excepthook = failed.append
threads = [threading.Thread(target=write, args=(name,)) for name in "abcdefgh"]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not failed, failed
assert os.umask(0) == 0o077
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_many_writers_of_one_folder_leave_one_whole_folder(tmp_path: Path) -> None:
    def write(number: int) -> None:
        with files.folder_beside(tmp_path / "folder") as part:
            for name in ("a", "b"):
                (part / name).write_text(str(number))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(200)))
    assert os.listdir(tmp_path) == ["folder"]
    assert (tmp_path / "folder" / "a").read_text() == (tmp_path / "folder" / "b").read_text()


def test_a_link_keeps_the_permissions_of_what_it_links(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.touch()
    source.chmod(0o444)
    files.link_or_copy(source, tmp_path / "target")
    assert source.stat().st_mode & 0o777 == 0o444


def test_a_long_name_in_any_script_can_be_written(tmp_path: Path) -> None:
    target = tmp_path / ("石" * 80)
    files.write_text(target, "text")
    assert os.listdir(tmp_path) == [target.name]


def test_what_walks_a_folder_bears_that_others_write_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "store"
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1_000_000))

    def too_little() -> None:
        with pytest.raises(SystemFailureError, match=r"has 1.0 MB free"):
            run.require_disk(folder, 2_000_000)

    with churned(folder):
        for call in (
            lambda: files.inventory(folder),
            too_little,
            lambda: list(LocalStore(folder).list("")),
            lambda: list(LocalStore(folder).strays()),
            lambda: list(LocalStore(folder).folders("")),
            lambda: trim._remove_empty(folder),
        ):
            again_and_again(call)


@pytest.fixture
def large(tmp_path: Path) -> Iterator[Path]:
    """A file larger than this process may write one: it meets there what it does on a full disk."""
    resource = pytest.importorskip("resource", reason="Windows limits no file's size")
    file = tmp_path / "in the cache.whl"
    file.write_bytes(b"x" * (4 << 20))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    yield file
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def _write(source: Path, target: Path) -> None:
    files.write_bytes(target, source.read_bytes())


def _write_without_a_name(source: Path, target: Path) -> None:
    with files.writing_beside(target) as part, part.open("wb") as out:
        out.write(source.read_bytes())


def _link_to_another_disk(source: Path, target: Path) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(source), None, str(target))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "link", refuse)
        files.link_or_copy(source, target)


@pytest.mark.parametrize("ranges", [True, False], ids=["by the kernel", "by Python"])
@pytest.mark.parametrize(
    "way", [files.copy, files.copy_into, _link_to_another_disk, _write, _write_without_a_name]
)
def test_where_there_is_no_room_the_destination_is_named(
    way: Callable[[Path, Path], None],
    *,
    ranges: bool,
    large: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not ranges:
        monkeypatch.delattr(os, "copy_file_range")
    target = tmp_path / "out" / "torch.whl"
    target.parent.mkdir()
    with pytest.raises(OSError, match="too large") as caught:
        way(large, target)
    assert (caught.value.filename, caught.value.filename2) == (str(target), None)


def test_an_error_of_another_file_keeps_its_name(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/elsewhere/scratch")
    with pytest.raises(OSError, match="scratch"), files.writing_beside(tmp_path / "torch.whl"):
        raise full
