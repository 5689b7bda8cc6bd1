"""Waves and spectra."""

from importlib.metadata import version

from torchaudio import functional, transforms

__version__ = version("torchaudio")
