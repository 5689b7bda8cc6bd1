"""Data types and what tensors of them do, random numbers, and torch.amp."""

from __future__ import annotations

import torch
from torch import nn

from .harness import Answer, require, runs

_VALUES = (0, 1, 2, 3, 5, 7, 1, 4)  # exact in every type but bool, and so are the sums of pairs


@runs("gpu or cpu")
def dtype(answer: Answer, name: str) -> None:
    """A type: tensors of it hold their values, and compute."""
    kind, device = getattr(torch, name), answer.device
    expected = torch.tensor(_VALUES, dtype=torch.float64)
    expected = expected.bool().double() if kind is torch.bool else expected
    with answer.check("values there and back"):
        on_device = torch.tensor(_VALUES, dtype=torch.float64).to(kind).to(device)
        require(
            on_device.dtype == kind and on_device.device.type == device.type, "not of that type, or elsewhere"
        )
        require(torch.equal(_values(on_device), expected), "different values came back")
    with answer.check("conversion on the device"):
        converted = torch.tensor(_VALUES, dtype=torch.float32, device=device).to(kind)
        require(torch.equal(_values(converted), expected), "different values were made")
    with answer.optional("zeros"):
        require(not _values(torch.zeros(8, dtype=kind, device=device)).any(), "they are not zero")
    with answer.optional("indexing"):
        chosen = torch.tensor([1, 3, 5])
        require(torch.equal(_values(on_device[chosen.to(device)]), expected[chosen]), "different elements")
    with answer.optional("addition"):
        total = (expected + expected).clamp(max=1) if kind is torch.bool else expected + expected
        require(torch.equal(_values(on_device + on_device), total), "a wrong sum")
    if kind.is_floating_point or kind.is_complex:
        with answer.optional("matrix product"):
            # 2 x 1, sixteen times. GPUs multiply types of 8 bits by sixteens, the second matrix by columns,
            # and one of the two must have four bits of exponent.
            ones = torch.ones(16, 16, device=device)
            if kind.itemsize == 1:
                scalar = torch.ones((), device=device)
                twos = (ones * 2).to(torch.float8_e4m3fn).t()
                product = torch._scaled_mm(ones.to(kind), twos, scalar, scalar, out_dtype=torch.bfloat16)
            else:
                product = ones.to(kind) @ (ones * 2).to(kind)
            require((_values(product) == 2 * 16).all(), "a wrong product")


def _values(tensor: torch.Tensor) -> torch.Tensor:
    on_cpu = tensor.to("cpu")
    return on_cpu.to(torch.complex128).real if on_cpu.dtype.is_complex else on_cpu.to(torch.float64)


@runs("gpu or cpu")
def quantized(answer: Answer, name: str) -> None:
    """A quantised type: values are made to it and back, within a step."""
    kind, device = getattr(torch, name), answer.device
    values = torch.tensor([[0.0, 0.5, 1.0, 1.5], [2.0, 2.5, 3.0, 3.5]], device=device)
    with answer.check("quantise and dequantise"):
        if kind is torch.quint4x2:  # one scale for each row is the only scheme it has
            scales, zeros = torch.full((2,), 0.5, device=device), torch.zeros(2, device=device)
            quantised = torch.quantize_per_channel(values, scales, zeros, 0, kind)
        else:
            quantised = torch.quantize_per_tensor(values, 0.5, 0, kind)
        require(quantised.dtype == kind, "not of that type")
        require(torch.equal(quantised.dequantize().cpu(), values.cpu()), "different values came back")
    with answer.optional("copy to the CPU"):
        require(torch.equal(quantised.cpu().dequantize(), values.cpu()), "different values were copied")


@runs("gpu or cpu")
def operations(answer: Answer) -> None:
    """Additions and products agree with the CPU's."""
    torch.manual_seed(0)
    a, b = torch.randn(129, 257), torch.randn(257, 65)
    with answer.check("addition"):
        torch.testing.assert_close((a.to(answer.device) + 1).cpu(), a + 1)
    with answer.check("matrix product"):
        exact = a.double() @ b.double()
        product = a.to(answer.device) @ b.to(answer.device)
        torch.testing.assert_close(product.cpu().double(), exact, rtol=1e-3, atol=1e-3)


