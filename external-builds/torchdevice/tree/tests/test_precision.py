"""Autocast gives each operation the dtype that CUDA's own rules give it; every PyTorch has them."""

from __future__ import annotations

import contextlib

import pytest
import torch
import torchdevice
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F  # noqa: N812
from torch.utils.checkpoint import checkpoint
from torchdevice.emulation import precision

# Fused, or made of what has a rule, or not for the CPU at all.
LEFT = """_convolution convolution cudnn_convolution cudnn_convolution_transpose _thnn_fused_gru_cell
_thnn_fused_lstm_cell _scaled_dot_product_flash_attention"""
CALLS = {
    "1 / x": lambda x, y: 1 / x,
    "exp": lambda x, y: x.exp(),
    "pow": lambda x, y: x**2,
    "sum": lambda x, y: x.sum(),
    "sum of a dimension": lambda x, y: x.sum(0),
    "sum in a dtype": lambda x, y: x.sum(0, dtype=torch.float16),
    "softmax": lambda x, y: x.softmax(0),
    "softmax in a dtype": lambda x, y: x.softmax(0, dtype=torch.float16),
    "cumsum": lambda x, y: x.cumsum(0),
    "norm": lambda x, y: x.norm(),
    "layer_norm": lambda x, y: F.layer_norm(x, (4,)),
    "mse_loss": lambda x, y: F.mse_loss(x, x),
    "interpolate": lambda x, y: F.interpolate(x[None, None], scale_factor=2),
    "matmul": lambda x, y: x @ y.T,
    "mv": lambda x, y: torch.mv(y, x[0]),
    "einsum that multiplies": lambda x, y: torch.einsum("nd,n->nd", x, y[:, 0]),
    "linear": lambda x, y: F.linear(y, y),
    "addcmul": lambda x, y: torch.addcmul(x, x, y),
    "atan2": lambda x, y: torch.atan2(x, x),
    "x + y": lambda x, y: x + y,
    "x * x": lambda x, y: x * x,
    "relu": lambda x, y: x.relu(),
    "exp of float64": lambda x, y: x.double().exp(),
}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_dtypes_are_those_of_cuda(strict: bool, dtype: torch.dtype) -> None:
    with FakeTensorMode():
        x, y = (torch.empty(3, 4, device="cuda", dtype=kind) for kind in (dtype, torch.float32))
        before = torch.get_autocast_dtype("cuda")
        torch.set_autocast_enabled("cuda", True)
        torch.set_autocast_dtype("cuda", dtype)
        try:
            expected = {}
            for name, call in CALLS.items():
                with contextlib.suppress(RuntimeError):  # not all can be asked without CUDA
                    expected[name] = call(x, y).dtype
        finally:
            torch.set_autocast_enabled("cuda", False)
            torch.set_autocast_dtype("cuda", before)
    assert len(expected) > 18
    assert expected["1 / x"] is torch.float32
    assert expected["matmul"] is dtype
    with torchdevice.redirected("cpu", strict=strict):
        x, y = (torch.ones(3, 4, device="cuda", dtype=kind) for kind in (dtype, torch.float32))
        with torch.autocast("cuda", dtype):
            results = {name: call(x, y) for name, call in CALLS.items() if name in expected}
        assert {result.device for result in results.values()} == {x.device}
    assert {name: result.dtype for name, result in results.items()} == expected


def test_every_rule_that_cuda_has_and_the_cpu_lacks() -> None:
    def ruled(key: str) -> set[str]:
        names = torch._C._dispatch_get_all_op_names()
        return {name for name in names if torch._C._dispatch_has_kernel_for_dispatch_key(name, key)}

    ours = {f"aten::{name}" for name in f"{precision._SINGLE} {precision._LOWER} {precision._WIDEST}".split()}
    assert ours <= ruled("AutocastCUDA")
    left = {name for name in ruled("AutocastCUDA") - ruled("AutocastCPU") - ours if name.startswith("aten::")}
    assert left == {f"aten::{name}" for name in LEFT.split()}


def test_what_would_overflow_in_half_does_not() -> None:
    with torchdevice.redirected("cpu"), torch.autocast("cuda"):
        assert (1 / torch.full((2,), 4e-6, device="cuda", dtype=torch.float16)).isfinite().all()


@pytest.mark.parametrize("strict", [False, True])
def test_a_checkpoint_computes_the_same_again(strict: bool) -> None:
    with torchdevice.redirected("cpu", strict=strict):
        x, w = torch.rand(3, 3, device="cuda", requires_grad=True), torch.rand(3, 3, device="cuda")
        gradients = []
        for run in (lambda call: call(x), lambda call: checkpoint(call, x, use_reentrant=False)):
            with torch.autocast("cuda"):
                loss = run(lambda value: (value @ w).exp().sum())
            gradients += torch.autograd.grad(loss, x)
        assert torch.equal(*gradients)


def test_compiled_where_a_graph_breaks_inside(run) -> None:
    run("""
import torch, torchdevice
def compute(x, broken=True):
    with torch.autocast("cuda"):
        y = x @ x
        if broken:
            torch._dynamo.graph_break()
        return y.exp().sum() + (1 / y).sum()
with torchdevice.redirected("cpu"):
    x = torch.rand(2, 2, device="cuda", requires_grad=True)
    expected = compute(x, broken=False)
    loss = torch.compile(compute, backend="aot_eager")(x)
    assert torch.equal(loss, expected)
    assert loss.dtype is torch.float32
    gradients = [torch.autograd.grad(value, x)[0] for value in (loss, expected)]
    torch.testing.assert_close(*gradients, rtol=0.01, atol=0.01)  # half, in another order
""")


def test_gradients_come_in_the_dtype_of_the_parameters() -> None:
    with torchdevice.redirected("cpu"):
        model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Softmax(-1)).cuda()
        x = torch.randn(3, 4, device="cuda")
        model(x).square().sum().backward()
        single = [parameter.grad.clone() for parameter in model.parameters()]
        model.zero_grad()
        with torch.autocast("cuda"):
            loss = model(x).square().sum()
        assert loss.dtype is torch.float32
        loss.backward()
        for parameter, expected in zip(model.parameters(), single, strict=True):
            torch.testing.assert_close(parameter.grad, expected, rtol=0.05, atol=0.005)


def test_a_process_that_disables_has_the_rules_of_before(run) -> None:
    run("""
import torch, torchdevice
def rules():
    names = torch._C._dispatch_get_all_op_names()
    return {n for n in names if torch._C._dispatch_has_kernel_for_dispatch_key(n, "AutocastCPU")}
before = rules()
torchdevice.enable("cpu")
assert len(rules()) > len(before) + 50
torchdevice.disable()
assert rules() == before
torchdevice.enable("cpu", features="-amp")
assert rules() == before
""")
