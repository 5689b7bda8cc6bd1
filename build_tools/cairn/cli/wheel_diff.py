"""`cairn wheel diff`."""

from __future__ import annotations

import argparse

from cairn import console, jsonfile
from cairn.cli import wheel_text
from cairn.wheels.diff import diff


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    found = diff(options.first, options.second)
    screen = console.current()
    if options.json:
        screen.json(jsonfile.to_plain(found))
    else:
        wheel_text.show_difference(screen, found)
    return 0
