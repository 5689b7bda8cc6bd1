import hashlib
import os
import threading
from pathlib import Path

import pytest

from cairn import files
from cairn.errors import SystemFailureError


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


def test_link_or_copy_replaces_what_was_there(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "t" / "target"
    source.write_bytes(b"new")
    files.write_bytes(target, b"old")
    files.link_or_copy(source, target)
    assert target.read_bytes() == b"new"
    assert files.sha256_of(target) == hashlib.sha256(b"new").hexdigest()


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
    with pytest.raises(SystemFailureError, match="another run"), files.locked(lock, timeout=0.1):
        pass
    release.set()
    thread.join()
    with files.locked(lock, timeout=1):
        pass
