#!/usr/bin/env python3
"""Checks triton out and hipifies it; `--help` has an example."""

import sys
from pathlib import Path

try:
    from cairn.cli import repo_scripts
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
    sys.exit(repo_scripts.main("triton", script=Path(__file__)))
