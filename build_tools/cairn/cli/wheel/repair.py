"""`cairn wheel repair`."""

from __future__ import annotations

import argparse
from pathlib import Path

from cairn.output import console
from cairn.wheels.metadata import wheel_info
from cairn.wheels.repair import auditwheel


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    screen = console.current()
    made = []
    for wheel in options.wheels:
        path = auditwheel.repair_linked(
            wheel,
            options.output_dir,
            exclude=options.exclude,
            platform=options.platform,
            sdk=options.sdk,
            search=options.library_path,
        )
        made.append(_plain(wheel, path))
        if not options.json:
            screen.out(str(path))
    if options.json:
        screen.json({"wheels": made})
    return 0


def _plain(source: Path, made: Path) -> dict[str, object]:
    return {
        "source": str(source),
        "wheel": str(made),
        "tags": list(wheel_info.parse_file_name(made.name).tags),
    }
