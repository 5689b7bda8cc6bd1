"""`cairn release`: bring sets from channel to channel, and take them back; one module per command.

`history` has those that take something back, and the log of what was done: rollback, yank, retain, log.
"""

from __future__ import annotations

import argparse

from cairn.cli.parser import add_commands
from cairn.cli.release import history, key, new_version, promote, record


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the commands of the group."""
    commands = add_commands(
        parser, description="Bring sets from channel to channel.", example=promote.EXAMPLE
    )
    for module in (promote, new_version, record, history, key):
        module.add_to(commands)
