"""Steps of training under `strict`: what is on one device is looked at as a whole, and no mistake missed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torchdevice
from torch import nn
from torchdevice.strict.mode import StrictMode

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "Adadelta": {},
    "Adagrad": {},
    "Adam": {"amsgrad": True},
    "AdamW": {},
    "Adamax": {},
    "ASGD": {},
    "NAdam": {},
    "RAdam": {},
    "RMSprop": {"momentum": 0.9, "centered": True},
    "Rprop": {},
    "SGD": {"momentum": 0.9},
}


class Last(nn.Module):
    """What a layer gives after the last step."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0][:, -1]


def steps(name: str, device: str, count: int = 3) -> tuple[torch.optim.Optimizer, nn.Module]:
    torch.manual_seed(0)
    model = nn.Linear(3, 2).to(device)
    optimizer = getattr(torch.optim, name)(model.parameters(), **OPTIMIZERS[name])
    for _ in range(count):
        optimizer.zero_grad()
        model(torch.ones(4, 3, device=device)).square().sum().backward()
        optimizer.step()
    return optimizer, model


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_keep_their_state_where_their_parameters_are(name: str) -> None:
    _, expected = steps(name, "cpu")
    with torchdevice.redirected("cpu", strict=True):
        optimizer, model = steps(name, "cuda")
        kept = [
            t for state in optimizer.state.values() for t in state.values() if torch.is_tensor(t) and t.dim()
        ]
        assert kept
        assert {t.device for t in kept} == {torch.device("cuda", 0)}
        assert {p.grad.device for p in model.parameters()} == {torch.device("cuda", 0)}
        for mine, theirs in zip(model.parameters(), expected.parameters(), strict=True):
            assert torch.equal(mine.cpu(), theirs)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_state_that_was_left_behind_ends_the_step(name: str) -> None:
    with torchdevice.redirected("cpu", strict=True):
        optimizer, _ = steps(name, "cuda")
        for state in optimizer.state.values():
            state.update({key: t.cpu() for key, t in state.items() if torch.is_tensor(t) and t.dim()})
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            optimizer.step()


@pytest.mark.parametrize(
    ("layer", "most"),
    [
        pytest.param(lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 50, id="transformer"),
        pytest.param(lambda: Last(nn.LSTM(8, 8, batch_first=True)), 16, id="LSTM"),
    ],
)
def test_a_training_step_is_not_looked_at_call_by_call(
    monkeypatch: pytest.MonkeyPatch, layer: Callable[[], nn.Module], most: int
) -> None:
    """What is in Python and all on one device is one call: a transformer's block and its optimizer."""
    calls: list[Any] = []
    answer = StrictMode.__torch_function__
    monkeypatch.setattr(
        StrictMode, "__torch_function__", lambda *args: calls.append(args[1]) or answer(*args)
    )
    with torchdevice.redirected("cpu", strict=True):
        model = layer().cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        data = torch.ones(2, 3, 8, device="cuda")
        for _ in range(2):
            calls.clear()
            optimizer.zero_grad()
            model(data).sum().backward()
            optimizer.step()
    assert len(calls) <= most, calls


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_a_recurrent_layer_that_is_looked_at_once_says_where_its_results_are(kind: type[nn.RNNBase]) -> None:
    layer, data = kind(3, 4, 2, batch_first=True), torch.randn(5, 6, 3)
    expected, _ = layer(data)
    packed = nn.utils.rnn.pack_padded_sequence
    with torchdevice.redirected("cpu", strict=True, count=2):
        layer, on_cuda = layer.cuda(), data.cuda()
        result, state = layer(on_cuda)
        assert torch.equal(result.cpu(), expected)
        again, state = layer(on_cuda, state)
        states = state if isinstance(state, tuple) else (state,)
        rows, _ = layer(packed(on_cuda, torch.tensor([6, 5, 4, 3, 2]), batch_first=True))
        assert {x.device for x in (result, again, *states, rows.data)} == {on_cuda.device}
        for moved in (lambda: layer(data), lambda: layer(data.to("cuda:1")), lambda: layer.cpu()(on_cuda)):
            with pytest.raises(RuntimeError, match="Input and parameter tensors are not at the same device"):
                moved()
        with pytest.raises(RuntimeError, match="Input and hidden tensors are not at the same device"):
            layer.cuda()(on_cuda, tuple(s.cpu() for s in states) if len(states) > 1 else states[0].cpu())
        parametrized = nn.utils.parametrizations.weight_norm(layer, "weight_hh_l0")
        parametrized.parametrizations.weight_hh_l0.original0.data = torch.ones(len(layer.weight_hh_l0), 1)
        with pytest.raises(RuntimeError, match="device"):
            parametrized(on_cuda)


def test_the_backward_of_an_operator_of_python_is_where_its_results_are() -> None:
    """PyTorch calls it inside the operator, where no mode is told of it."""

    @torch.library.custom_op("torchdevice_tests::scaled", mutates_args=())
    def scaled(x: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
        return x * factors

    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        (factors,) = ctx.saved_tensors
        return torch.ones(4, device=factors.device).mul_(gradient * factors), None

    scaled.register_autograd(
        backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[1])
    )
    with torchdevice.redirected("cpu", strict=True):
        x, factors = torch.ones(4, device="cuda", requires_grad=True), torch.full((4,), 3.0, device="cuda")
        scaled(x, factors).sum().backward()
        assert (x.grad.device, x.grad.tolist()) == (x.device, [3.0] * 4)


def test_the_body_of_an_operator_of_python_runs_with_no_mode() -> None:
    seen = []

    @torch.library.custom_op("torchdevice_tests::looked_at", mutates_args=())
    def looked_at(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        seen.append((x.device.type, torch._C._len_torch_function_stack()))
        return x * y + torch.ones(4, device=x.device)

    with torchdevice.redirected("cpu", strict=True):
        x = torch.ones(4, device="cuda")
        assert looked_at(x, x).device == x.device
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            looked_at(x, torch.ones(4))
    assert seen == [("cpu", 0)]


def test_gradients_that_a_function_made_on_its_way_are_where_its_inputs_are() -> None:
    if not hasattr(nn, "LinearCrossEntropyOptions"):
        pytest.skip("since PyTorch 2.13")
    options = nn.LinearCrossEntropyOptions(batch_chunk_size=2)
    with torchdevice.redirected("cpu", strict=True):
        data, weight = (torch.ones(8, 4, device="cuda", requires_grad=True) for _ in range(2))
        labels = torch.zeros(8, dtype=torch.long, device="cuda")
        nn.functional.linear_cross_entropy(data, weight, labels, options=options).backward()
        assert (data.grad.device, weight.grad.device) == (data.device, weight.device)


def test_what_mixes_devices_imports_no_compiler(run: Callable[..., str]) -> None:
    code = """
import sys, torch
assert (torch.ones(2, device="cuda") * torch.tensor(2.0)).tolist() == [2, 2]
try:
    torch.ones(2, device="cuda") + torch.ones(2)
except RuntimeError as error:
    print(error)
print("torch._dynamo" in sys.modules)
"""
    printed = run(code, "-m", "torchdevice", "--to=cpu", "--strict", "SCRIPT")
    assert printed.splitlines()[-1] == "False"
    assert "two devices, cuda:0 and cpu" in printed
