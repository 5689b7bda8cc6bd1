"""Means over regions of an image."""

from __future__ import annotations

from torch import Tensor
from torchvision import _C
from torchvision.ops.boxes import require_boxes


def roi_pool(image: Tensor, boxes: Tensor, output_size: int) -> Tensor:
    """The mean of each of output_size x output_size cells of each box of an image.

    `image` is (height, width); the answer is (boxes, output_size, output_size). What of a
    box lies outside the image is left out.
    """
    require_boxes(boxes)
    if image.dim() != 2 or output_size < 1:
        raise RuntimeError("roi_pool needs an image of two dimensions and an output size from 1 on")
    height, width = image.shape
    buffer = _C.roi_pool(image._buffer, boxes._buffer, height, width, output_size)
    return Tensor(buffer, (boxes.shape[0], output_size, output_size), image.device)
