"""`cairn wheel split`: device code in wheels of its own."""

from __future__ import annotations

import argparse

from cairn.output import console
from cairn.wheels.split.split import split


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    screen = console.current()
    made = split(options.wheel, options.output_dir)
    if options.json:
        screen.json({"host": str(made[0]), "devices": [str(path) for path in made[1:]]})
    for path in () if options.json else made:
        screen.out(str(path))
    return 0
