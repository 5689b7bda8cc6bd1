"""The command lines of `patch_fat_wheel.py` and `windows_patch_fat_wheel.py`, over `cairn wheel fat`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from cairn import converters
from cairn.cli.guard import guarded
from cairn.cli.parser import Parser
from cairn.cli.wheel import fat


def main(argv: Sequence[str] | None = None, *, script: str, windows: bool) -> int:
    """Run one of the scripts; returns the exit code.

    Args:
        argv: its arguments; the command line's by default.
        script: its own file.
        windows: whether it is the one for Windows wheels.
    """
    return guarded(_parser(Path(script), windows=windows).parse_args(argv))


def _parser(script: Path, *, windows: bool) -> argparse.ArgumentParser:
    parser = Parser(
        prog=script.name,
        description=f"{fat.ABOUT[0].upper()}{fat.ABOUT[1:]}. {fat.MORE}",
        epilog=f"example: python {script.name} torch-….whl /opt/rocm --output-path fat",
    )
    parser.add_argument(
        "--output-path",
        type=converters.new_folder,
        required=True,
        metavar="DIR",
        help="folder of the new wheel",
        dest="output_dir",
    )
    fat.add_arguments(parser)
    parser.set_defaults(run=fat.run, windows=windows)
    return parser
