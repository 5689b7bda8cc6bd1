"""One step and more of each optimizer of torch.optim, and what its schedulers make of the learning rate."""

import copy
import inspect
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler, swa_utils

START, RATE, DECAY = (2.0, -1.5), 0.1, 0.05
Weights = tuple[float, ...]


def optimizers() -> list[str]:
    """All that this torch has; each line has some more."""
    top = torch.optim.Optimizer
    classes = [(name, each) for name, each in vars(torch.optim).items() if inspect.isclass(each)]
    return sorted(name for name, each in classes if issubclass(each, top) and each is not top)


# Each keeps what it remembers in a dictionary, and gives the weight after a step; the gradient is that of
# half the weight's square: the weight itself. As in the papers that the documentation of each names.


def sgd(w: float, g: float, memory: dict[str, float], step: int) -> float:
    g += DECAY * w
    memory["v"] = 0.9 * memory["v"] + g if step > 1 else g
    return w - RATE * (g + 0.9 * memory["v"])


def adam_moments(g: float, memory: dict[str, float], step: int) -> tuple[float, float]:
    memory["m"] = 0.9 * memory.get("m", 0.0) + 0.1 * g
    memory["s"] = 0.999 * memory.get("s", 0.0) + 0.001 * g * g
    return memory["m"] / (1 - 0.9**step), memory["s"] / (1 - 0.999**step)


def adam(w: float, g: float, memory: dict[str, float], step: int) -> float:
    m, s = adam_moments(g + DECAY * w, memory, step)
    return w - RATE * m / (math.sqrt(s) + 1e-8)


def adamw(w: float, g: float, memory: dict[str, float], step: int) -> float:
    m, s = adam_moments(g, memory, step)
    return w * (1 - RATE * DECAY) - RATE * m / (math.sqrt(s) + 1e-8)


def nadam(w: float, g: float, memory: dict[str, float], step: int) -> float:
    g += DECAY * w
    now, then = (0.9 * (1 - 0.5 * 0.96 ** (at * 0.004)) for at in (step, step + 1))
    memory["product"] = memory.get("product", 1.0) * now
    memory["m"] = 0.9 * memory.get("m", 0.0) + 0.1 * g
    memory["s"] = 0.999 * memory.get("s", 0.0) + 0.001 * g * g
    ahead = then * memory["m"] / (1 - memory["product"] * then) + (1 - now) * g / (1 - memory["product"])
    return w - RATE * ahead / (math.sqrt(memory["s"] / (1 - 0.999**step)) + 1e-8)


def radam(w: float, g: float, memory: dict[str, float], step: int) -> float:
    m, _ = adam_moments(g + DECAY * w, memory, step)
    most = 2 / 0.001 - 1
    length = most - 2 * step * 0.999**step / (1 - 0.999**step)
    if length <= 5:
        return w - RATE * m
    rectified = math.sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length))
    return w - RATE * m * rectified * math.sqrt(1 - 0.999**step) / (math.sqrt(memory["s"]) + 1e-8)


def adamax(w: float, g: float, memory: dict[str, float], step: int) -> float:
    g += DECAY * w
    memory["m"] = 0.9 * memory.get("m", 0.0) + 0.1 * g
    memory["u"] = max(0.999 * memory.get("u", 0.0), abs(g) + 1e-8)
    return w - RATE * memory["m"] / ((1 - 0.9**step) * memory["u"])


def adagrad(w: float, g: float, memory: dict[str, float], _step: int) -> float:
    g += DECAY * w
    memory["s"] = memory.get("s", 0.0) + g * g
    return w - RATE * g / (math.sqrt(memory["s"]) + 1e-10)


def adadelta(w: float, g: float, memory: dict[str, float], _step: int) -> float:
    g += DECAY * w
    memory["s"] = 0.9 * memory.get("s", 0.0) + 0.1 * g * g
    moved = g * math.sqrt((memory.get("d", 0.0) + 1e-6) / (memory["s"] + 1e-6))
    memory["d"] = 0.9 * memory.get("d", 0.0) + 0.1 * moved * moved
    return w - RATE * moved


def rmsprop(w: float, g: float, memory: dict[str, float], _step: int) -> float:
    g += DECAY * w
    memory["s"] = 0.99 * memory.get("s", 0.0) + 0.01 * g * g
    return w - RATE * g / (math.sqrt(memory["s"]) + 1e-8)


STEPS: dict[str, tuple[Callable[[float, float, dict[str, float], int], float], dict[str, Any]]] = {
    "SGD": (sgd, {"momentum": 0.9, "nesterov": True}),
    "Adam": (adam, {}),
    "AdamW": (adamw, {}),
    "NAdam": (nadam, {}),
    "RAdam": (radam, {}),
    "Adamax": (adamax, {}),
    "Adagrad": (adagrad, {}),
    "Adadelta": (adadelta, {}),
    "RMSprop": (rmsprop, {}),
}


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("name", STEPS)
def test_steps_are_those_of_the_formula(device: torch.device, name: str, *, foreach: bool) -> None:
    formula, more = STEPS[name]
    weights = [nn.Parameter(torch.tensor([w], dtype=torch.float64, device=device)) for w in START]
    optimizer = getattr(torch.optim, name)(weights, lr=RATE, weight_decay=DECAY, foreach=foreach, **more)
    expected, memories = list(START), [{"v": 0.0}, {"v": 0.0}]
    for step in range(1, 9):  # RAdam is another one from its sixth step on
        optimizer.zero_grad()
        sum((weight**2).sum() / 2 for weight in weights).backward()
        optimizer.step()
        expected = [formula(w, w, memory, step) for w, memory in zip(expected, memories, strict=True)]
        found = [weight.item() for weight in weights]
        assert found == pytest.approx(expected, rel=1e-6), f"step {step}"


