"""A runner whose GPUs are not those of a leg is refused before anything is installed."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest

from cairn.errors import PrerequisiteError, StoreError, TestsFailedError
from cairn.pipeline.night import hanging, report
from cairn.pipeline.night.plan import NightRun
from cairn.pipeline.night.smoke import LegTest, smoke_leg
from cairn.stack import Sdk
from cairn.testing.gpus import kernel
from helpers.hardware import kernel_nodes
from helpers.night import Night


def try_on(run: NightRun, folder: Path, *versions: int) -> None:
    stack = msgspec.structs.replace(run.stack, sdk=Sdk())  # one that reaches GPUs
    one = dataclasses.replace(run, stack=stack)
    smoke_leg(
        LegTest(run=one, leg=run.plan.legs[0], work_dir=folder / "t", gpus=kernel_nodes(folder, *versions))
    )


@pytest.fixture
def staged(night: Night) -> NightRun:
    night.built_and_staged()
    return night.run


def test_one_with_a_different_gpu_is_refused(staged: NightRun, tmp_path: Path) -> None:
    with pytest.raises(TestsFailedError, match="invalid: this machine has gfx1100") as refused:
        try_on(staged, tmp_path / "other", 110000)
    assert refused.value.tip == "the labels linux-gpu are on the wrong machine; nothing was tested"
    with pytest.raises(TestsFailedError, match="invalid: this machine has gfx1100, gfx942") as refused:
        try_on(staged, tmp_path / "beside the right one", 110000, 90402)
    assert refused.value.tip == "hide the others from the runner: ROCR_VISIBLE_DEVICES=1; nothing was tested"
    assert not list(tmp_path.glob("*/t"))


def test_one_without_any_or_whose_gpus_are_hidden_is_refused(
    staged: NightRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(PrerequisiteError, match="has no GPU that programs may use"):
        try_on(staged, tmp_path / "without")
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "-1")
    with pytest.raises(PrerequisiteError, match="has no GPU that programs may use"):
        try_on(staged, tmp_path / "hidden", 90402)


def test_what_is_not_staged_cannot_be_tested(run: NightRun, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is staged"):
        try_on(run, tmp_path, 90402)


def test_a_gpu_that_hung_is_left_out_for_the_rest_of_the_night_and_named(
    staged: NightRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNNER_NAME", "lab-7")
    night, store = staged.plan.night, staged.store
    machine = kernel.read(kernel_nodes(tmp_path / "machine", 90402, 90402))
    hanging.keep(store, night, machine[1:])
    hanging.keep(store, night, machine[1:])  # a second test that has left it out
    assert hanging.nodes_here(store, night) == (2,)
    assert hanging.nodes_here(store, "another") == ()
    (sentence,) = hanging.sentences(store, night)
    assert sentence.startswith("gfx942 at node 2 of lab-7 hangs, and was left out from 20")
    assert sentence in report.markdown(staged.plan, (), [sentence]).replace("\\", "")
    assert report.of_night(staged)  # its notes are of steps alone
    hanging.keep(store, night, machine)
    with pytest.raises(PrerequisiteError, match="every GPU of this machine hangs: gfx942 at node 1, gfx942"):
        try_on(staged, tmp_path / "again", 90402, 90402)
    monkeypatch.setattr(hanging, "_BOOT", tmp_path / "restarted")
    assert hanging.nodes_here(store, night) == ()
