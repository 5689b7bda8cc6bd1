"""Steps of training under `strict`: what is on one device is looked at as a whole, and no mistake missed."""

from __future__ import annotations

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


def test_a_training_step_is_not_looked_at_call_by_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in Python and all on one device is one call: a transformer's block and its optimizer."""
    calls = []
    answer = StrictMode.__torch_function__
    monkeypatch.setattr(
        StrictMode, "__torch_function__", lambda *args: calls.append(args[1]) or answer(*args)
    )
    with torchdevice.redirected("cpu", strict=True):
        model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        data = torch.ones(2, 3, 8, device="cuda")
        for _ in range(2):
            calls.clear()
            optimizer.zero_grad()
            model(data).sum().backward()
            optimizer.step()
    assert len(calls) < 60, calls


def test_gradients_that_a_function_made_on_its_way_are_where_its_inputs_are() -> None:
    if not hasattr(nn, "LinearCrossEntropyOptions"):
        pytest.skip("since PyTorch 2.13")
    options = nn.LinearCrossEntropyOptions(batch_chunk_size=2)
    with torchdevice.redirected("cpu", strict=True):
        data, weight = (torch.ones(8, 4, device="cuda", requires_grad=True) for _ in range(2))
        labels = torch.zeros(8, dtype=torch.long, device="cuda")
        nn.functional.linear_cross_entropy(data, weight, labels, options=options).backward()
        assert (data.grad.device, weight.grad.device) == (data.device, weight.device)
