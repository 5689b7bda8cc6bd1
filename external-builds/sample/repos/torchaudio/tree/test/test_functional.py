"""Signals in, signals out."""

import math

import pytest

import torch
import torchaudio.functional as F
from torch.testing import assert_close


def tone(frequency, rate, count):
    return [math.sin(2 * math.pi * frequency * i / rate) for i in range(count)]


@pytest.mark.parametrize(("decibels", "factor"), [(0.0, 1.0), (20.0, 10.0), (-20.0, 0.1), (6.0, 10**0.3)])
def test_gain(decibels, factor):
    assert_close(F.gain(torch.tensor([1.0, -0.5]), decibels), [factor, -0.5 * factor])


def test_gain_keeps_the_shape():
    assert F.gain(torch.zeros(2, 3), 3.0).shape == (2, 3)


@pytest.mark.parametrize(("old", "new"), [(8000, 16000), (16000, 8000), (8000, 11025)])
def test_resampled_tone_is_the_same_tone(old, new):
    resampled = F.resample(torch.tensor(tone(440, old, 400)), old, new).tolist()
    expected = tone(440, new, len(resampled))
    inner = slice(len(resampled) // 4, -len(resampled) // 4)
    assert len(resampled) == math.ceil(400 * new / old)
    assert_close(resampled[inner], expected[inner], atol=0.02)


def test_resample_to_the_same_rate_is_the_same_signal():
    signal = torch.tensor([1.0, 2.0])
    assert F.resample(signal, 8000, 8000) is signal


@pytest.mark.parametrize("rate", [0, -1])
def test_resample_refuses_a_rate(rate):
    with pytest.raises(ValueError, match="frequencies must be positive"):
        F.resample(torch.tensor([1.0]), 8000, rate)


def test_resample_refuses_an_image():
    with pytest.raises(ValueError, match="one dimension"):
        F.resample(torch.zeros(2, 2), 8000, 16000)
