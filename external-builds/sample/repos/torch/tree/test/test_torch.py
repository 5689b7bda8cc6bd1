"""Contract: a suite that runs from a copy against the installed wheel; here, tensors on the CPU."""

import math

import pytest

import torch


@pytest.mark.parametrize(
    ("data", "shape"), [(1.5, ()), ([], (0,)), ([1, 2], (2,)), ([[1], [2]], (2, 1)), ([[[1, 2]]], (1, 1, 2))]
)
def test_round_trip(data, shape):
    made = torch.tensor(data)
    assert made.shape == shape
    assert made.tolist() == data


def test_what_is_no_tensor():
    with pytest.raises(ValueError, match="expected sequence of length 2"):
        torch.tensor([[1, 2], [3]])
    with pytest.raises(TypeError):
        torch.tensor("text")
    with pytest.raises(RuntimeError, match="device type"):
        torch.zeros(1, device="hip")


def test_values_are_single_precision():
    assert torch.tensor(0.1).tolist() == pytest.approx(0.1, rel=1e-7)
    assert torch.tensor(0.1).tolist() != 0.1


def test_add_and_mul():
    a, b = torch.tensor([1.0, 2.0, -3.0]), torch.tensor([10.0, 20.0, 30.0])
    assert (a + b).tolist() == [11, 22, 27]
    assert (a * b).tolist() == [10, 40, -90]
    assert math.isnan((torch.tensor([math.nan]) + torch.zeros(1)).tolist()[0])
    with pytest.raises(RuntimeError, match="of one size"):
        torch.zeros(2) + torch.zeros(3)
