"""`cairn test merge`: the shards of a suite judged together, as one record."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cairn.cli import fields
from cairn.cli.answer import Answer
from cairn.cli.binder import command
from cairn.cli.test import suite_options
from cairn.options import argument, part
from cairn.testing.options import Floors


@dataclass(frozen=True, kw_only=True)
class Merge:
    """What `cairn test merge` is asked for.

    Each folder is what one shard of `cairn test suite` or run_pytorch_tests.py wrote. A shard that is
    missing, or a test that ran twice or nowhere, is a failure.

        cairn test merge --floor 40000 --output-dir suite shards/1 shards/2
    """

    folders: tuple[Path, ...] = argument("FOLDER", "the results of a shard", nargs="+", convert=Path)
    output_dir: Path = fields.output_dir(default=Path("suite"))
    floors: Floors = part(Floors)
    json: bool = fields.json()


def run(request: Merge) -> Answer:
    """Run the command."""
    from cairn.testing.suite import merge

    merged = merge.merge(
        [folder.absolute() for folder in request.folders],
        request.output_dir.absolute(),
        floor=request.floors.tests,
        device_floor=request.floors.device_tests,
    )
    return suite_options.answer(merged)


COMMANDS = {"merge": command(Merge, run)}
