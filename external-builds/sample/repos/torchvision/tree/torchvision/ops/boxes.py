"""Contract: a module over the extension. Boxes are rows of x1, y1, x2, y2."""

from __future__ import annotations

from torch import Tensor
from torchvision import _C


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> list[int]:
    """The indices of the boxes to keep, best score first.

    A box is dropped when it shares more than `iou_threshold` of the area both cover with a better box that is kept.
    """
    count = boxes.shape[0]
    if boxes.shape != (count, 4) or scores.shape != (count,):
        raise RuntimeError(f"boxes should have the shape (count, 4), and one score each, got {boxes.shape}")
    overlaps = Tensor(_C.overlaps(boxes._buffer, iou_threshold), (count * count,), boxes.device).tolist()
    values = scores.tolist()
    kept: list[int] = []
    for box in sorted(range(count), key=lambda index: (-values[index], index)):
        if not any(overlaps[better * count + box] for better in kept):
            kept.append(box)
    return kept
