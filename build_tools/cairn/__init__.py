"""Cairn builds, tests and promotes PyTorch wheels for AMD GPUs (ROCm)."""

__version__ = "0.1.0"

DISTRIBUTION = "cairn-wheels"
"""Its name on a package index, where `cairn` is somebody else's."""
