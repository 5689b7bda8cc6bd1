"""Transforms of waves and spectra, as modules."""

import math

import torch
from torch import nn


class Spectrogram(nn.Module):
    def __init__(self, n_fft, hop_length, center, window_fn, power):
        super().__init__()
        self.settings = {"n_fft": n_fft, "hop_length": hop_length, "center": center}
        self.power = power
        self.register_buffer("window", window_fn(n_fft))

    def forward(self, waveform):
        return torch.stft(waveform, **self.settings, window=self.window, return_complex=True).abs() ** self.power


class AmplitudeToDB(nn.Module):
    def __init__(self, stype):
        super().__init__()
        self.factor = 10 if stype == "power" else 20

    def forward(self, x):
        return self.factor * torch.log10(x.clamp(min=1e-10))


class MuLawEncoding(nn.Module):
    def __init__(self, quantization_channels):
        super().__init__()
        self.mu = quantization_channels - 1

    def forward(self, x):
        companded = x.sign() * torch.log1p(self.mu * x.abs()) / math.log1p(self.mu)
        return ((companded + 1) / 2 * self.mu + 0.5).to(torch.int64)
