"""Functions on signals: tensors of one dimension, on the CPU."""

from __future__ import annotations

from torch import Tensor, device
from torchaudio import _torchaudio

__all__ = ["gain", "resample"]


def resample(waveform: Tensor, orig_freq: int, new_freq: int) -> Tensor:
    """The signal at another sampling frequency, both in hertz, by a windowed sinc filter."""
    if orig_freq == new_freq:
        return waveform
    _require_signal(waveform)
    buffer = _torchaudio.resample(waveform._buffer, orig_freq, new_freq)
    count = -(-waveform.numel() * new_freq // orig_freq)
    return Tensor(buffer, (count,), device("cpu"))


def gain(waveform: Tensor, gain_db: float = 1.0) -> Tensor:
    """The signal made louder by `gain_db` decibels."""
    return Tensor(_torchaudio.gain(waveform._buffer, gain_db), waveform.shape, waveform.device)


def _require_signal(waveform: Tensor) -> None:
    if waveform.dim() != 1:
        raise ValueError(f"a signal has one dimension, not {waveform.dim()}")
