"""Reference results of torchvision's operators."""

from collections.abc import Callable

import pytest
import torch
from torchvision.ops import nms

BOXES = [[0, 0, 100, 100], [10, 10, 110, 110], [200, 200, 300, 300], [205, 200, 305, 300], [0, 0, 100, 60]]
SCORES = [0.9, 0.8, 0.4, 0.7, 0.6]
# Shared areas over areas covered together: 0 and 1: 8100/11900, 2 and 3: 9500/10500, 0 and 4: 6000/10000.
KEPT = {0.95: [0, 1, 3, 4, 2], 0.65: [0, 3, 4], 0.5: [0, 3]}


@pytest.mark.parametrize(("threshold", "kept"), KEPT.items())
def test_nms(threshold: float, kept: list[int]) -> None:
    assert nms(torch.tensor(BOXES), torch.tensor(SCORES), threshold) == kept


@pytest.mark.parametrize(("threshold", "kept"), KEPT.items())
def test_nms_on_a_gpu(threshold: float, kept: list[int], on_gpu: Callable[[], None]) -> None:
    assert nms(torch.tensor(BOXES).cuda(), torch.tensor(SCORES).cuda(), threshold) == kept
    on_gpu()
