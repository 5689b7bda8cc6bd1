"""`cairn ci night`: the jobs of the nightly workflow, one command each.

`begin` has freeze and build, `publish` stage, test and promote, `after` report, list and watch.
"""

from __future__ import annotations

import argparse

from cairn.cli.night import after, begin, publish
from cairn.cli.parser import add_commands


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the commands of the group."""
    commands = add_commands(
        parser,
        description="The nightly, job by job: freeze, build, stage, test, promote, report. What the jobs "
        "agree on lies in the store, and nothing is promoted but by what lies there.",
        example=begin.EXAMPLE,
    )
    begin.add_to(commands)
    publish.add_to(commands)
    after.add_to(commands)
