"""Reference results of torch's operators, on the CPU and on a GPU where there is one."""

from collections.abc import Callable

import pytest
import torch

A = [[1.5, -2.0, 3.0], [0.25, 4.0, -5.5]]
EXPECTED = {
    "add": [[3.0, -4.0, 6.0], [0.5, 8.0, -11.0]],
    "mul": [[2.25, 4.0, 9.0], [0.0625, 16.0, 30.25]],
    "full": [[0.5, 0.5], [0.5, 0.5]],
}


def results(device: str) -> dict[str, torch.Tensor]:
    a = torch.tensor(A, device=device)
    return {"add": a + a, "mul": a * a, "full": torch.full((2, 2), 0.5, device=device)}


@pytest.mark.parametrize("name", EXPECTED)
def test_on_the_cpu(name: str) -> None:
    assert results("cpu")[name].tolist() == EXPECTED[name]


@pytest.mark.parametrize("name", EXPECTED)
def test_on_a_gpu(name: str, on_gpu: Callable[[], None]) -> None:
    assert results("cuda")[name].tolist() == EXPECTED[name]
    on_gpu()


def test_many_blocks_on_a_gpu(on_gpu: Callable[[], None]) -> None:
    x = torch.full((1 << 20,), 0.5, device="cuda")
    assert (x * x + x).tolist() == [0.75] * (1 << 20)
    on_gpu()
