"""`cairn rocm`: fetch ROCm's artifacts, make and install the packages of its SDK; one module per command."""

from __future__ import annotations

import argparse

from cairn.cli.parser import add_commands
from cairn.cli.rocm import fetch, install, package


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the commands of the group."""
    commands = add_commands(
        parser,
        description="Fetch what CI built of ROCm, turn it into pip packages, and install them.",
        example="cairn rocm install --python .venv --index-url URL",
    )
    for module in (fetch, package, install):
        module.add_to(commands)
