"""Contract: the same tests on the CPU and, where there is one, on a GPU."""

import pytest

import torch
from torchvision.ops import nms

DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU is available"),
    ),
]
BOXES = [[0, 0, 10, 10], [1, 1, 11, 11], [20, 20, 30, 30], [0, 0, 10, 5]]
SCORES = [0.8, 0.9, 0.3, 0.5]


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


# Boxes 0 and 1 share 81 of 119, boxes 0 and 3 share 50 of 100, boxes 1 and 3 share 36 of 114.
@pytest.mark.parametrize(
    ("threshold", "kept"), [(0.7, [1, 0, 3, 2]), (0.5, [1, 3, 2]), (0.3, [1, 2]), (0.0, [1, 2])]
)
def test_nms(device, threshold, kept):
    boxes, scores = torch.tensor(BOXES, device=device), torch.tensor(SCORES, device=device)
    assert nms(boxes, scores, threshold) == kept


def test_nms_keeps_the_first_of_equals():
    assert nms(torch.tensor([BOXES[0], BOXES[0]]), torch.tensor([0.5, 0.5]), 0.5) == [0]


def test_nms_of_nothing(device):
    assert nms(torch.zeros(0, 4, device=device), torch.zeros(0, device=device), 0.5) == []


def test_nms_refuses_other_shapes():
    with pytest.raises(RuntimeError, match="boxes should have the shape"):
        nms(torch.zeros(2, 3), torch.zeros(2), 0.5)
    with pytest.raises(RuntimeError, match="one score each"):
        nms(torch.zeros(2, 4), torch.zeros(3), 0.5)
