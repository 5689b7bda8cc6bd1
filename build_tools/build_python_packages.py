#!/usr/bin/env python3
# PYTHON_ARGCOMPLETE_OK
"""Turns a tree of ROCm's artifacts into pip packages; `--help` has an example."""

import sys

try:
    from cairn import start
except ModuleNotFoundError:
    print(
        "error: Cairn is not installed: run `pip install -e .` in the root of this repository, "
        "or `python3 dev.py check`, which makes a .venv with it",
        file=sys.stderr,
    )
    sys.exit(3)


def main() -> int:
    from cairn.cli.upstream import build_python_packages

    return build_python_packages.main(script=__file__)


if __name__ == "__main__":
    sys.exit(start.run(main))
