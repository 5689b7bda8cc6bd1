"""`cairn build`: wheels from the checkouts of a stack; one module per command.

`options` has what several commands take, and makes the jobs of `cairn.build` of it.
"""

from __future__ import annotations

import argparse

from cairn.cli.build import cache, log, plan, run
from cairn.cli.parser import add_commands


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the commands of the group; without the name of one, a build is meant."""
    commands = add_commands(
        parser,
        description="Build the wheels of a stack from its checkouts; what has not changed is not built.",
        example=run.EXAMPLE,
        default="run",
    )
    for module in (run, plan, cache, log):
        module.add_to(commands)
