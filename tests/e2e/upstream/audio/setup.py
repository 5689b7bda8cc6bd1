"""Stand-in for audio's setup.py: built against the torch that is installed, in Python alone."""

import os
from pathlib import Path

import torch
from setuptools import setup

ROOT = Path(__file__).resolve().parent
pinned = os.environ.get("PYTORCH_VERSION")
if pinned and torch.__version__ != pinned:
    raise SystemExit(f"built against torch {torch.__version__}, and {pinned} was asked for")
setup(
    name="torchaudio",
    version=os.environ.get("BUILD_VERSION") or (ROOT / "version.txt").read_text(encoding="utf-8").strip(),
    license="BSD-2-Clause",
    license_files=["LICENSE"],
    python_requires=">=3.10",
    install_requires=[f"torch=={pinned}" if pinned else "torch"],
    packages=["torchaudio"],
)
