"""`cairn wheel set-version`."""

from __future__ import annotations

import argparse

from cairn.output import console
from cairn.wheels.rewrite.set_version import Change, Wanted, set_versions


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
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
