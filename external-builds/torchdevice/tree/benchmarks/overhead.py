"""What a mode costs: CPU time of training steps, enabled against off, in interleaved rounds.

    python benchmarks/overhead.py [--strict] [ROUNDS]

Each round is off, enabled, off under a mode of torch's that does nothing, off. For each model, the median
ratio of enabled against the mean of both sides is printed; that of the mode that does nothing, the floor of
any mode (`redirect` has none); and that of the last against the first: what this machine's own noise makes
of 1. The lines after the models are of single calls, which have no bar.

Then the peak of resident memory of processes that import torch and train each model, with TorchDevice and
without: the median of as many as there are rounds, five at most.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torchdevice
from torch import nn
from torch.overrides import TorchFunctionMode

STEPS_SECONDS = 0.15


class Recurrent(nn.Module):
    """An LSTM and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(32, 64, batch_first=True)
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The classes after the last step."""
        return self.head(self.lstm(x)[0][:, -1])


def cnn() -> tuple[nn.Module, tuple[int, ...]]:
    """A small convolutional network."""
    layers = [
        nn.Conv2d(1, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * 169, 10),
    ]
    return nn.Sequential(*layers), (16, 1, 28, 28)


def transformer() -> tuple[nn.Module, tuple[int, ...]]:
    """One block of a transformer."""
    block = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    return nn.Sequential(block, nn.Flatten(), nn.Linear(64 * 32, 10)), (8, 32, 64)


def lstm() -> tuple[nn.Module, tuple[int, ...]]:
    """An LSTM over 32 steps."""
    return Recurrent(), (8, 32, 32)


MODELS = {make.__name__: make for make in (cnn, transformer, lstm)}


class Nothing(TorchFunctionMode):  # type: ignore[misc]
    """A mode that does nothing."""

    def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def training_step(make: Callable[[], tuple[nn.Module, tuple[int, ...]]], device: str) -> Callable[[], object]:
    """A step as scripts have it: a batch is moved, a loss is computed, an optimizer steps."""
    torch.manual_seed(0)
    model, shape = make()
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    batch, labels = torch.randn(shape), torch.randint(10, (shape[0],))

    def step() -> float:
        x, y = batch.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        mask = torch.ones(shape[0], device=device)
        loss = (nn.functional.cross_entropy(model(x), y, reduction="none") * mask).mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def cpu_seconds(work: Callable[[], object], repeats: int) -> float:
    """The CPU time of so many calls."""
    start = time.process_time()
    for _ in range(repeats):
        work()
    return (time.process_time() - start) / repeats


def ratios(
    work: Callable[[str], Callable[[], object]], rounds: int, seconds: float, *, strict: bool
) -> list[float]:
    """Median ratios to off: of enabled, of a mode that does nothing, of off; then the seconds of a call."""
    off = work("cpu")
    cpu_seconds(off, 3)
    repeats = max(1, round(seconds / cpu_seconds(off, 3)))
    rows = []
    for _ in range(rounds):
        first = cpu_seconds(off, repeats)
        with torchdevice.redirected("cpu", strict=strict):
            on = work("cuda")
            on()
            enabled = cpu_seconds(on, repeats)
        with Nothing():
            nothing = cpu_seconds(off, repeats)
        last = cpu_seconds(off, repeats)
        mean = (first + last) / 2
        rows.append((enabled / mean, nothing / mean, last / first, first))
    return [statistics.median(column) for column in zip(*rows, strict=True)]


def peak(model: str, mode: str) -> int:
    """The peak of memory of a process that trains a model, in bytes; `mode` is off, redirect or strict."""
    command = [sys.executable, __file__, "--peak", model, mode]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(done.stdout)


def train(model: str, mode: str) -> None:
    """Train a model here, and print the peak of memory."""
    if mode != "off":
        torchdevice.enable("cpu", strict=mode == "strict")
    step = training_step(MODELS[model], "cpu" if mode == "off" else "cuda")
    for _ in range(20):
        step()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def main() -> None:
    """Print the tables."""
    torch.set_num_threads(1)
    if "--peak" in sys.argv:
        train(*sys.argv[2:4])
        return
    strict = "--strict" in sys.argv
    numbers = [int(text) for text in sys.argv[1:] if text.isdecimal()]
    rounds = numbers[0] if numbers else 21
    mode = "strict" if strict else "redirect"
    print(f"torch {torch.__version__}, {mode}, {rounds} rounds")
    print(f"{'':24} enabled  nothing  off again  off")
    steps = {name: (lambda device, f=f: training_step(f, device)) for name, f in MODELS.items()}
    x = torch.ones(4)

    def adding(device: str) -> Callable[[], object]:
        there = x.to(device)
        return lambda: there + there

    calls: dict[str, Callable[[str], Callable[[], object]]] = {
        "torch.zeros(4)": lambda _device: lambda: torch.zeros(4),
        "torch.zeros(4, device=…)": lambda device: lambda: torch.zeros(4, device=device),
        "x.to(device)": lambda device: lambda: x.to(device),
        "x + x": adding,
    }
    for name, work in {**steps, **calls}.items():
        on, floor, noise, off = ratios(work, rounds, STEPS_SECONDS if name in steps else 0.05, strict=strict)
        print(f"{name:24} {on:7.3f}  {floor:7.3f}  {noise:9.3f}  {off * 1e6:.1f} µs")
    print("peak of memory")
    for name in MODELS:
        pairs = [(peak(name, "off"), peak(name, mode)) for _ in range(min(5, rounds))]
        off_peak, on_peak = (statistics.median(side) for side in zip(*pairs, strict=True))
        print(f"{name:24} {on_peak / off_peak:7.3f}  {'':18}  {off_peak / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
