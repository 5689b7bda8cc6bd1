"""The installed wheel: training that says "cuda" gives what the CPU gives, and leaves torch as it was."""

from pathlib import Path

import torch
import torchdevice


def train(device: str) -> list[float]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.randn(16, 8, device=device)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_a_step_on_cuda_is_the_step_on_the_cpu() -> None:
    zeros = torch.zeros
    with torchdevice.redirected("cpu"):
        translated = train("cuda")
    assert translated == train("cpu")
    assert torch.zeros is zeros
    assert translated[2] < translated[0]


def test_the_table_is_in_the_wheel() -> None:
    assert (Path(torchdevice.__file__).parent / "matrix.toml").is_file()
