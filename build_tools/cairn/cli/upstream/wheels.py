"""Upstream's `patch_fat_wheel.py`, its twin for Windows, and `sanity_check_wheel.py`, over `cairn wheel`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cairn import converters
from cairn.cli import binder
from cairn.cli.answer import Answer
from cairn.cli.parser import Parser
from cairn.cli.wheel import change, verify
from cairn.errors import UsageError
from cairn.options import argument, option


@dataclass(frozen=True, kw_only=True)
class PatchFatWheel(change.Fat):
    """Options of the scripts.

    Write a wheel that carries the ROCm libraries and data it needs, for the wanted targets alone, and
    that works without any ROCm SDK package. It gets a version of its own, such as 2.9.0+fat.rocm7.10.0.

        python patch_fat_wheel.py torch-….whl /opt/rocm --output-path fat
    """

    output_dir: Path = option(
        "folder of the new wheel", "--output-path", convert=converters.new_folder, required=True
    )


def patch_fat_wheel(script: Path, *, windows: bool) -> Parser:
    """The parser of `patch_fat_wheel.py`, or of the script for Windows wheels, over `cairn wheel fat`."""

    def run(request: PatchFatWheel) -> Answer:
        if windows != ("-win" in request.wheel.name):
            other = "patch_fat_wheel.py" if windows else "windows_patch_fat_wheel.py"
            raise UsageError(f"{request.wheel.name} is not for this script", tip=f"use {other}")
        return change.fat(request)

    parser = binder.script(script, PatchFatWheel, run)
    parser.epilog = str(parser.epilog).replace("patch_fat_wheel.py", script.name)
    return parser


@dataclass(frozen=True, kw_only=True)
class SanityCheck:
    """Options of the script.

    Check the wheels of a folder for everything that a published wheel must satisfy.

        python sanity_check_wheel.py out
    """

    wheel_dir: Path = argument("DIR", "folder of the wheels", convert=converters.folder)


def sanity_check_wheel(script: Path) -> Parser:
    """The parser of `sanity_check_wheel.py`."""
    return binder.script(script, SanityCheck, _check)


def _check(request: SanityCheck) -> Answer:
    wheels = tuple(sorted(request.wheel_dir.glob("*.whl")))
    if not wheels:
        raise UsageError(f"{request.wheel_dir} has no wheels", tip="name the folder that has them")
    return verify.run(verify.Verify(wheels=wheels))
