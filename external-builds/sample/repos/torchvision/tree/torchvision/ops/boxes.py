"""Non-maximum suppression."""

from __future__ import annotations

from torch import Tensor
from torchvision import _C


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> list[int]:
    """The indices of the boxes to keep, best score first.

    A box is dropped when it shares more than `iou_threshold` of the area both cover
    with a better box that is kept. Equal scores keep the order of their indices.
    """
    require_boxes(boxes)
    count = boxes.shape[0]
    if scores.shape != (count,):
        raise RuntimeError(f"expected {count} scores, got the shape {scores.shape}")
    overlaps = Tensor(_C.overlaps(boxes._buffer, iou_threshold), (count * count,), boxes.device)
    return _keep(overlaps.tolist(), scores.tolist())


def require_boxes(boxes: Tensor) -> None:
    if boxes.dim() != 2 or boxes.shape[1] != 4:
        raise RuntimeError(f"boxes should have the shape (count, 4), got {boxes.shape}")


def _keep(overlaps: list[float], scores: list[float]) -> list[int]:
    count = len(scores)
    kept: list[int] = []
    for box in sorted(range(count), key=lambda index: (-scores[index], index)):
        if not any(overlaps[better * count + box] for better in kept):
            kept.append(box)
    return kept
