"""`cairn wheel`: look at, compare, check and change built wheels; one module per command."""

from __future__ import annotations

import argparse

from cairn.cli.parser import add_commands
from cairn.cli.wheel import diff, fat, join, repair, set_version, show, split, verify


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the commands of the group."""
    commands = add_commands(
        parser,
        description="Look at, compare, check and change built wheels. No wheel is ever changed in place.",
        example="cairn wheel show out/torch-2.9.0+rocm7.10.0-cp311-cp311-manylinux_2_28_x86_64.whl",
    )
    for module in (show, diff, verify, set_version, repair, fat, split, join):
        module.add_to(commands)
