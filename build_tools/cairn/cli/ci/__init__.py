"""`cairn ci`: a stack end to end on this machine, the check of workflows, the jobs of a night.

One module per command; `command_lines` says for `lint` what the real command lines take.
"""

from __future__ import annotations

import argparse

from cairn.cli.ci import lint, night, run
from cairn.cli.parser import add_commands


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the commands of the group."""
    commands = add_commands(
        parser, description="Run a stack end to end, check workflows.", example=run.EXAMPLE
    )
    for module in (run, lint, night):
        module.add_to(commands)
