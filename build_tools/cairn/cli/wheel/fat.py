"""`cairn wheel fat`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import arguments
from cairn.cli.parser import Subparsers, add_command
from cairn.errors import UsageError
from cairn.output import console

if TYPE_CHECKING:
    from cairn.wheels.fat.report import FatReport

ABOUT = (
    "write a wheel that carries the ROCm libraries and data it needs, for the wanted targets alone, and that "
    "works without any ROCm SDK package"
)
MORE = "It gets a version of its own, such as 2.9.0+fat.rocm7.10.0."


def add_to(commands: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "fat",
        run,
        about=ABOUT,
        more=MORE,
        example="cairn wheel fat --output-dir fat dist/torch-….whl /opt/rocm",
    )
    arguments.add_output_dir(parser)
    add_arguments(parser)
    parser.set_defaults(windows=None)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `cairn wheel fat` and the scripts with upstream's name for it have in common."""
    parser.add_argument("wheel", type=converters.file, metavar="WHEEL", help="the linked wheel")
    parser.add_argument(
        "rocm", type=converters.folder, metavar="ROCM_PATH", help="the ROCm to take libraries from"
    )
    arguments.add_targets(parser, default="those the wheel has code for")
    parser.add_argument("--version", help="the whole new version")
    arguments.add_repeated(parser, "--library", "NAME", "a further library to take")
    arguments.add_provided(parser)
    parser.add_argument(
        "--strict",
        action="store_true",
        help="stop where ROCM_PATH lacks a library that ROCm's torch opens by name",
    )
    arguments.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    from cairn import datafile
    from cairn.wheels.fat import build, target_names

    if options.windows is not None and options.windows != ("-win" in options.wheel.name):
        other = "patch_fat_wheel.py" if options.windows else "windows_patch_fat_wheel.py"
        raise UsageError(f"{options.wheel.name} is not for this script", tip=f"use {other}")
    request = build.FatRequest(
        wheel=options.wheel,
        rocm=options.rocm,
        output_dir=options.output_dir,
        targets=None if options.targets is None else target_names.parse(options.targets),
        version=options.version,
        libraries=tuple(options.library),
        provided=tuple(options.provided),
        strict=options.strict,
    )
    screen = console.current()
    with screen.stage(f"putting ROCm into {options.wheel.name}"):
        report = build.make(request)
    if options.json:
        screen.json(datafile.to_plain(report))
    else:
        _show(report)
    return 0


def _show(report: FatReport) -> None:
    screen = console.current()
    rows = [
        (part.name, console.size(part.size), str(part.files), _by_target(part.sizes)) for part in report.parts
    ]
    screen.table(("carries", "size", "files", "by target"), rows)
    screen.table(("target", "size"), [(name, console.size(count)) for name, count in report.sizes.items()])
    for name in report.dropped:
        screen.out(f"requires no longer: {name}")
    for member in report.changed:
        screen.out(f"run path changed: {member}")
    for reason in dict.fromkeys(left.reason for left in report.left_out):
        names = ", ".join(left.name for left in report.left_out if left.reason == reason)
        screen.out(f"skipped {names}: {reason}")
    screen.out(f"{report.wheel} ({console.size(report.size)})")


def _by_target(sizes: Mapping[str, int]) -> str:
    from cairn.targets import sort_key

    return ", ".join(f"{target} {console.size(sizes[target])}" for target in sorted(sizes, key=sort_key))
