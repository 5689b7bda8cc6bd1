"""torch.compile, stage by stage."""

from __future__ import annotations

import shutil

import torch

from .answer import Answer, NotMeasurableError, require, runs


@runs("gpu or cpu")
def dynamo(answer: Answer) -> None:
    """Python is captured as a graph, with what depends on the shape, and again where an assumption breaks."""
    calls = []

    def backend(module: torch.fx.GraphModule, _inputs: object) -> object:
        calls.append(module)
        return module.forward

    def function(x: torch.Tensor, scale: int) -> torch.Tensor:
        total = x.sin()
        for _ in range(scale):
            total = total + x.cos()
        return total

    compiled = torch.compile(function, backend=backend, fullgraph=True)
    x = torch.linspace(0, 1, 16, device=answer.device)
    with answer.check("capturing a graph"):
        torch.testing.assert_close(compiled(x, 2), function(x, 2))
        require(len(calls) == 1, f"{len(calls)} graphs")
    with answer.check("compiling again where a constant changed"):
        torch.testing.assert_close(compiled(x, 3), function(x, 3))
        require(len(calls) == 2, f"{len(calls)} graphs")


@runs("gpu or cpu")
def aot_autograd(answer: Answer) -> None:
    """The backward pass is captured ahead of time."""
    x = torch.linspace(-1, 1, 16, device=answer.device)
    with answer.check("gradients through a captured backward pass"):
        _compare_gradients("aot_eager", x)


@runs("gpu or cpu")
def inductor(answer: Answer) -> None:
    """Generated code computes what the function does: on GPUs through triton, on the CPU through C++."""
    device = answer.device
    # What triton starts a kernel with is C, and what the CPU computes with is C++.
    compilers = ("gcc", "clang", "cc", "cl") if device.type == "cuda" else ("g++", "clang++", "c++", "cl")
    if not any(map(shutil.which, compilers)):
        raise NotMeasurableError("no compiler of C or C++ is installed, which the generated code needs")
    with answer.check("a fused function and its gradients"):
        _compare_gradients("inductor", torch.linspace(-1, 1, 1024, device=device))
    with answer.check("a product with an epilogue"):
        a = torch.randn(64, 64, device=device)

        def layer(x: torch.Tensor) -> torch.Tensor:
            return torch.relu(x @ a + 1)

        torch.testing.assert_close(torch.compile(layer)(a), layer(a), rtol=1e-3, atol=1e-3)
    if device.type == "cuda":
        with answer.check("triton is what compiled it"):
            from torch.utils._triton import has_triton

            require(has_triton(), "there is no triton for this GPU")


def _compare_gradients(backend: str, x: torch.Tensor) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return (torch.exp(-x * x) * torch.sin(3 * x)).sum()

    plain, through = x.clone().requires_grad_(), x.clone().requires_grad_()
    function(plain).backward()
    torch.compile(function, backend=backend, fullgraph=True)(through).backward()
    torch.testing.assert_close(through.grad, plain.grad, rtol=1e-4, atol=1e-5)
