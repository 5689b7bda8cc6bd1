"""The `cairn` program, also as `python -m cairn`."""

import sys

from cairn import start


def main() -> int:
    """Run the program; returns its exit code."""
    return start.run(_cairn)


def _cairn() -> int:
    from cairn.cli.main import main  # noqa: PLC0415 - once an interrupt is answered

    return main()


if __name__ == "__main__":
    sys.exit(main())
