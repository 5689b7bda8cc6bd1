"""`cairn test skips list`: which tests are skipped in a run, and why."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cairn.cli import arguments
from cairn.cli.parser import Subparsers, add_command
from cairn.cli.test.skips import options as shared
from cairn.output import console

if TYPE_CHECKING:
    from cairn.testing.skips.conditions import When


def add_to(commands: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "list",
        _list,
        about="say which tests are skipped in a run, why, and until when",
        more="Without a condition, all that may be.",
        example="cairn test skips list external-builds/pytorch/skip-tests --targets gfx942 "
        "--pytorch-version 2.13",
    )
    shared.add_files(parser)
    shared.add_facts(parser)
    arguments.add_json(parser)


def _list(options: argparse.Namespace) -> int:
    from cairn import datafile
    from cairn.testing.skips.select import select

    found = select(shared.read(options.files), shared.facts(options), today=shared.today())
    show = console.current()
    if options.json:
        rows = [
            {"file": str(item.file), "number": item.number, **datafile.to_plain(item.entry)}
            for item in found.entries
        ]
        show.json({"entries": rows, "remarks": list(found.remarks)})
        return 0
    table = []
    for item in found.entries:
        entry = item.entry
        expires = f"{entry.expires}{' (expired)' if item in found.expired else ''}"
        why = f"{entry.reason} {entry.issue}".strip()
        table += [(name, conditions_of(entry.when), entry.owner, expires, why) for name in entry.names]
    if table:
        show.table(("test", "when", "owner", "expires", "reason"), table)
    for remark in found.remarks:
        show.warn(remark)
    return 0


def conditions_of(when: When) -> str:
    """Conditions in a few words."""
    from cairn import datafile

    words = (
        f"{name} {value if isinstance(value, str) else ' '.join(value)}"
        for name, value in datafile.to_plain(when).items()
        if value
    )
    return ", ".join(words) or "always"
