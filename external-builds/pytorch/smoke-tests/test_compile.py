"""torch.compile: generated code computes what the function does, by triton on a GPU, in C++ on the CPU."""

import importlib
import importlib.util
import os
import shutil
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement
from torch import nn
from torch._inductor import config, utils

# What triton starts its kernels with is compiled as C, what the CPU computes with as C++.
COMPILERS = {"cuda": ("CC", "gcc", "clang", "cc", "cl"), "cpu": ("CXX", "g++", "clang++", "c++", "cl")}


def requires_setuptools() -> bool:
    """Whether torch's metadata asks for setuptools under this Python."""
    listed = map(Requirement, metadata.requires("torch") or [])
    return any(each.name == "setuptools" and (not each.marker or each.marker.evaluate()) for each in listed)


@pytest.fixture
def compiled_on(
    device: torch.device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[torch.device]:
    """A device that code can be generated for; nothing of an earlier run is used again."""
    variable, *programs = COMPILERS[device.type]
    if not any(map(shutil.which, filter(None, (os.environ.get(variable), *programs)))):
        pytest.skip(f"no compiler of {'C++' if device.type == 'cpu' else 'C'} is installed")
    try:
        importlib.import_module("torch.utils.cpp_extension")
    except ModuleNotFoundError as error:
        # Torch 2.7 requires it only for Pythons whose `venv` does not bring it.
        if error.name != "setuptools" or requires_setuptools():
            raise
        pytest.skip("setuptools, which this torch compiles with and does not require, is not installed")
    if device.type == "cuda":
        assert importlib.util.find_spec("triton"), "triton is not installed beside a torch for GPUs"
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    torch.compiler.reset()
    # Otherwise a pool of processes is started, which holds as many copies of torch as there are cores.
    with config.patch(compile_threads=1):
        yield device


def test_a_fused_function_and_its_gradient(compiled_on: torch.device) -> None:
    def curve(x: torch.Tensor) -> torch.Tensor:
        return (torch.exp(-x * x) * torch.sin(3 * x)).sum()

    points = torch.linspace(-2, 2, 1023, device=compiled_on)
    plain, generated = (points.clone().requires_grad_() for _ in range(2))
    expected, found = curve(plain), torch.compile(curve, fullgraph=True)(generated)
    expected.backward()
    found.backward()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert plain.grad is not None
    torch.testing.assert_close(generated.grad, plain.grad, rtol=1e-4, atol=1e-5)


def test_the_code_was_generated_for_the_device(compiled_on: torch.device) -> None:
    layer = nn.Linear(64, 32).to(compiled_on)
    x = torch.linspace(-1, 1, 8 * 64, device=compiled_on).view(8, 64)
    function = torch.compile(lambda x: nn.functional.gelu(layer(x)) * 2)
    with torch.no_grad():
        found, sources = utils.run_and_get_code(function, x)
        torch.testing.assert_close(found, nn.functional.gelu(layer(x)) * 2, rtol=1e-3, atol=1e-3)
    # Not only the right result, which the fallback to plain operators would have, too.
    mark = "@triton.jit" if compiled_on.type == "cuda" else 'extern "C"'
    assert any(mark in source for source in sources)
