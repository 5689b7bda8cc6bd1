"""torch.accelerator, and what else asks for "the device there is" without naming it, in both modes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torchdevice

accelerator = torch.accelerator


@pytest.fixture(params=[False, True], ids=["redirect", "strict"], autouse=True)
def place(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    """What the second device is called."""
    with torchdevice.redirected("cpu", count=2, strict=request.param):
        yield torch.device("cuda:1")


def test_there_is_one() -> None:
    assert accelerator.is_available()
    assert accelerator.device_count() == 2
    assert accelerator.current_accelerator() == torch.device("cuda")
    assert accelerator.current_accelerator(check_available=True).index is None
    assert torch.get_device_module() is torch.cuda
    assert torch.get_device_module("cuda:1") is torch.cuda
    assert torch.get_device_module(accelerator.current_accelerator()).is_available()
    # As torch.testing's own `freeze_rng_state` asks: by the type alone, which is "cpu" in `redirect`.
    module = torch.get_device_module(accelerator.current_accelerator().type)
    module.set_rng_state(module.get_rng_state())
    assert (module.memory_allocated() >= 0, module.device_count()) == (True, torch.cuda.device_count())


def test_tensors_go_there(place: torch.device) -> None:
    device = accelerator.current_accelerator()
    x = torch.ones(2).to(device)
    assert x.device.type == device.type
    accelerator.set_device_index(1)
    assert torch.ones(1, device=device).device == place
    assert torch.nn.Linear(2, 2, device=device)(torch.ones(1, 2, device=place)).device == place


def test_the_current_one() -> None:
    assert accelerator.current_device_index() == 0
    with accelerator.device_index(1):
        assert accelerator.current_device_index() == torch.cuda.current_device() == 1
        with accelerator.device_index(None):
            assert accelerator.current_device_index() == 1
    for asked in (1, "cuda:1"):
        accelerator.set_device_index(0)
        accelerator.set_device_index(asked)
        assert torch.cuda.current_device() == 1
    with pytest.warns(FutureWarning, match="current_device_index"):
        assert accelerator.current_device_idx() == 1
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        accelerator.set_device_index(2)


def test_streams() -> None:
    stream = torch.Stream()
    with stream:
        assert accelerator.current_stream() == stream
    accelerator.set_stream(stream)
    assert torch.cuda.current_stream() == stream
    for device in (None, 1, "cuda:1", torch.device("cuda")):
        accelerator.synchronize(device)
        assert isinstance(accelerator.current_stream(device), torch.Stream)
    assert not stream.is_capturing()


def test_events() -> None:
    first, last = (torch.Event(device, enable_timing=True) for device in (None, "cuda"))
    first.record()
    last.record(torch.Stream("cuda:1"))
    last.synchronize()
    assert first.elapsed_time(last) >= 0
    assert isinstance(torch.cuda.Event(), torch.Event)
    assert not isinstance(torch.cuda.Stream(), torch.Event)


def test_memory() -> None:
    x = torch.ones(1000, device="cuda")
    for device in (None, 0, "cuda:0"):
        assert accelerator.memory_allocated(device) >= x.nbytes
        assert accelerator.max_memory_reserved(device) >= x.nbytes
        accelerator.reset_peak_memory_stats(device)
        accelerator.reset_accumulated_memory_stats(device)
    assert accelerator.memory_stats()["allocated_bytes.all.current"] >= x.nbytes
    free, total = accelerator.get_memory_info()
    assert 0 < free <= total
    accelerator.empty_cache()
    accelerator.empty_host_cache()


def test_what_it_can() -> None:
    assert torch.bfloat16 in accelerator.get_device_capability()["supported_dtypes"]
    with pytest.raises(torchdevice.RefusedError, match="replays kernels"):
        accelerator.Graph()


def test_mixed_precision_without_a_name() -> None:
    kind = accelerator.current_accelerator().type
    scaler = torch.amp.GradScaler(kind)
    weight = torch.ones(2, 2, device=kind, requires_grad=True)
    with torch.autocast(kind, torch.bfloat16):
        loss = (weight @ weight).sum()
    assert loss.dtype is torch.float32  # a sum is single
    scaler.scale(loss.float()).backward()
    assert weight.grad is not None


def test_casts_of_functions_with_a_backward_of_their_own() -> None:
    seen = []

    class Twice(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float16)
        def forward(ctx, x, count):
            seen.append((x.dtype, count.dtype, torch.is_autocast_enabled("cuda")))
            return x * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(ctx, gradient):
            return gradient * 2, None

    x, count = (
        torch.ones(2, device="cuda", requires_grad=True),
        torch.ones(1, dtype=torch.long, device="cuda"),
    )
    with torch.autocast("cuda"):
        Twice.apply(x, count).float().sum().backward()
    assert seen == [(torch.float16, torch.int64, False)]
    assert x.grad.device == x.device
    assert Twice.apply(x, count).dtype is torch.float32


def test_default_device() -> None:
    torch.set_default_device(accelerator.current_accelerator())
    try:
        assert torch.ones(1).device.type == torch.get_default_device().type == torch.device("cuda").type
    finally:
        torch.set_default_device(None)
    assert torch.get_default_device() == torch.device("cpu")


@pytest.mark.parametrize("kind", [torch.nn.LazyLinear, torch.nn.LazyConv1d, torch.nn.LazyBatchNorm1d])
def test_modules_without_a_shape_are_sent(kind, place: torch.device) -> None:
    arguments = {torch.nn.LazyLinear: (3,), torch.nn.LazyConv1d: (3, 1), torch.nn.LazyBatchNorm1d: ()}[kind]
    for module in (
        kind(*arguments).to("cuda:1"),
        kind(*arguments).cuda(1),
        kind(*arguments, device="cuda:1"),
    ):
        assert (
            module(
                torch.ones(2, 4, 5 if kind is torch.nn.LazyConv1d else 4)[..., :4].to(place).contiguous()
            ).device
            == place
        )
        assert module.weight.device == place
        assert type(module) is kind.cls_to_become


def test_a_shape_is_still_asked_for() -> None:
    with pytest.raises(ValueError, match="Attempted to use an uninitialized parameter"):
        torch.nn.LazyLinear(3).cuda().weight + 1
