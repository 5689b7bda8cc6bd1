"""`cairn wheel split` and `cairn wheel join`: device code in wheels of its own, and back."""

from __future__ import annotations

import argparse
from pathlib import Path

from cairn import console, jsonfile
from cairn.cli.groups import Subparsers
from cairn.wheels.join import join
from cairn.wheels.split import split


def register(commands: Subparsers) -> None:
    """Add the two commands to `cairn wheel`."""
    parser = commands.add_parser(
        "split",
        help="put the device code of each target into a wheel of its own",
        description="Write a host wheel without device code, and one device wheel for each target. The host "
        "wheel needs `cairn wheel join` before its kernels run.",
        epilog="example: cairn wheel split --output-dir split dist/torch-….whl",
        allow_abbrev=False,
    )
    parser.add_argument("wheel", type=Path, metavar="WHEEL")
    _add_output(parser)
    parser.set_defaults(run=_split)
    parser = commands.add_parser(
        "join",
        help="put device wheels back into their host wheel",
        epilog="example: cairn wheel join split/torch-….whl split/torch_device_gfx942-….whl --output-dir out",
        allow_abbrev=False,
    )
    parser.add_argument("host", type=Path, metavar="HOST")
    parser.add_argument("devices", type=Path, nargs="+", metavar="DEVICE")
    _add_output(parser)
    parser.set_defaults(run=_join)


def _split(options: argparse.Namespace) -> int:
    screen = console.current()
    made = split(options.wheel, options.output_dir)
    if options.json:
        screen.json({"host": str(made[0]), "devices": [str(path) for path in made[1:]]})
    for path in () if options.json else made:
        screen.out(str(path))
    return 0


def _join(options: argparse.Namespace) -> int:
    screen = console.current()
    made = join(options.host, options.devices, options.output_dir)
    if options.json:
        libraries = [jsonfile.to_plain(library) for library in made.libraries]
        screen.json({"wheel": str(made.path), "libraries": libraries})
        return 0
    screen.out(str(made.path))
    for library in made.libraries:
        if library.missing:
            screen.out(f"  {library.library}: without {', '.join(library.missing)}")
        elif not library.same_bytes:
            screen.out(f"  {library.library}: the original code objects, compressed anew")
    return 0


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output-dir", type=Path, required=True, help="where the new wheels go")
    parser.add_argument("--json", action="store_true", help="print JSON for a program to read")
