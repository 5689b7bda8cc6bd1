#!/usr/bin/env python3
"""Puts the ROCm libraries into a Windows wheel; `--help` has an example."""

import sys
from pathlib import Path

try:
    from cairn.cli import wheel_fat
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
    sys.exit(wheel_fat.main(script=Path(__file__), windows=True))
