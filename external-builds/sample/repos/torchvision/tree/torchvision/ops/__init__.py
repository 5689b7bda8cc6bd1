"""Operators on boxes: rows of x1, y1, x2, y2 with x1 <= x2 and y1 <= y2."""

from torchvision.ops.boxes import nms
from torchvision.ops.regions import roi_pool

__all__ = ["nms", "roi_pool"]
