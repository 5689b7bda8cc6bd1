"""`cairn test skips`: look after the tests that a suite leaves out; one module per command."""

from __future__ import annotations

from cairn.cli.parser import Subparsers, add_commands
from cairn.cli.test.skips import importing, lint, listing, retry


def add_to(commands: Subparsers) -> None:
    """Add the group and its commands."""
    parser = commands.add_parser("skips", help="look after the tests that a suite leaves out")
    group = add_commands(
        parser,
        description="Look after the tests that a suite leaves out: skip-tests/*.toml.",
        example="cairn test skips lint external-builds/pytorch/skip-tests",
    )
    for module in (lint, listing, importing, retry):
        module.add_to(group)
