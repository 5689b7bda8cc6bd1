"""Room on the disk is asked for before the first stage."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cairn.errors import SystemFailureError
from cairn.pipeline import run


def test_a_run_that_cannot_end_is_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = tmp_path / "new" / "work"
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1_000_000))
    with pytest.raises(SystemFailureError, match=r"needs 2.0 MB of disk, and .*work has 1.0 MB free"):
        run.require_disk(work, 2_000_000)
    run.require_disk(work, None)
    run.require_disk(work, 1_000_000)
    assert not work.exists()


def test_what_a_run_left_need_not_be_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1_000_000))
    (tmp_path / "half").write_bytes(b"x" * 1_500_000)
    run.require_disk(tmp_path, 2_000_000)
    (tmp_path / "half").unlink()
    (tmp_path / "half").symlink_to("/dev/zero")
    with pytest.raises(SystemFailureError):
        run.require_disk(tmp_path, 2_000_000)
