"""`cairn wheel join`: device code back in its host wheel."""

from __future__ import annotations

import argparse

from cairn import datafile
from cairn.output import console
from cairn.wheels.split.join import join


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    screen = console.current()
    made = join(options.host, options.devices, options.output_dir)
    if options.json:
        libraries = [datafile.to_plain(library) for library in made.libraries]
        screen.json({"wheel": str(made.path), "libraries": libraries})
        return 0
    screen.out(str(made.path))
    for library in made.libraries:
        if library.missing:
            screen.out(f"  {library.library}: without {', '.join(library.missing)}")
        elif not library.same_bytes:
            screen.out(f"  {library.library}: the original code objects, compressed anew")
    return 0
