"""`cairn wheel split`: device code in wheels of its own."""

from __future__ import annotations

import argparse

from cairn.cli import arguments
from cairn.cli.parser import Subparsers, add_command
from cairn.output import console


def add_to(commands: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "split",
        run,
        about="write a host wheel without device code, and one device wheel for each target",
        more="ROCm 7.14 finds the code of an installed device wheel; older ones need `cairn wheel join`.",
        example="cairn wheel split --output-dir split dist/torch-….whl",
    )
    parser.add_argument("wheel", type=arguments.file, metavar="WHEEL", help="a linked wheel")
    arguments.add_output_dir(parser)
    arguments.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    from cairn.wheels.split.split import split

    screen = console.current()
    made = split(options.wheel, options.output_dir)
    if options.json:
        screen.json({"host": str(made[0]), "devices": [str(path) for path in made[1:]]})
    for path in () if options.json else made:
        screen.out(str(path))
    return 0
