"""Reference results of torchaudio's functions."""

import math

import torch
from torch.testing import assert_close
from torchaudio import functional


def tone(rate: int, count: int) -> list[float]:
    return [math.cos(2 * math.pi * 500 * i / rate) for i in range(count)]


def test_twenty_decibels_are_a_factor_of_ten() -> None:
    assert_close(functional.gain(torch.tensor([0.5, -0.25]), 20.0), [5.0, -2.5])


def test_a_tone_survives_resampling() -> None:
    resampled = functional.resample(torch.tensor(tone(8000, 480)), 8000, 12000).tolist()
    assert len(resampled) == 720
    assert_close(resampled[180:540], tone(12000, 720)[180:540], atol=0.02)
