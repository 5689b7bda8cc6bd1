"""`cairn wheel diff`."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import arguments
from cairn.cli.parser import Subparsers, add_command
from cairn.output import console

if TYPE_CHECKING:
    from cairn.wheels.contents.diff import Delta, Difference


def add_to(commands: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "diff",
        run,
        about="show what changed between two wheels: metadata, requirements, files, libraries",
        example="cairn wheel diff yesterday/torch-….whl today/torch-….whl",
    )
    parser.add_argument("first", type=converters.file, metavar="FIRST", help="the older wheel")
    parser.add_argument("second", type=converters.file, metavar="SECOND", help="the newer wheel")
    arguments.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    from cairn import datafile
    from cairn.wheels.contents.diff import diff

    found = diff(options.first, options.second)
    screen = console.current()
    if options.json:
        screen.json(datafile.to_plain(found))
        return 0
    for line in _lines(found) or ["no difference"]:
        screen.out(line)
    return 0


def _lines(found: Difference) -> list[str]:
    lines = [f"{name}: {values[0] or '-'} -> {values[1] or '-'}" for name, values in found.fields.items()]
    lines += _signed("requires", found.requirements)
    lines += _signed("file", found.files)
    lines += [f"~ file {path}" for path in found.changed]
    lines += [f"~ run bit {path}" for path in found.modes]
    for library in found.libraries:
        for kind in ("needed", "run_paths", "targets", "version_needs"):
            lines += _signed(f"{library.member}: {kind.replace('_', ' ')}", getattr(library, kind))
    for archive in found.archives:
        lines += _signed(f"{archive.member}: target", archive.targets)
        lines += [f"- code in {archive.member}: {text}" for text in _counted(archive.code.removed)]
        lines += [f"+ code in {archive.member}: {text}" for text in _counted(archive.code.added)]
        of = archive.same + len(archive.changed)
        lines += [f"~ code in {archive.member}: {text}, of {of}" for text in _counted(archive.changed)]
    if found.order and not lines:
        lines.append("the same files, in a different order or with different times")
    return lines


def _counted(places: Iterable[str]) -> list[str]:
    """Code objects by library, since a library may have hundreds: `lib/libtorch_hip.so for gfx942: 12`."""
    libraries = Counter((name.rpartition("#")[0], arch) for name, arch in (p.rsplit(" ", 1) for p in places))
    return [f"{name} for {arch}: {count}" for (name, arch), count in sorted(libraries.items())]


def _signed(kind: str, change: Delta) -> list[str]:
    return [f"- {kind} {text}" for text in change.removed] + [f"+ {kind} {text}" for text in change.added]
