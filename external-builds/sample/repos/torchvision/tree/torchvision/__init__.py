"""Contract: importing a sibling loads torch's libraries before its own."""

import torch  # its libraries must be loaded before ours
from torchvision import ops
from torchvision.version import __version__

__all__ = ["__version__", "ops", "torch"]
