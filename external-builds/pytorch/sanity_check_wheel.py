#!/usr/bin/env python3
# PYTHON_ARGCOMPLETE_OK
"""Checks the wheels of a folder; `--help` has an example."""

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
    from cairn.cli.upstream import sanity_check_wheel

    return sanity_check_wheel.main(script=__file__)


if __name__ == "__main__":
    sys.exit(start.run(main))
