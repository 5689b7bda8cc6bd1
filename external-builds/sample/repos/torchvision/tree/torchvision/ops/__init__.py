"""Contract: `torchvision.ops.nms`."""

from torchvision.ops.boxes import nms

__all__ = ["nms"]
