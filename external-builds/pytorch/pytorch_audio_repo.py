#!/usr/bin/env python3
# PYTHON_ARGCOMPLETE_OK
"""Checks torchaudio out and hipifies it; `--help` has an example."""

import sys

try:
    from cairn import start
except ModuleNotFoundError as error:
    if error.name != "cairn":
        raise
    from pathlib import Path

    root = Path(__file__).resolve().parents[2]
    print(
        f"error: Cairn is not installed: run `pip install -e '{root}'`, or `python3 '{root}/dev.py' check`, "
        "which makes a .venv with it",
        file=sys.stderr,
    )
    sys.exit(3)

if __name__ == "__main__":
    sys.exit(start.script("upstream.repo_scripts", "main", __file__, "audio"))
