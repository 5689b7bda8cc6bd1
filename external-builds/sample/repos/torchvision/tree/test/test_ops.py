"""Boxes and regions, on the CPU and, where there is one, on a GPU."""

import pytest

import torch
from torch.testing import assert_close
from torchvision.ops import nms, roi_pool

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
    with pytest.raises(RuntimeError, match="expected 2 scores"):
        nms(torch.zeros(2, 4), torch.zeros(3), 0.5)


def test_roi_pool(device):
    image = torch.tensor([[float(4 * y + x) for x in range(4)] for y in range(4)], device=device)
    boxes = torch.tensor([[0, 0, 4, 4], [2, 2, 4, 4]], device=device)
    expected = [[[2.5, 4.5], [10.5, 12.5]], [[10.0, 11.0], [14.0, 15.0]]]
    assert_close(roi_pool(image, boxes, 2), expected)


def test_roi_pool_leaves_out_what_is_outside(device):
    image = torch.tensor([[1.0, 2.0], [3.0, 4.0]], device=device)
    boxes = torch.tensor([[-2, 0, 2, 2], [5, 5, 9, 9]], device=device)
    assert_close(roi_pool(image, boxes, 1), [[[2.5]], [[0.0]]])


def test_roi_pool_refuses_a_signal():
    with pytest.raises(RuntimeError, match="two dimensions"):
        roi_pool(torch.zeros(4), torch.zeros(1, 4), 1)
