"""Contract: `torchaudio.functional`, over the extension."""

from torch import Tensor
from torchaudio import _torchaudio

__all__ = ["gain"]


def gain(waveform: Tensor, gain_db: float = 1.0) -> Tensor:
    """The signal made louder by `gain_db` decibels."""
    return Tensor(_torchaudio.gain(waveform._buffer, gain_db), waveform.shape, waveform.device)
