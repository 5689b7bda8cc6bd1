"""`cairn wheel repair`."""

from __future__ import annotations

import argparse

from cairn import console
from cairn.wheels import repair


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    for wheel in options.wheels:
        made = repair.repair_linked(
            wheel,
            options.output_dir,
            exclude=options.exclude,
            platform=options.platform,
            sdk=options.sdk,
            search=options.library_path,
        )
        console.current().out(str(made))
    return 0
