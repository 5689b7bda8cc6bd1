"""Several writers, readers and a full disk, as real processes."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cairn.release.index.commit import recover
from cairn.release.index.keys import index_url
from cairn.release.index.snapshot import Index
from cairn.release.publish.files import publish
from cairn.release.serve import serving
from cairn.store.folder import LocalStore
from cairn.wheels.wheelset import WheelSet
from helpers.release import audit, make_set, make_wheel, move, stage_set

pytestmark = pytest.mark.slow

Install = Callable[..., "subprocess.CompletedProcess[str]"]

PUBLISH = """
import sys
from pathlib import Path
from cairn.release.publish.files import publish
from cairn.store.folder import LocalStore
for path in sys.argv[2:]:
    publish(LocalStore(Path(sys.argv[1])), "staging", [Path(path)])
"""

# Dies without a word, as by the kernel's hand, when it is about to do its n-th write.
DIE = """
import os, signal, sys
from pathlib import Path
from cairn import files
from cairn.store.folder import LocalStore
from cairn.release.index.snapshot import read_set
from helpers.release import move
left, replace = int(sys.argv[3]), Path.replace
def dying(self, target):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return replace(self, target)
Path.replace = dying
store = LocalStore(Path(sys.argv[1]))
move(store, read_set(store, sys.argv[2]))
"""


def staged(store: LocalStore, folder: Path, version: str) -> WheelSet:
    wheels = [
        make_wheel(folder, "triton", version),
        make_wheel(folder, "torch", version, requires=[f"triton=={version}"]),
        make_wheel(folder, "torchvision", version, requires=[f"torch=={version}"]),
    ]
    return stage_set(store, "staging", make_set(wheels), wheels)


def with_helpers() -> dict[str, str]:
    """The environment of a process that imports `helpers`."""
    return os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}


def filenames(store: LocalStore, name: str) -> set[str]:
    page = json.loads(store.read(f"staging/simple/{name}/index.json").data)
    return {file["filename"] for file in page["files"]}


def test_nothing_of_several_publishers_is_lost(store: LocalStore, tmp_path: Path) -> None:
    shares = [
        [make_wheel(tmp_path, "torch", f"{i}.{j}") for j in range(5)]
        + [make_wheel(tmp_path, f"only{i}", "1.0")]
        for i in range(1, 4)
    ]
    children = [
        subprocess.Popen([sys.executable, "-c", PUBLISH, str(store.path), *map(str, share)])
        for share in shares
    ]
    assert [child.wait() for child in children] == [0, 0, 0]
    assert filenames(store, "torch") == {
        path.name for share in shares for path in share if "torch" in path.name
    }
    assert audit(store, "staging", hashes=True) == ()


def test_a_killed_promotion_is_finished_or_undone_and_installs_whole_meanwhile(
    store: LocalStore, tmp_path: Path, install: Install
) -> None:
    old = staged(store, tmp_path / "old", "2.8.0")
    move(store, old)
    new = staged(store, tmp_path / "new", "2.9.0")
    seen = set()
    for n in range(0, 40, 4):
        copy = LocalStore(shutil.copytree(store.path, tmp_path / f"store{n}"))
        done = subprocess.run(
            [sys.executable, "-c", DIE, str(copy.path), new.id, str(n)], env=with_helpers(), check=False
        )
        if done.returncode == 0:
            break
        target = tmp_path / f"target{n}"
        with serving(copy) as server:
            tool = ("pip", "uv")[n // 4 % 2]
            result = install(tool, index_url(server.url, "release"), "torch", "torchvision", target=target)
        assert result.returncode == 0, result.stderr
        folders = {path.name for path in target.glob("*.dist-info")}
        assert folders in [
            {f"{name}-{v}.dist-info" for name in ("torch", "triton", "torchvision")}
            for v in ("2.8.0", "2.9.0")
        ]
        seen |= folders
        recover(Index(copy, "release"))
        assert audit(copy, "release", hashes=True) == ()
    else:
        pytest.fail("the promotion never ended")
    assert {"torch-2.8.0.dist-info", "torch-2.9.0.dist-info"} <= seen


def test_clients_always_resolve_while_sets_are_promoted(
    store: LocalStore, tmp_path: Path, isolated: dict[str, str]
) -> None:
    sets = [staged(store, tmp_path / f"{n}", f"2.9.{n}") for n in range(6)]
    move(store, sets[0])
    ended = threading.Event()

    def promote_all() -> None:
        for made in sets[1:]:
            move(store, made)
        ended.set()

    chosen: list[str] = []
    with serving(store) as server:
        thread = threading.Thread(target=promote_all)
        thread.start()
        after_the_last = False
        while not after_the_last:
            after_the_last = ended.is_set()  # before this resolves, not meanwhile
            report = subprocess.run(
                [
                    *(sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"),
                    *("--report", "-", "--no-cache-dir", "--index-url", index_url(server.url, "release")),
                    *("torch", "torchvision"),
                ],
                env=isolated,
                capture_output=True,
                text=True,
                check=False,
            )
            assert report.returncode == 0, report.stderr
            items = json.loads(report.stdout)["install"]
            versions = {item["metadata"]["name"]: item["metadata"]["version"] for item in items}
            assert set(versions) == {"torch", "torchvision", "triton"}
            assert len(set(versions.values())) == 1
            chosen.append(versions["torch"])
        thread.join()
    assert chosen[-1] == "2.9.5"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 400 kB."""
    mount = tmp_path / "small"
    mount.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(mount)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("mounting a small file system needs root")
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


def test_a_full_disk_leaves_the_old_index_whole(small_disk: Path, tmp_path: Path) -> None:
    before = LocalStore(tmp_path / "before")
    publish(before, "staging", [make_wheel(tmp_path, "torch", "2.8.0")])
    new = make_wheel(tmp_path, "torch", "2.9.0")
    refused = 0
    for left in range(40):
        store = LocalStore(shutil.copytree(before.path, small_disk / f"store{left}"))
        with filled(small_disk, left=left):
            full = is_full(functools.partial(publish, store, "staging", [new]))
        refused += full
        assert "torch-2.8.0-py3-none-any.whl" in filenames(store, "torch")
        assert not list(store.path.rglob("*.part"))
        publish(store, "staging", [new])
        assert audit(store, "staging", hashes=True) == ()
        assert len(filenames(store, "torch")) == 2
        shutil.rmtree(store.path)
        if not full:
            break
    assert refused > 3


def is_full(act: Callable[[], object]) -> bool:
    try:
        act()
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return True
    return False


@contextlib.contextmanager
def filled(disk: Path, *, left: int) -> Iterator[None]:
    """Leave that many blocks free on the disk for a while."""
    status = os.statvfs(disk)
    ballast = disk / "ballast"
    ballast.write_bytes(b"\0" * status.f_bsize * max(0, status.f_bavail - left))
    try:
        yield
    finally:
        ballast.unlink()


def test_a_page_is_never_older_than_the_state_after_two_writers(store: LocalStore, tmp_path: Path) -> None:
    wheels = [make_wheel(tmp_path, "torch", f"1.{n}") for n in range(12)]
    threads = [threading.Thread(target=publish, args=(store, "staging", [wheel])) for wheel in wheels]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert audit(store, "staging", hashes=True) == ()
    assert filenames(store, "torch") == {wheel.name for wheel in wheels}
