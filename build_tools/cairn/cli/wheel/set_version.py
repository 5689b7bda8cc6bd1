"""`cairn wheel set-version`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cairn.cli import arguments
from cairn.cli.parser import Subparsers, add_command
from cairn.output import console

if TYPE_CHECKING:
    from cairn.wheels.rewrite.set_version import Change


def add_to(commands: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "set-version",
        run,
        about="write wheels under new versions",
        more="METADATA, RECORD, WHEEL, folder and file names change together; exact pins among the wheels "
        "named and on the ROCm SDK follow, and so do version.py and _rocm_init.py inside; everything else is "
        "copied as it is. All of the wheels are written, or none.",
        example="cairn wheel set-version --rocm-version 7.10.0 --output-dir out dist/*.whl",
    )
    arguments.add_wheels(parser)
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--version", help="the whole new version")
    how.add_argument("--rocm-version", help="the ROCm version for the suffix to name")
    how.add_argument("--promote", metavar="STAGE", help="one stage further: rc1, rc2, … or final")
    parser.add_argument("--build-number", help="the new build number; an empty text drops it")
    arguments.add_repeated(parser, "--require", "REQUIREMENT", "a requirement to add, or to replace its own")
    arguments.add_output_dir(parser)
    arguments.add_json(parser)
    arguments.add_dry_run(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    from cairn.wheels.rewrite.set_version import Wanted, set_versions

    wanted = Wanted(
        version=options.version,
        rocm_version=options.rocm_version,
        stage=options.promote,
        build=options.build_number,
        requires=tuple(options.require),
    )
    made = set_versions(options.wheels, wanted, options.output_dir, dry_run=options.dry_run)
    screen = console.current()
    if options.json:
        screen.json({"dry_run": options.dry_run, "wheels": list(map(_plain, made))})
        return 0
    for change in made:
        for old, new in change.requirements.items():
            screen.info(f"{change.target.name}: requires {new}, before {old}")
        screen.out(str(change.target))
    return 0


def _plain(change: Change) -> dict[str, object]:
    return {
        "source": str(change.source),
        "wheel": str(change.target),
        "version": {"old": change.old, "new": change.new},
        "requirements": [{"old": old, "new": new} for old, new in change.requirements.items()],
        "files": list(change.files),
    }
