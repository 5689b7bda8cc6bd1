"""`cairn release new-version`: the wheels of a set under the versions of its next stage."""

from __future__ import annotations

import argparse

from cairn.cli import arguments
from cairn.cli.parser import Subparsers, add_command
from cairn.cli.release.record import set_id_of
from cairn.output import console


def add_to(commands: Subparsers) -> None:
    """Add `new-version`."""
    parser = add_command(
        commands,
        "new-version",
        _new_version,
        about="write the wheels of a set under the versions of its next stage",
        more="The wheels are new bytes: publish them as a set of their own, and test that one. Its set.json "
        "names the set that they come from.",
        example="cairn release new-version SET --promote rc1 --store ./store --output-dir rc1",
    )
    parser.add_argument("set_id", metavar="SET", help="its set.json, or its id: the first digits will do")
    parser.add_argument(
        "--promote", metavar="STAGE", required=True, help="one stage further: rc1, rc2, … or final"
    )
    arguments.add_store(parser)
    arguments.add_index(parser, default="staging")
    arguments.add_output_dir(parser)
    arguments.add_dry_run(parser)
    arguments.add_json(parser)


def _new_version(options: argparse.Namespace) -> int:
    from cairn.release.index.snapshot import Index, whole_id
    from cairn.release.new_version import next_stage

    store = arguments.open_existing_store(options)
    set_id = whole_id(set_id_of(options.set_id), Index(store, options.index).load())
    _, changes = next_stage(store, set_id, options.promote, options.output_dir, dry_run=options.dry_run)
    screen = console.current()
    if options.json:
        wheels = [{"wheel": str(c.target), "version": {"old": c.old, "new": c.new}} for c in changes]
        screen.json({"derived_from": set_id, "wheels": wheels, "dry_run": options.dry_run})
        return 0
    for change in changes:
        screen.out(f"{'would write' if options.dry_run else '+'} {change.target}")
    return 0
