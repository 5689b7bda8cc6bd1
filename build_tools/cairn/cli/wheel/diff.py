"""`cairn wheel diff`."""

from __future__ import annotations

import argparse

from cairn import datafile
from cairn.cli.wheel import text
from cairn.output import console
from cairn.wheels.contents.diff import diff


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    found = diff(options.first, options.second)
    screen = console.current()
    if options.json:
        screen.json(datafile.to_plain(found))
    else:
        text.show_difference(screen, found)
    return 0
