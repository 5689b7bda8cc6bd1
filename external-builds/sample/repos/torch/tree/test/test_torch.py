"""Tensors on the CPU."""

import math

import pytest

import torch
from torch.testing import assert_close


class TestTensor:
    @pytest.mark.parametrize(
        ("data", "shape"),
        [(1.5, ()), ([], (0,)), ([1, 2], (2,)), ([[1], [2]], (2, 1)), ([[[1, 2]]], (1, 1, 2))],
    )
    def test_round_trip(self, data, shape):
        made = torch.tensor(data)
        assert made.shape == shape
        assert made.tolist() == data

    def test_ragged_rows(self):
        with pytest.raises(ValueError, match="expected sequence of length 2"):
            torch.tensor([[1, 2], [3]])

    @pytest.mark.parametrize("data", ["text", ["text"], [None]])
    def test_not_numbers(self, data):
        with pytest.raises((TypeError, ValueError)):
            torch.tensor(data)

    def test_values_are_single_precision(self):
        assert torch.tensor([0.1]).item() == pytest.approx(0.1, rel=1e-7)
        assert torch.tensor([0.1]).item() != 0.1

    def test_item_of_many(self):
        with pytest.raises(RuntimeError, match="2 elements"):
            torch.tensor([1, 2]).item()

    def test_reshape(self):
        assert torch.tensor([1, 2, 3, 4]).reshape(2, 2).tolist() == [[1, 2], [3, 4]]
        with pytest.raises(RuntimeError, match="invalid for 4 values"):
            torch.zeros(4).reshape(3)

    def test_repr(self):
        assert repr(torch.tensor([1.0])) == "tensor([1.0])"

    def test_len(self):
        assert len(torch.zeros(3, 2)) == 3
        with pytest.raises(TypeError, match="0-d"):
            len(torch.tensor(1.0))


class TestDevice:
    @pytest.mark.parametrize(("spec", "index"), [("cpu", None), ("cuda", None), ("cuda:0", 0)])
    def test_parse(self, spec, index):
        assert torch.device(spec).index == index
        assert str(torch.device(spec)) == spec
        assert torch.device(torch.device(spec)) == torch.device(spec)

    @pytest.mark.parametrize("spec", ["hip", "cuda:1", "cuda:", ""])
    def test_unknown(self, spec):
        with pytest.raises(RuntimeError, match="device type"):
            torch.device(spec)


class TestOperators:
    def test_add_and_mul(self):
        a, b = torch.tensor([1.0, 2.0, -3.0]), torch.tensor([10.0, 20.0, 30.0])
        assert (a + b).tolist() == [11, 22, 27]
        assert (a * b).tolist() == [10, 40, -90]
        assert (2 * a + 1).tolist() == [3, 5, -5]
        assert torch.add(a, b).tolist() == (a + b).tolist()
        assert torch.mul(a, b).tolist() == (a * b).tolist()

    def test_shapes_must_match(self):
        with pytest.raises(RuntimeError, match="must match"):
            torch.zeros(2) + torch.zeros(3)

    def test_relu(self):
        assert torch.relu(torch.tensor([-1.0, 0.0, 2.0])).tolist() == [0, 0, 2]

    def test_relu_keeps_nan(self):
        assert math.isnan(torch.tensor([math.nan]).relu().item())

    def test_sum(self):
        assert torch.sum(torch.tensor([[1.0, 2.0], [3.0, 4.5]])).item() == 10.5
        assert torch.zeros(0).sum().item() == 0
        assert torch.full((100_000,), 0.1).sum().item() == pytest.approx(10_000, rel=1e-6)

    def test_matmul(self):
        a, b = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), torch.tensor([[1.0], [0.0], [-1.0]])
        assert torch.matmul(a, b).tolist() == [[-2], [-2]]
        assert (a @ b).shape == (2, 1)

    @pytest.mark.parametrize("shape", [(2, 2), (3,), (3, 1, 1)])
    def test_matmul_of_other_shapes(self, shape):
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            torch.zeros(2, 3) @ torch.zeros(*shape)


class TestAssertClose:
    def test_within_tolerance(self):
        assert_close(torch.tensor([1.0, math.nan]), [1.000001, math.nan])

    @pytest.mark.parametrize("other", [[1.1], [1.0, 1.0], 1.0, [[1.0]]])
    def test_refuses(self, other):
        with pytest.raises(AssertionError, match="differ"):
            assert_close(torch.tensor([1.0]), other)
