"""`cairn test`: test built wheels, and judge the results; one module per command."""

from __future__ import annotations

import argparse

from cairn.cli.parser import add_commands
from cairn.cli.test import compat, merge, report, shards, skips, smoke, suite


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the commands of the group."""
    commands = add_commands(
        parser,
        description="Test built wheels as they will be installed, and judge the results.",
        example="cairn test report --floor 100 results/*.xml",
    )
    for module in (smoke, suite, shards, merge, compat, report, skips):
        module.add_to(commands)
