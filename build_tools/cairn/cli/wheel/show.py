"""`cairn wheel show`."""

from __future__ import annotations

import argparse

from cairn.cli.wheel import text
from cairn.output import console
from cairn.wheels.contents.summary import summarise


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    found = [summarise(path) for path in options.wheels]
    screen = console.current()
    if options.json:
        screen.json([summary.to_plain() for summary in found])
    for summary in () if options.json else found:
        text.show(screen, summary)
    return 0
