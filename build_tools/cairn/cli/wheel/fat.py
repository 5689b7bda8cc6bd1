"""`cairn wheel fat`, and the scripts that keep upstream's name for it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from cairn import datafile
from cairn.cli import main as program
from cairn.cli import paths, wheel
from cairn.cli.parser import Parser
from cairn.errors import UsageError
from cairn.output import console
from cairn.targets import sort_key
from cairn.wheels.fat import build, target_names
from cairn.wheels.fat.report import FatReport


def main(argv: Sequence[str] | None = None, *, script: Path, windows: bool) -> int:
    """Run `patch_fat_wheel.py` or its sibling for Windows; returns the exit code.

    Args:
        argv: its arguments; the command line's by default.
        script: its own file.
        windows: whether it is the one for Windows wheels.
    """
    return program.guarded(_parser(script, windows=windows).parse_args(argv))


def _parser(script: Path, *, windows: bool) -> argparse.ArgumentParser:
    parser = Parser(
        prog=script.name,
        description=wheel.FAT,
        epilog=f"example: python {script.name} torch-….whl /opt/rocm --output-path fat",
    )
    parser.add_argument(
        "--output-path",
        type=paths.new_folder,
        required=True,
        metavar="DIR",
        help="folder of the new wheel",
        dest="output_dir",
    )
    wheel.add_fat_arguments(parser)
    parser.set_defaults(run=run, windows=windows)
    return parser


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
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
        screen.out(f"left out: {names}: {reason}")
    screen.out(f"{report.wheel} ({console.size(report.size)})")


def _by_target(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{target} {console.size(sizes[target])}" for target in sorted(sizes, key=sort_key))
