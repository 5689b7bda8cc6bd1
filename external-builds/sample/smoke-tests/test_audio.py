"""Reference results of torchaudio's functions."""

import pytest
import torch
from torchaudio import functional


def test_twenty_decibels_are_a_factor_of_ten() -> None:
    assert functional.gain(torch.tensor([0.5, -0.25]), 20.0).tolist() == pytest.approx([5.0, -2.5])
