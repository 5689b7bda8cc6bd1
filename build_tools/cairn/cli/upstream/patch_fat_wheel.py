"""The command lines of `patch_fat_wheel.py` and `windows_patch_fat_wheel.py`, over `cairn wheel fat`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cairn import converters
from cairn.cli import binder
from cairn.cli.answer import Answer
from cairn.cli.guard import guarded
from cairn.cli.parser import Parser
from cairn.cli.wheel import fat
from cairn.errors import UsageError
from cairn.options import option


@dataclass(frozen=True, kw_only=True)
class PatchFatWheel(fat.Fat):
    """What the scripts are asked for.

    Write a wheel that carries the ROCm libraries and data it needs, for the wanted targets alone, and
    that works without any ROCm SDK package. It gets a version of its own, such as 2.9.0+fat.rocm7.10.0.

        python patch_fat_wheel.py torch-….whl /opt/rocm --output-path fat
    """

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
    def run(request: PatchFatWheel) -> Answer:
        if windows != ("-win" in request.wheel.name):
            other = "patch_fat_wheel.py" if windows else "windows_patch_fat_wheel.py"
            raise UsageError(f"{request.wheel.name} is not for this script", tip=f"use {other}")
        return fat.run(request)

    parser = binder.script(script, PatchFatWheel, run)
    parser.epilog = str(parser.epilog).replace("patch_fat_wheel.py", script.name)
    return parser
