"""Gradients of more than sums: functions of one's own, second derivatives, checkpoints, and torch.func."""

import math

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.utils.checkpoint import checkpoint

FUNCTIONS = {
    "softmax": lambda x: torch.softmax(x, 1),
    "layer_norm": lambda x: nn.functional.layer_norm(x, (3,)),
    "conv1d": lambda x: nn.functional.conv1d(
        x[None], torch.linspace(-1, 1, 4, dtype=x.dtype).view(1, 2, 2).to(x)
    ),
    "solve": lambda x: torch.linalg.solve(x @ x.T + torch.eye(2, dtype=x.dtype, device=x.device), x),
    "svdvals": torch.linalg.svdvals,
    "fft": lambda x: torch.fft.rfft(x).abs(),
    "cumprod": lambda x: x.cumprod(1),
    "logsumexp": lambda x: x.logsumexp(0),
    "index": lambda x: x[[0, 1, 0], [2, 0, 2]] ** 3,
    "attention": lambda x: nn.functional.scaled_dot_product_attention(x[None], x[None] * 2, x[None]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_the_slopes(device: torch.device, name: str) -> None:
    x = torch.tensor(
        [[0.3, -0.7, 1.1], [0.9, 0.2, -0.4]], dtype=torch.float64, device=device, requires_grad=True
    )
    assert gradcheck(FUNCTIONS[name], x, nondet_tol=1e-9)


def test_gradcheck_sees_a_wrong_gradient() -> None:
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(_context: object, x: torch.Tensor) -> torch.Tensor:
            return x**2

        @staticmethod
        def backward(_context: object, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return gradient

    x = torch.ones(2, dtype=torch.float64, requires_grad=True)
    assert not gradcheck(Wrong.apply, x, raise_exception=False)


def test_a_function_of_ones_own(device: torch.device) -> None:
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(context: torch.autograd.function.FunctionCtx, x: torch.Tensor) -> torch.Tensor:
            context.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(context: torch.autograd.function.FunctionCtx, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            (x,) = context.saved_tensors  # type: ignore[attr-defined]
            return 3 * x**2 * gradient

    x = torch.tensor([1.0, -2.0], dtype=torch.float64, device=device, requires_grad=True)
    assert gradcheck(Cube.apply, x)
    assert gradgradcheck(Cube.apply, x)
    (first,) = torch.autograd.grad(Cube.apply(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert second.tolist() == [6.0, -12.0]


def test_checkpoints_compute_the_same_again(device: torch.device) -> None:
    torch.manual_seed(0)
    layer, calls = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Dropout(0.5)).to(device), []
    layer.register_forward_pre_hook(lambda *_: calls.append(1))
    x = torch.linspace(-1, 1, 8, device=device).view(2, 4).requires_grad_()
    gradients = []
    for run in (lambda: layer(x), lambda: checkpoint(layer, x, use_reentrant=False)):
        torch.manual_seed(1)
        gradients.append(torch.autograd.grad(run().sum(), x)[0])
    torch.testing.assert_close(gradients[1], gradients[0])
    assert len(calls) == 3


def test_gradients_that_nobody_wants_are_not_kept(device: torch.device) -> None:
    x = torch.ones(2, device=device, requires_grad=True)
    with torch.no_grad():
        assert not (x * 2).requires_grad
    with torch.inference_mode():
        assert (x * 2).is_inference()
    y = x * 2
    y.retain_grad()
    seen: list[list[float]] = []
    x.register_hook(lambda gradient: seen.append(gradient.tolist()))
    (y.sum() + y.detach().sum()).backward()
    assert y.grad is not None
    assert (y.grad.tolist(), seen) == ([1, 1], [[2, 2]])
    z = (x.exp() * x).sum()
    z.backward()
    with pytest.raises(RuntimeError, match="second time"):
        z.backward()


def test_transforms_of_functions(device: torch.device) -> None:
    x = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64, device=device)
    cosines = [math.cos(value) for value in x.tolist()]
    assert vmap(grad(torch.sin))(x).tolist() == pytest.approx(cosines)
    for jacobian in (jacrev, jacfwd):
        torch.testing.assert_close(jacobian(torch.sin)(x), torch.diag(torch.cos(x)))
    torch.testing.assert_close(hessian(lambda v: (v**3).sum())(x), torch.diag(6 * x))
    value, tangent = jvp(torch.exp, (x,), (torch.ones_like(x),))
    torch.testing.assert_close(tangent, value)
    _, pull = vjp(lambda v: v * v[0], x)
    torch.testing.assert_close(
        pull(torch.ones_like(x))[0], torch.tensor([2.0, 0.5, 0.5], device=device).double()
    )
    matrices = torch.arange(24.0, device=device).view(2, 3, 4)
    torch.testing.assert_close(
        vmap(torch.mv, in_dims=(0, None))(matrices, matrices[0, 0]), matrices @ matrices[0, 0]
    )
    layer = nn.Linear(3, 1).to(device)
    parameters = {"weight": torch.ones(1, 3, device=device), "bias": torch.zeros(1, device=device)}
    assert functional_call(layer, parameters, (torch.ones(3, device=device),)).item() == 3
