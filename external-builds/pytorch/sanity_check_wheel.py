#!/usr/bin/env python3
# PYTHON_ARGCOMPLETE_OK
"""Checks the wheels of a folder; `--help` has an example."""

import sys
from pathlib import Path

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
    from cairn.cli.guard import guarded
    from cairn.cli.upstream import scripts

    return guarded(scripts.sanity_check_wheel(Path(__file__)).parse_args())


if __name__ == "__main__":
    sys.exit(start.run(main))
