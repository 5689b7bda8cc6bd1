"""Contract: importing a sibling loads torch's libraries before its own."""

import torch  # its libraries must be loaded before ours
from torchaudio import functional
from torchaudio.version import __version__

__all__ = ["__version__", "functional", "torch"]
