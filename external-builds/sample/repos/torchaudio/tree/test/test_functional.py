"""Contract: a suite that runs from a copy against the installed wheel."""

import pytest

import torch
import torchaudio.functional as F


@pytest.mark.parametrize(("decibels", "factor"), [(0.0, 1.0), (20.0, 10.0), (-20.0, 0.1), (6.0, 10**0.3)])
def test_gain(decibels, factor):
    assert F.gain(torch.tensor([1.0, -0.5]), decibels).tolist() == pytest.approx([factor, -0.5 * factor])


def test_gain_keeps_the_shape():
    assert F.gain(torch.zeros(2, 3), 3.0).shape == (2, 3)
