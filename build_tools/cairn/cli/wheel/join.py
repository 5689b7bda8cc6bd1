"""`cairn wheel join`: device code back in its host wheel."""

from __future__ import annotations

import argparse

from cairn import converters
from cairn.cli import arguments
from cairn.cli.parser import Subparsers, add_command
from cairn.output import console


def add_to(commands: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "join",
        run,
        about="write a wheel of a host wheel and device wheels that were split from it",
        example="cairn wheel join split/torch-….whl split/torch_device_gfx942-….whl --output-dir out",
    )
    parser.add_argument("host", type=converters.file, metavar="HOST", help="the host wheel")
    parser.add_argument("devices", type=converters.file, nargs="+", metavar="DEVICE", help="a device wheel")
    arguments.add_output_dir(parser)
    arguments.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    from cairn import datafile
    from cairn.wheels.split.join import join

    screen = console.current()
    made = join(options.host, options.devices, options.output_dir)
    if options.json:
        libraries = [datafile.to_plain(library) for library in made.libraries]
        screen.json({"wheel": str(made.path), "libraries": libraries})
        return 0
    screen.out(str(made.path))
    for library in made.libraries:
        if library.missing:
            screen.out(f"  {library.library}: without {', '.join(library.missing)}")
        elif not library.same_bytes:
            screen.out(f"  {library.library}: the original code objects, compressed again")
    return 0