@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD"])
def test_fused_steps_are_the_plain_ones(device: torch.device, name: str) -> None:
    made = []
    for fused in (False, True):
        weight = nn.Parameter(torch.linspace(-1, 1, 1001, device=device))
        optimizer = getattr(torch.optim, name)([weight], lr=RATE, weight_decay=DECAY, fused=fused)
        for _ in range(3):
            optimizer.zero_grad()
            weight.sin().sum().backward()
            optimizer.step()
        made.append(weight.detach())
    torch.testing.assert_close(made[1], made[0])


def trained(name: str, weight: nn.Parameter, optimizer: torch.optim.Optimizer, steps: int) -> float:
    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        found = ((weight - 3) ** 2).sum()
        found.backward()
        if name == "SparseAdam" and weight.grad is not None:
            weight.grad = weight.grad.to_sparse()
        return found.detach()

    for _ in range(steps):
        if name == "LBFGS":
            optimizer.step(loss)  # type: ignore[arg-type] # asks for it as often as it likes
        else:
            loss()
            optimizer.step()
    return loss().item()


def test_torch_has_its_optimizers() -> None:
    assert set(optimizers()) >= {*STEPS, "ASGD", "Adafactor", "LBFGS", "Rprop", "SparseAdam"}


@pytest.mark.parametrize("name", optimizers())
def test_each_optimizer_comes_nearer_and_goes_on_from_its_saved_state(
    device: torch.device, name: str
) -> None:
    def new() -> tuple[nn.Parameter, torch.optim.Optimizer]:
        weight = nn.Parameter(torch.full((2, 2), 0.5, device=device))
        return weight, getattr(torch.optim, name)([weight], lr=1.0 if name in ("Adadelta", "LBFGS") else 0.01)

    weight, optimizer = new()
    before = 4 * 2.5**2
    middle = trained(name, weight, optimizer, 5)
    assert middle < before - 1e-6
    other, again = new()
    with torch.no_grad():
        other.copy_(weight)
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert trained(name, other, again, 2) == pytest.approx(trained(name, weight, optimizer, 2), abs=1e-6)


def test_groups_have_settings_of_their_own() -> None:
    first, second = (nn.Parameter(torch.ones(1)) for _ in range(2))
    optimizer = torch.optim.SGD([{"params": [first]}, {"params": [second], "lr": 1.0}], lr=0.5)
    (first + second).backward()
    optimizer.step()
    assert (first.item(), second.item()) == (0.5, 0.0)


def rates(make: Callable[[torch.optim.Optimizer], Any], steps: int) -> list[float]:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = make(optimizer)
    found = []
    for _ in range(steps):
        found.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        scheduler.step()
    return found


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda o: lr_scheduler.StepLR(o, 2, gamma=0.1), [1, 1, 0.1, 0.1, 0.01]),
        (lambda o: lr_scheduler.MultiStepLR(o, [1, 3], gamma=0.5), [1, 0.5, 0.5, 0.25, 0.25]),
        (lambda o: lr_scheduler.ExponentialLR(o, 0.5), [1, 0.5, 0.25, 0.125]),
        (lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 1 / (1 + epoch)), [1, 1 / 2, 1 / 3]),
        (lambda o: lr_scheduler.LinearLR(o, 0.25, total_iters=3), [0.25, 0.5, 0.75, 1, 1]),
        (lambda o: lr_scheduler.PolynomialLR(o, 4, power=2), [1, 9 / 16, 1 / 4, 1 / 16, 0]),
        (
            lambda o: lr_scheduler.CosineAnnealingLR(o, 4),
            [(1 + math.cos(math.pi * step / 4)) / 2 for step in range(5)],
        ),
        (
            lambda o: lr_scheduler.SequentialLR(
                o, [lr_scheduler.ConstantLR(o, 0.1, 2), lr_scheduler.ExponentialLR(o, 0.5)], milestones=[2]
            ),
            [0.1, 0.1, 1, 0.5, 0.25],
        ),
    ],
)
def test_schedulers(make: Callable[[torch.optim.Optimizer], Any], expected: list[float]) -> None:
    assert rates(make, len(expected)) == pytest.approx(expected)


def test_one_cycle_rises_and_falls() -> None:
    found = rates(lambda o: lr_scheduler.OneCycleLR(o, 2.0, total_steps=20), 20)
    assert (found[0], found[-1]) == (pytest.approx(2 / 25), pytest.approx(2 / 25e4))
    assert max(found) == pytest.approx(2.0)
    top = found.index(max(found))
    assert found == sorted(found[:top]) + sorted(found[top:], reverse=True)


def test_the_rate_falls_where_nothing_gets_better() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
    found = []
    for loss in (3.0, 2.0, 2.0, 2.0, 1.0):
        scheduler.step(loss)
        found.append(optimizer.param_groups[0]["lr"])
    assert found == [1, 1, 1, 0.5, 0.5]


def test_averaged_weights_are_the_mean() -> None:
    model = nn.Linear(1, 1, bias=False)
    averaged = swa_utils.AveragedModel(model)
    for value in (1.0, 2.0, 6.0):
        nn.init.constant_(model.weight, value)
        averaged.update_parameters(model)
    assert averaged.module.weight.item() == pytest.approx(3.0)
