"""`cairn ci night`: the jobs of the nightly workflow, one command each.

`begin` has freeze and build, `handover` fetch and keep, `publish` stage, test and promote,
`suites` suite and merge, `after` report, list and watch.
"""

from __future__ import annotations

from cairn.cli.ci.night import after, begin, handover, publish, suites
from cairn.cli.parser import Subparsers, add_commands


def add_to(commands: Subparsers) -> None:
    """Add `night` and its commands."""
    parser = commands.add_parser(
        "night", help="the nightly, job by job: freeze, build, stage, test, suite, merge, promote, report"
    )
    jobs = add_commands(
        parser,
        description="The nightly, job by job: freeze, build, stage, test, suite, merge, promote, report. "
        "What the jobs agree on lies in the store, and nothing is promoted but by what lies there.",
        example=begin.EXAMPLE,
    )
    for module in (begin, handover, publish, suites, after):
        module.add_to(jobs)
