"""Programs that name GPUs of other makers run, and those that ask first are told that there is none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torchdevice

KINDS = ["hip", "mps", "mtia", "xpu"]


@pytest.fixture(params=[False, True], ids=["redirect", "strict"], autouse=True)
def strict(request: pytest.FixtureRequest) -> Iterator[bool]:
    with torchdevice.redirected("cpu", count=2, strict=request.param):
        yield request.param


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_go_there(kind: str, strict: bool) -> None:
    x = torch.ones(2, 2, device=kind)
    module = torch.nn.Linear(2, 2).to(kind)
    loss = module(torch.ones(1, 2).to(torch.device(kind, 0)) @ x).sum()
    loss.backward()
    expected = torch.device(kind, 0) if strict else torch.device("cpu")
    for tensor in (x, module.weight, module.weight.grad, loss, x.to("cpu").to(x), torch.zeros_like(x)):
        assert tensor.device == expected
    assert torch.Generator(device=kind).manual_seed(1).device.type == expected.type
    with torch.autocast(kind, torch.bfloat16):
        assert (x @ x).dtype is torch.bfloat16
    assert (x.is_cuda, x.is_mps, x.is_xpu) == (False, kind == "mps" and strict, kind == "xpu" and strict)
    assert "1." in repr(x)
    if strict:
        assert x.type() == f"torch.{kind}.FloatTensor"
        with pytest.raises(RuntimeError, match=f"found at least two devices, {kind}:0 and cpu!"):
            x + torch.ones(2, 2)
        with pytest.raises(TypeError, match=f"can't convert {kind}:0 device type tensor"):
            x.numpy()
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        x.to(f"{kind}:2")


@pytest.mark.parametrize("name", ["cuda", "xpu", "mtia"])
def test_the_machine(name: str) -> None:
    module = torch.get_device_module(name)
    module.init()
    module.set_device(1)
    assert module.current_device() == 1
    state = module.get_rng_state(name)
    drawn = torch.rand(2)
    module.set_rng_state(state, name)
    assert torch.rand(2).equal(drawn)
    with module.stream(module.current_stream()):
        module.synchronize()
    module.empty_cache()
    assert module.max_memory_allocated(f"{name}:0") >= torch.ones(10, device=name).nbytes
    assert module.memory_stats()["num_ooms"] == 0


def test_metal() -> None:
    torch.mps.manual_seed(3)
    state = torch.mps.get_rng_state()
    torch.mps.set_rng_state(state)
    torch.mps.seed()
    torch.mps.synchronize()
    torch.mps.empty_cache()
    x = torch.ones(10, device="mps")
    assert x.nbytes <= torch.mps.current_allocated_memory() < torch.mps.recommended_max_memory()
    torch.mps.set_per_process_memory_fraction(1.5)
    with pytest.raises(ValueError, match="Allowed range: 0~2"):
        torch.mps.set_per_process_memory_fraction(3.0)
    with pytest.raises(torchdevice.RefusedError, match="Metal source"):
        torch.mps.compile_shader("")


def test_those_that_ask_first_go_on_to_cuda() -> None:
    assert not torch.xpu.is_available()
    assert not torch.backends.mps.is_available()
    assert not torch.mtia.is_available()
    assert torch.version.hip is None
    assert torch.cuda.is_available()
