"""The command lines of `patch_fat_wheel.py` and `windows_patch_fat_wheel.py`, over `cairn wheel fat`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cairn import converters
from cairn.cli.answer import Answer
from cairn.cli.binder import bind
from cairn.cli.guard import guarded
from cairn.cli.parser import Parser
from cairn.cli.wheel import fat
from cairn.errors import UsageError
from cairn.options import option


@dataclass(frozen=True, kw_only=True)
class PatchFatWheel(fat.Fat):
    """What the scripts are asked for."""

    output_dir: Path = option(
        "folder of the new wheel",
        "--output-path",
        metavar="DIR",
        convert=converters.new_folder,
        required=True,
    )


def main(argv: Sequence[str] | None = None, *, script: str, windows: bool) -> int:
    """Run one of the scripts; returns the exit code.

    Args:
        argv: its arguments; the command line's by default.
        script: its own file.
        windows: whether it is the one for Windows wheels.
    """
    return guarded(_parser(Path(script), windows=windows).parse_args(argv))


def _parser(script: Path, *, windows: bool) -> Parser:
    parser = Parser(
        prog=script.name,
        description=f"{fat.ABOUT[0].upper()}{fat.ABOUT[1:]}. {fat.MORE}",
        epilog=f"example: python {script.name} torch-….whl /opt/rocm --output-path fat",
    )

    def run(request: PatchFatWheel) -> Answer:
        if windows != ("-win" in request.wheel.name):
            other = "patch_fat_wheel.py" if windows else "windows_patch_fat_wheel.py"
            raise UsageError(f"{request.wheel.name} is not for this script", tip=f"use {other}")
        return fat.run(request)

    bind(parser, PatchFatWheel, run)
    return parser
