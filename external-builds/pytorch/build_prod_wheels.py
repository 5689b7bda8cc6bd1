#!/usr/bin/env python3
# PYTHON_ARGCOMPLETE_OK
"""Installs the ROCm SDK and builds PyTorch wheels; `--help` has an example."""

import sys

try:
    from cairn import start
except ModuleNotFoundError:
    print(
        "error: Cairn is not installed: run `pip install -e '.[build,test]'` in the root of this repository, "
        "or `python3 dev.py check`, which makes a .venv with it",
        file=sys.stderr,
    )
    sys.exit(3)


def main() -> int:
    from cairn.cli.upstream import build_prod_wheels

    return build_prod_wheels.main(script=__file__)


if __name__ == "__main__":
    sys.exit(start.run(main))