@runs("gpu or cpu")
def random_numbers(answer: Answer) -> None:
    """A generator of the device: it follows its seed, and its state can be kept."""
    device = answer.device
    generator = torch.Generator(device).manual_seed(7)
    with answer.check("numbers follow the seed"):
        first = torch.rand(1000, device=device, generator=generator)
        again = torch.rand(1000, device=device, generator=torch.Generator(device).manual_seed(7))
        different = torch.rand(1000, device=device, generator=torch.Generator(device).manual_seed(8))
        require(torch.equal(first, again) and not torch.equal(first, different), "they do not")
    with answer.check("the state is kept"):
        state = generator.get_state()
        first = torch.randn(1000, device=device, generator=generator)
        generator.set_state(state)
        require(
            torch.equal(first, torch.randn(1000, device=device, generator=generator)), "different numbers"
        )
    with answer.optional("distributions"):
        normal = torch.randn(100_000, device=device, generator=generator)
        require(abs(normal.mean()) < 0.05 and abs(normal.std() - 1) < 0.05, "not normal")
        nonzero = torch.nn.functional.dropout(torch.ones(100_000, device=device), 0.25).count_nonzero()
        require(abs(nonzero / 100_000 - 0.75) < 0.05, "dropout keeps a different share")


@runs("gpu or cpu")
def autocast(answer: Answer) -> None:
    """Products are computed in 16 bits, as a context and as a decorator, and training works."""
    device, kinds = answer.device, (torch.float16, torch.bfloat16)
    layer, x = nn.Linear(16, 16).to(device), torch.randn(4, 16, device=device)
    for kind in kinds:
        with (
            answer.check(f"a layer in {str(kind).removeprefix('torch.')}"),
            torch.autocast(device.type, dtype=kind),
        ):
            require(layer(x).dtype == kind, "it computed in a different type")
    with answer.check("as a decorator"):
        decorated = torch.autocast(device.type, dtype=torch.bfloat16)(layer.forward)
        require(decorated(x).dtype == torch.bfloat16, "it computed in a different type")
    with answer.check("gradients are of the parameters' type"):
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = layer(x).float().square().mean()
        loss.backward()
        require(layer.weight.grad is not None and layer.weight.grad.dtype == torch.float32, "they are not")


@runs("gpu or cpu")
def scaling(answer: Answer) -> None:
    """Gradients are unscaled; a step with infinite ones is left out, and halves the scale."""
    device = answer.device
    layer = nn.Linear(4, 1).to(device)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(device.type, init_scale=1024.0)

    def step(factor: float) -> None:
        optimizer.zero_grad()
        scaler.scale(layer(torch.ones(2, 4, device=device)).mean() * factor).backward()
        scaler.unscale_(optimizer)

    with answer.check("gradients are unscaled"):
        step(1.0)
        require(torch.equal(layer.weight.grad.cpu(), torch.ones(1, 4)), "they keep the scale")
        scaler.step(optimizer)
        scaler.update()
    with answer.check("a step that overflows is left out"):
        before = layer.weight.detach().clone()
        step(float("inf"))
        scaler.step(optimizer)
        scaler.update()
        require(torch.equal(layer.weight, before), "the parameters changed")
        require(scaler.get_scale() == 512, "the scale is not halved")


@runs("gpu or cpu")
def operators(answer: Answer) -> None:
    """Each operator has its own rule: less precision, all of it, or the widest of what it is given."""
    device = answer.device
    low = torch.bfloat16
    x = torch.randn(8, 8, device=device)
    with torch.autocast(device.type, dtype=low):
        with answer.check("products in 16 bits"):
            require((x @ x).dtype == low and torch.addmm(x, x, x).dtype == low, "in a different type")
        with answer.check("as functions, methods and modules alike"):
            require(
                x.mm(x).dtype == torch.mm(x, x).dtype == nn.Linear(8, 8).to(device)(x).dtype == low,
                "they differ",
            )
        with answer.check("losses in 32 bits"):
            loss = nn.functional.mse_loss(x.to(low), x.to(low))
            require(loss.dtype == torch.float32, "in a different type")
        with answer.check("the widest type"):
            wide = torch.cat([x.to(low), x])
            require(wide.dtype == torch.float32, "in a different type")
