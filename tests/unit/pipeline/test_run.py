"""What a run of the whole trail asks for before its first stage, and what it builds with."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import msgspec
import pytest

from cairn import files
from cairn.build import job
from cairn.errors import StoreError, SystemFailureError, UsageError
from cairn.pipeline import run
from cairn.pipeline.trail import TrailRequest
from cairn.stack import Feature, Sdk, Stack
from helpers.build import project
from helpers.testing import named_set, named_wheel


def trail_request(work_dir: Path) -> TrailRequest:
    stack = Stack(
        name="s",
        line="l",
        targets=("gfx942",),
        projects=(project("torch"), project("triton")),
        features={"flash_attention": Feature(needs=("triton",), targets=("gfx94",))},
    )
    return TrailRequest(stack=stack, targets=("gfx942",), work_dir=work_dir)


def test_two_runs_never_share_a_work_folder(tmp_path: Path) -> None:
    with files.locked(tmp_path / "run.lock"), pytest.raises(SystemFailureError, match="another run"):
        run.run(trail_request(tmp_path))


def test_the_trail_builds_with_the_features_that_work(tmp_path: Path) -> None:
    request = trail_request(tmp_path)
    both = job.resolve(run.build_job(request, {"torch": tmp_path, "triton": tmp_path}), None)
    assert both.features == {"flash_attention"}
    assert not job.resolve(run.build_job(request, {"torch": tmp_path}), None).features


def test_a_run_for_the_cpu_needs_no_sdk_of_a_stack_that_has_one(tmp_path: Path) -> None:
    request = trail_request(tmp_path)
    stack = msgspec.structs.replace(request.stack, sdk=Sdk(version="7.10.0"))
    for target, with_rocm in (("cpu", False), ("gfx942", True)):
        one = dataclasses.replace(request, stack=stack, targets=(target,))
        assert one.with_rocm is with_rocm
        asked = run.build_job(one, {"torch": tmp_path})
        assert (asked.install_rocm, asked.for_cpu()) == (with_rocm, not with_rocm)


def test_what_cannot_be_built_for_gpus_is_refused_before_the_checkout(tmp_path: Path) -> None:
    request = trail_request(tmp_path)
    stack = msgspec.structs.replace(request.stack, sdk=Sdk(version="7.10.0"))
    with pytest.raises(UsageError, match="does not say how to make its ROCm SDK"):
        run.run(dataclasses.replace(request, stack=stack))
    with pytest.raises(UsageError, match="s is built without ROCm, and not for gfx942"):
        run.run(request)
    assert not (tmp_path / "src").exists()


def test_an_install_that_fails_is_told_in_words(tmp_path: Path) -> None:
    request = trail_request(tmp_path)
    (request.store_dir / "release" / "simple").mkdir(parents=True)
    wheel_set = named_set(named_wheel("no_such_project-1-py3-none-any.whl"), set_id="0" * 64)
    with pytest.raises(StoreError, match="pip cannot install the set from file://") as caught:
        run.install_from_release(request, wheel_set)
    assert "No matching distribution found for no-such-project==1" in str(caught.value)
    assert "('" not in str(caught.value)


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
