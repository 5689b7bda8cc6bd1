"""`cairn index`: serve, fill, compare and look after an index; one module per command.

`upkeep` has those that look after a store: audit, render, recover, gc.
"""

from __future__ import annotations

import argparse

from cairn.cli.index import mirror, publish, serve, upkeep, verify
from cairn.cli.parser import add_commands


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the commands of the group."""
    commands = add_commands(
        parser,
        description="Work with an index: static files that pip and uv install from.",
        example="cairn index serve ./store",
    )
    for module in (serve, publish, mirror, upkeep, verify):
        module.add_to(commands)
