"""Reference results of torch's operators, on the CPU and on a GPU where there is one."""

import math
from collections.abc import Callable

import pytest
import torch
from torch.testing import assert_close

A = [[1.5, -2.0, 3.0], [0.25, 4.0, -5.5]]
B = [[2.0, 0.5], [-1.0, 3.0], [4.0, -0.25]]


def results(device: str) -> dict[str, torch.Tensor]:
    a, b = torch.tensor(A, device=device), torch.tensor(B, device=device)
    return {
        "add": a + a,
        "mul": a * a,
        "relu": a.relu(),
        "sum": a.sum(),
        "matmul": a @ b,
        "full": torch.full((2, 2), 0.5, device=device),
    }


EXPECTED = {
    "add": [[3.0, -4.0, 6.0], [0.5, 8.0, -11.0]],
    "mul": [[2.25, 4.0, 9.0], [0.0625, 16.0, 30.25]],
    "relu": [[1.5, 0.0, 3.0], [0.25, 4.0, 0.0]],
    "sum": 1.25,
    "matmul": [[17.0, -6.0], [-25.5, 13.5]],
    "full": [[0.5, 0.5], [0.5, 0.5]],
}


@pytest.mark.parametrize("name", EXPECTED)
def test_on_the_cpu(name: str) -> None:
    assert_close(results("cpu")[name], EXPECTED[name])


@pytest.mark.parametrize("name", EXPECTED)
def test_on_a_gpu(name: str, on_gpu: Callable[[], None]) -> None:
    assert_close(results("cuda")[name], EXPECTED[name])
    on_gpu()


def test_a_chain_of_operators() -> None:
    values = [math.sin(i) for i in range(1024)]
    x = torch.tensor(values)
    reference = math.fsum(max(v * v + 0.5, 0.0) for v in values)
    assert_close((x * x + 0.5).relu().sum(), reference, rtol=1e-5)


def test_a_large_chain_on_a_gpu(on_gpu: Callable[[], None]) -> None:
    x = torch.full((1 << 20,), 0.5, device="cuda")
    assert_close((x * x + 0.5).sum(), 0.75 * (1 << 20), rtol=1e-5)
    on_gpu()
