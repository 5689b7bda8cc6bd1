"""`cairn test skips lint`: what is wrong, out of date or without effect in files of skips."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import arguments
from cairn.cli.parser import Subparsers, add_command
from cairn.cli.test.skips import options as shared
from cairn.output import console

if TYPE_CHECKING:
    from cairn.testing.skips.lint import Finding


def add_to(commands: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "lint",
        _lint,
        about="say what is wrong, out of date or without effect in files of skips",
        more="Without --collection: keys, ids, conditions, duplicates, and what expired. With it, also "
        "what names no test; give the conditions of the run that it is from. Exits with 1 where it has "
        "found something.",
        example="cairn test skips lint external-builds/pytorch/skip-tests --collection collection.txt "
        "--targets gfx942 --pytorch-version 2.13",
    )
    shared.add_files(parser)
    parser.add_argument(
        "--collection",
        type=converters.file,
        metavar="FILE",
        help="what `pytest --collect-only -q` printed about all tests",
    )
    shared.add_facts(parser)
    arguments.add_json(parser)


def _lint(options: argparse.Namespace) -> int:
    from cairn.testing.skips import collection, lint
    from cairn.testing.skips.select import select

    day = shared.today()
    chosen = select(shared.read(options.files), shared.facts(options), today=day)
    found = [*lint.expired(chosen.entries, today=day), *lint.contradictory(chosen.entries)]
    if options.collection:
        found += lint.against(chosen.entries, collection.read(options.collection))
    show = console.current()
    if options.json:
        show.json({"entries": len(chosen.entries), "findings": [_plain(finding) for finding in found]})
    else:
        for finding in found:
            show.out(f"{finding.kind}: {finding.where}: {finding.text}")
        for remark in chosen.remarks:
            show.warn(remark)
        show.info(f"entries looked at: {len(chosen.entries)}; findings: {len(found)}")
    return 1 if found else 0


def _plain(finding: Finding) -> dict[str, object]:
    where = finding.where
    return {"kind": finding.kind, "file": str(where.file), "number": where.number, "text": finding.text}
