"""torch.backends and torch.compile: precision, determinism, attention, and each stage of the compiler."""

from __future__ import annotations

import shutil

import torch
from torch import nn

from .harness import Answer, NotMeasurableError, require, runs


@runs("gpu")
def plan_cache(answer: Answer) -> None:
    """The cache of FFT plans is filled, and can be emptied."""
    cache = torch.backends.cuda.cufft_plan_cache
    with answer.check("transforms fill it"):
        x = torch.randn(8, 96, device="cuda")
        torch.testing.assert_close(torch.fft.irfft(torch.fft.rfft(x)), x, rtol=1e-4, atol=1e-4)
        require(cache.size >= 1, "it stays empty")
    with answer.optional("emptying it"):
        cache.clear()
        require(cache.size == 0, "it is not empty")


@runs("gpu")
def plan_cache_size(answer: Answer) -> None:
    """The most plans that the cache holds can be set, and holds."""
    cache = torch.backends.cuda.cufft_plan_cache
    with answer.check("setting its size"):
        cache.max_size = 2
        require(cache.max_size == 2, "it keeps a different size")
        for size in (32, 48, 64, 96):
            torch.fft.rfft(torch.randn(4, size, device="cuda"))
        require(cache.size <= 2, f"it holds {cache.size} plans")


@runs("gpu")
def tf32_products(answer: Answer) -> None:
    """With the flag, products of float32 are computed with ten bits of mantissa; without it, with all."""
    _tf32(answer, torch.backends.cuda.matmul, lambda a, b: a @ b)


@runs("gpu")
def tf32_convolutions(answer: Answer) -> None:
    """The same for convolutions."""
    # A product as a convolution of width 1, of a kind that libraries compute by matrix instructions.
    _tf32(
        answer,
        torch.backends.cudnn,
        lambda a, b: nn.functional.conv2d(a.t()[None, :, :, None], b.t()[:, :, None, None])[0, :, :, 0].t(),
    )


def _tf32(answer: Answer, flags: object, product: object) -> None:
    # 1 + 2^-12 needs twelve bits: TF32 makes it 1. (A sum of 256 of them is exact in float32.)
    exact = 1 + 2**-12
    a, b = torch.full((256, 256), exact, device="cuda"), torch.ones(256, 256, device="cuda")

    def is_exact() -> bool:
        return bool((product(a, b) == 256 * exact).all())  # type: ignore[operator]

    with answer.check("the flag off: float32 is exact"):
        flags.allow_tf32 = False  # type: ignore[attr-defined]
        require(is_exact(), "it is not")
    with answer.check("the flag on: TF32 is used"):
        flags.allow_tf32 = True  # type: ignore[attr-defined]
        require(flags.allow_tf32, "the flag stays off")  # type: ignore[attr-defined]
        require(not is_exact(), "the flag changes nothing: products are exact to float32")


@runs("gpu or cpu")
def reduced_precision(answer: Answer, name: str) -> None:
    """The flag for sums in less precision is kept, and products are right with and without it."""
    flag = {
        "float16": "allow_fp16_reduced_precision_reduction",
        "bfloat16": "allow_bf16_reduced_precision_reduction",
    }
    kind = getattr(torch, name)
    a = torch.ones(64, 512, device=answer.device, dtype=kind)
    for value in (False, True):
        with answer.check(f"{'with' if value else 'without'} reduced sums"):
            setattr(torch.backends.cuda.matmul, flag[name], value)
            require(getattr(torch.backends.cuda.matmul, flag[name]) == value, "the flag is not kept")
            require((a @ a.t() == 512).all(), "a wrong product")


@runs("gpu")
def deterministic(answer: Answer) -> None:
    """With the flag, a convolution and its gradients have the same bits each time."""
    torch.manual_seed(0)
    torch.backends.cudnn.deterministic = True
    x = torch.randn(8, 16, 32, 32, device="cuda")
    layer = nn.Conv2d(16, 32, 3, padding=1).cuda()

    def gradients() -> list[torch.Tensor]:
        layer.zero_grad()
        layer(x).square().mean().backward()
        return [parameter.grad.clone() for parameter in layer.parameters() if parameter.grad is not None]

    with answer.check("gradients of a convolution"):
        require(torch.backends.cudnn.deterministic, "the flag is not kept")
        first = gradients()
        for _ in range(3):
            require(all(map(torch.equal, first, gradients())), "they differ between two runs")


@runs("gpu or cpu")
def attention(answer: Answer, name: str) -> None:
    """One kernel of scaled_dot_product_attention: it can be switched, and computes when it is the only one.

    Args:
        answer: what is found.
        name: `flash`, `mem_efficient`, `math`, `cudnn`.
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel

    only = {
        "flash": SDPBackend.FLASH_ATTENTION,
        "mem_efficient": SDPBackend.EFFICIENT_ATTENTION,
        "math": SDPBackend.MATH,
        "cudnn": SDPBackend.CUDNN_ATTENTION,
    }
    with answer.check("switching it"):
        for value in (False, True):
            getattr(torch.backends.cuda, f"enable_{name}_sdp")(value)
            require(getattr(torch.backends.cuda, f"{name}_sdp_enabled")() == value, "the switch is not kept")
    torch.manual_seed(0)
    kind = torch.float16 if answer.device.type == "cuda" else torch.float32
    query, key, value = (
        torch.randn(2, 4, 128, 64, device=answer.device, dtype=kind, requires_grad=True) for _ in range(3)
    )
    expected = torch.softmax(query.double() @ key.double().transpose(-1, -2) / 8, -1) @ value.double()
    with answer.check("computing with it alone"), sdpa_kernel([only[name]]):
        result = nn.functional.scaled_dot_product_attention(query, key, value)
        torch.testing.assert_close(result.double(), expected, rtol=2e-2, atol=2e-2)
    with answer.optional("gradients"), sdpa_kernel([only[name]]):
        nn.functional.scaled_dot_product_attention(query, key, value).square().mean().backward()
        require(query.grad is not None and query.grad.isfinite().all(), "they are not finite")


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
