"""A runner whose GPUs are not those of a leg is refused before anything is installed."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest

from cairn.errors import PrerequisiteError, StoreError, TestsFailedError
from cairn.pipeline.night import stage
from cairn.pipeline.night.plan import NightRun
from cairn.pipeline.night.smoke import LegTest, smoke_leg
from cairn.stack import Sdk
from helpers.night import Build


def machine(folder: Path, *versions: int) -> Path:
    """What the kernel says of a machine with these GPUs (`gfx_target_version`), and a CPU."""
    for number, version in enumerate((0, *versions)):
        node = folder / "nodes" / str(number)
        node.mkdir(parents=True)
        (node / "properties").write_text(f"gfx_target_version {version}\n")
    return folder / "nodes"


def try_on(run: NightRun, folder: Path, *versions: int) -> None:
    stack = msgspec.structs.replace(run.stack, sdk=Sdk())  # one that reaches GPUs
    one = dataclasses.replace(run, stack=stack)
    smoke_leg(LegTest(run=one, leg=run.plan.legs[0], work_dir=folder / "t", gpus=machine(folder, *versions)))


@pytest.fixture
def staged(run: NightRun, build: Build, tmp_path: Path) -> NightRun:
    build(run.plan.legs[0])
    stage.stage_night(run, tmp_path / "artifacts")
    return run


def test_one_with_a_different_gpu_is_refused(staged: NightRun, tmp_path: Path) -> None:
    with pytest.raises(TestsFailedError, match="invalid: this machine has gfx1100") as refused:
        try_on(staged, tmp_path, 110000)
    assert refused.value.tip == "the labels linux-gpu are on the wrong machine; nothing was tested"
    assert not (tmp_path / "t").exists()


def test_so_is_one_with_a_different_gpu_beside_the_right_one(staged: NightRun, tmp_path: Path) -> None:
    with pytest.raises(TestsFailedError, match="invalid: this machine has gfx1100, gfx942") as refused:
        try_on(staged, tmp_path, 110000, 90402)
    assert refused.value.tip == "hide the others from the runner: ROCR_VISIBLE_DEVICES=1; nothing was tested"


def test_one_without_any_is_refused(staged: NightRun, tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError, match="has no GPU that programs may use"):
        try_on(staged, tmp_path)


def test_one_whose_gpus_are_hidden_is_refused(
    staged: NightRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "-1")
    with pytest.raises(PrerequisiteError, match="has no GPU that programs may use"):
        try_on(staged, tmp_path, 90402)


def test_what_is_not_staged_cannot_be_tested(run: NightRun, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is staged"):
        try_on(run, tmp_path, 90402)
