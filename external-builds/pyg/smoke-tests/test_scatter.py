"""torch-scatter against plain Python: each reference is computed here, with lists and loops."""

import itertools
import math
from collections.abc import Callable

import pytest
import torch
import torch_scatter

SRC = [3.0, -1.0, 4.0, 1.5, -5.0, 9.0, 2.0, 6.5]
INDEX = [2, 0, 2, 1, 0, 4, 1, 2]
SIZE = 5  # no element goes to 3


def groups() -> list[list[float]]:
    return [[s for s, i in zip(SRC, INDEX, strict=True) if i == g] for g in range(SIZE)]


def tensors() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor(SRC), torch.tensor(INDEX)


@pytest.mark.parametrize(
    ("reduce", "reference"),
    [
        ("sum", sum),
        ("mean", lambda g: sum(g) / len(g) if g else 0.0),
        ("mul", math.prod),
        ("min", lambda g: min(g, default=0.0)),
        ("max", lambda g: max(g, default=0.0)),
    ],
)
def test_scatter_reduces_each_group(reduce: str, reference: Callable[[list[float]], float]) -> None:
    src, index = tensors()
    found = torch_scatter.scatter(src, index, dim=0, dim_size=SIZE, reduce=reduce)
    assert found.tolist() == pytest.approx([reference(group) for group in groups()])


def test_scatter_max_says_which_element_won() -> None:
    src, index = tensors()
    _, winners = torch_scatter.scatter_max(src, index, dim=0, dim_size=SIZE)
    expected = [SRC.index(max(g)) if g else len(SRC) for g in groups()]
    assert winners.tolist() == expected


def test_scatter_works_along_any_dimension() -> None:
    rows = [[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]]
    found = torch_scatter.scatter(torch.tensor(rows), torch.tensor([1, 1, 0]), dim=1, reduce="sum")
    assert found.tolist() == [[row[2], row[0] + row[1]] for row in rows]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_segments_by_pointer(dtype: torch.dtype) -> None:
    values, pointers = [1, 2, 3, 4, 5, 6], [0, 2, 2, 5, 6]
    found = torch_scatter.segment_csr(torch.tensor(values, dtype=dtype), torch.tensor(pointers), reduce="sum")
    assert found.dtype == dtype
    assert found.tolist() == [sum(values[a:b]) for a, b in itertools.pairwise(pointers)]


def test_segments_by_sorted_index_and_back() -> None:
    values, index = [1.0, 2.0, 3.0, 4.0], [0, 0, 1, 3]
    found = torch_scatter.segment_coo(torch.tensor(values), torch.tensor(index), dim_size=4, reduce="max")
    assert found.tolist() == [2.0, 3.0, 0.0, 4.0]
    assert torch_scatter.gather_coo(found, torch.tensor(index)).tolist() == [2.0, 2.0, 3.0, 4.0]
    assert torch_scatter.gather_csr(found, torch.tensor([0, 1, 1, 3, 4])).tolist() == [2.0, 0.0, 0.0, 4.0]


def test_softmax_of_each_group() -> None:
    src, index = tensors()
    found = torch_scatter.scatter_softmax(src, index, dim=0).tolist()
    totals = [sum(math.exp(v) for v in group) for group in groups()]
    assert found == pytest.approx([math.exp(s) / totals[i] for s, i in zip(SRC, INDEX, strict=True)])


def test_gradients_flow_to_the_elements_that_count() -> None:
    src, index = tensors()
    src.requires_grad_()
    weights = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    (torch_scatter.scatter(src, index, dim_size=SIZE, reduce="mean") * weights).sum().backward()
    expected = [(i + 1) / len(groups()[i]) for i in INDEX]
    assert src.grad.tolist() == pytest.approx(expected)


def test_an_index_of_the_wrong_shape_is_refused() -> None:
    with pytest.raises((RuntimeError, IndexError)):
        torch_scatter.segment_csr(torch.ones(3), torch.tensor([[0, 1], [1, 3]]))


def test_the_same_on_a_gpu(record_property: Callable[[str, object], None]) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no device")
    src, index = tensors()
    found = torch_scatter.scatter(src.cuda(), index.cuda(), dim_size=SIZE, reduce="sum")
    assert found.cpu().tolist() == pytest.approx([sum(group) for group in groups()])
    record_property("device", torch.cuda.get_device_properties(0).gcnArchName.partition(":")[0])
