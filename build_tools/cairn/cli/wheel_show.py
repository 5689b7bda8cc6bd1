"""`cairn wheel show`."""

from __future__ import annotations

import argparse

from cairn import console, jsonfile
from cairn.cli import wheel_text
from cairn.wheels.summary import summarise


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    found = [summarise(path) for path in options.wheels]
    screen = console.current()
    if options.json:
        screen.json([jsonfile.to_plain(summary) for summary in found])
    for summary in () if options.json else found:
        wheel_text.show(screen, summary)
    return 0
