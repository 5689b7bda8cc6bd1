#!/usr/bin/env python3
"""Installs the ROCm SDK and builds PyTorch wheels; `--help` has an example."""

import sys
from pathlib import Path

try:
    from cairn.cli import build_prod_wheels
except ModuleNotFoundError as error:
    if error.name != "cairn":
        raise
    root = Path(__file__).resolve().parents[2]
    print(
        f"error: Cairn is not installed: run `pip install -e '{root}'`, or `python3 '{root}/dev.py' check`, "
        "which makes a .venv with it",
        file=sys.stderr,
    )
    sys.exit(3)

if __name__ == "__main__":
    sys.exit(build_prod_wheels.run(script=Path(__file__)))
