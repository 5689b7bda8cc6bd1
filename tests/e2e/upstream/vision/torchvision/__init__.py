"""Operators of detection."""

from importlib.metadata import version

from torchvision import datasets, io, models, ops, transforms, utils

__version__ = version("torchvision")
