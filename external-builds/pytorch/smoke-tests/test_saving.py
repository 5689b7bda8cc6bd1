"""torch.save and torch.load: what comes back is what went in, and code does not come along."""

import io
import os
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

KINDS = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
    torch.int8, torch.uint8, torch.bool, torch.complex64,
]  # fmt: skip


class Evil:
    """Whoever unpickles it runs a program."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def through_a_file(value: object, folder: Path, **more: Any) -> Any:  # noqa: ANN401 - as torch.load
    path = folder / "saved.pt"
    torch.save(value, path)
    return torch.load(path, **more)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_tensors_of_each_type_come_back(device: torch.device, tmp_path: Path, kind: torch.dtype) -> None:
    value = torch.arange(-6, 6).view(3, 4).to(kind).to(device)
    found = through_a_file({"here": value, "turned": value.T, "none": None}, tmp_path)
    assert found["here"].dtype == kind
    assert found["here"].device == value.device
    assert torch.equal(found["here"], value)
    assert torch.equal(found["turned"], value.T)
    assert torch.equal(through_a_file(value, tmp_path, map_location="cpu"), value.cpu())


def test_what_shares_memory_still_does(tmp_path: Path) -> None:
    whole = torch.arange(10.0)
    parts = through_a_file([whole, whole[2:5]], tmp_path)
    parts[1].fill_(-1)
    assert parts[0].tolist() == [0, 1, -1, -1, -1, 5, 6, 7, 8, 9]


def test_a_model_and_its_optimizer_go_on_where_they_were(device: torch.device, tmp_path: Path) -> None:
    def new() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1)).to(device)
        return model, torch.optim.AdamW(model.parameters(), lr=0.01)

    def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[float]:
        x = torch.linspace(-1, 1, 64, device=device).view(16, 4)
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    torch.manual_seed(0)
    model, optimizer = new()
    train(model, optimizer)
    saved = through_a_file({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path)
    other, its_own = new()
    other.load_state_dict(saved["model"])
    its_own.load_state_dict(saved["optimizer"])
    assert train(other, its_own) == pytest.approx(train(model, optimizer), rel=1e-4)


def test_what_is_loaded_runs_no_code_unless_it_is_asked_to(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    with pytest.raises(pickle.UnpicklingError):
        through_a_file({"x": torch.ones(1), "evil": Evil(marker)}, tmp_path)
    assert not marker.exists()
    through_a_file(Evil(marker), tmp_path, weights_only=False)
    assert marker.exists()


def test_older_and_other_ways_to_the_file(tmp_path: Path) -> None:
    value = OrderedDict(weight=torch.linspace(0, 1, 1000), list=[1, "two", 3.0])
    buffer = io.BytesIO()
    torch.save(value, buffer, _use_new_zipfile_serialization=False)
    buffer.seek(0)
    assert torch.equal(torch.load(buffer)["weight"], value["weight"])
    found = through_a_file(value, tmp_path, mmap=True)
    assert torch.equal(found["weight"], value["weight"])
    assert found["list"] == value["list"]
    model = through_a_file(nn.Linear(2, 2), tmp_path, weights_only=False)
    assert model(torch.zeros(1, 2)).shape == (1, 2)
    assert torch.equal(pickle.loads(pickle.dumps(value["weight"])), value["weight"])  # noqa: S301 - our own


def test_a_file_that_is_cut_off_is_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "saved.pt"
    torch.save(torch.zeros(10_000), path)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises((RuntimeError, OSError)):
        torch.load(path)


def test_copies_are_apart() -> None:
    import copy

    model = nn.Linear(2, 2)
    other = copy.deepcopy(model)
    nn.init.zeros_(other.weight)
    assert model.weight.abs().sum() > 0
    tensor = torch.arange(6.0).view(2, 3).requires_grad_()
    copied = copy.deepcopy([tensor, tensor])
    assert copied[0] is copied[1]
    assert copied[0].requires_grad
    assert copied[0].data_ptr() != tensor.data_ptr()
    with torch.no_grad():
        copied[0].fill_(7.0)
    assert tensor.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
