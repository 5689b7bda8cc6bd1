"""torch.amp."""

from __future__ import annotations

import torch
from torch import nn

from .answer import Answer, require, runs


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
