"""Cairn builds, tests and promotes PyTorch wheels for AMD GPUs (ROCm)."""

__version__ = "0.1.0"
