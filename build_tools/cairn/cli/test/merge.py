"""`cairn test merge`: the shards of a suite judged together, as one record."""

from __future__ import annotations

import argparse
from pathlib import Path

from cairn.cli import arguments
from cairn.cli.parser import Subparsers, add_command
from cairn.cli.test import suite_options


def add_to(commands: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "merge",
        run,
        about="judge the shards of a suite together, and write one record of them",
        more="Each folder is what one shard of `cairn test suite` or run_pytorch_tests.py wrote. A shard "
        "that is missing, or a test that ran twice or nowhere, is a failure.",
        example="cairn test merge --floor 40000 --output-dir suite shards/1 shards/2",
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="the results of a shard")
    arguments.add_output_dir(parser, default=Path("suite"))
    suite_options.add_floors(parser)
    arguments.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    from cairn.testing.suite import merge

    merged = merge.merge(
        [folder.absolute() for folder in options.folders],
        options.output_dir.absolute(),
        floor=options.floor,
        device_floor=options.device_floor,
    )
    return suite_options.report(merged, json=options.json, log=None)
