"""`cairn ci`: a stack end to end on this machine, and the jobs of a night; one module per command."""

from __future__ import annotations

import argparse

from cairn.cli.ci import night, run
from cairn.cli.parser import add_commands


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the commands of the group."""
    commands = add_commands(
        parser, description="Run a stack end to end, or the jobs of a night.", example=run.EXAMPLE
    )
    for module in (run, night):
        module.add_to(commands)
