"""The one table has every function of torch.cuda, and everything in it is there."""

from __future__ import annotations

import types

import pytest
import torch
from torchdevice import matrix
from torchdevice.catalog import functions
from torchdevice.matrix import Status


def test_all_of_torch_cuda_has_an_entry() -> None:
    """A new torch may not bring a function that nobody has thought about."""
    named = {entry.path for entry in matrix.entries()}
    missing = [
        name
        for name, value in vars(torch.cuda).items()
        if not name.startswith("_")
        and not isinstance(value, types.ModuleType)
        and f"torch.cuda.{name}" not in named
    ]
    assert missing == []


def test_every_entry_finds_its_code() -> None:
    for entry in matrix.entries():
        assert not entry.by or callable(entry.code)


def test_rules_find_what_takes_a_device() -> None:
    found = {entry.path: entry for entry in matrix.entries()}
    for path in ("torch.zeros", "torch.Tensor.new_zeros", "torch.fft.fftfreq", "torch.nested.nested_tensor"):
        assert found[path].status is Status.TRANSLATED
    assert "torch.add" not in found
    assert "torch.eq" not in found  # its schema knows devices, under other names


def test_paths_that_are_not_there_are_found_nowhere() -> None:
    assert matrix.find("torch.no.such.thing") is None
    assert matrix.find("torch.cuda.nvtx.mark") is not None


@pytest.mark.filterwarnings("ignore")
def test_the_catalogue_has_all_of_torch_and_a_status_for_each() -> None:
    found = {entry.path: entry for entry in matrix.catalogue()}
    assert len(found) > 3000
    expected = {
        "torch.add": Status.NATIVE,
        "torch.Tensor.to": Status.TRANSLATED,
        "torch.nn.functional.relu": Status.NATIVE,
        "torch.distributed.all_reduce": Status.NATIVE,
        "torch.cuda.memory.memory_allocated": Status.EMULATED,
        "torch.cuda.graphs.CUDAGraph": Status.REFUSED,
        "torch.xpu.synchronize": Status.EMULATED,
        "torch.mps.synchronize": Status.EMULATED,
        "torch.xpu.is_available": Status.NATIVE,
        "torch.xpu.get_device_capability": Status.ABSENT,
    }
    assert {path: found[path].status for path in expected} == expected


@pytest.mark.filterwarnings("ignore")
def test_what_the_plan_names_is_answered() -> None:
    """But for what this torch has no more."""
    unanswered = {
        function.path
        for function in functions.functions()
        if function.planned and function.status is Status.ABSENT
    }
    assert {path for path in unanswered if matrix.find(path) is not None} == set()
    assert len(unanswered) <= 6


# What torch.cuda has that needs no GPU, or calls what is translated.
_NATIVE_IN_CUDA = {
    "amp.amp_definitely_not_available",
    "amp.common.amp_definitely_not_available",
    "nvtx.range",
    "profiler.profile",
}


@pytest.mark.filterwarnings("ignore")
def test_nothing_of_torch_cuda_is_native_by_mistake() -> None:
    written = {entry.path for entry in matrix.entries()}
    native = [
        entry.path
        for entry in matrix.catalogue()
        if entry.path.startswith("torch.cuda.")
        and entry.status is Status.NATIVE
        and entry.path not in written
    ]
    assert {path.removeprefix("torch.cuda.") for path in native} <= _NATIVE_IN_CUDA
