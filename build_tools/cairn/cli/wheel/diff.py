"""`cairn wheel diff`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import fields
from cairn.cli.answer import Answer
from cairn.cli.binder import command
from cairn.options import argument

if TYPE_CHECKING:
    from cairn.wheels.contents.diff import Delta, Difference


@dataclass(frozen=True, kw_only=True)
class Diff:
    """What `cairn wheel diff` is asked for.

    cairn wheel diff yesterday/torch-….whl today/torch-….whl
    """

    first: Path = argument("FIRST", "the older wheel", convert=converters.file)
    second: Path = argument("SECOND", "the newer wheel", convert=converters.file)
    json: bool = fields.json()


def run(request: Diff) -> Answer:
    """Run the command."""
    from cairn.wheels.contents.diff import diff

    difference = diff(request.first, request.second)
    return Answer(difference, _lines(difference) or ["no difference"])


def _lines(difference: Difference) -> list[str]:
    lines = [
        f"{name}: {values[0] or '-'} -> {values[1] or '-'}" for name, values in difference.fields.items()
    ]
    lines += _signed("requires", difference.requirements)
    lines += _signed("file", difference.files)
    lines += [f"~ file {path}" for path in difference.changed]
    lines += [f"~ run bit {path}" for path in difference.modes]
    for library in difference.libraries:
        for kind in ("needed", "run_paths", "targets", "version_needs"):
            lines += _signed(f"{library.member}: {kind.replace('_', ' ')}", getattr(library, kind))
    for archive in difference.archives:
        lines += _signed(f"{archive.member}: target", archive.targets)
        lines += [f"- code in {archive.member}: {text}" for text in _counted(archive.code.removed)]
        lines += [f"+ code in {archive.member}: {text}" for text in _counted(archive.code.added)]
        of = archive.same + len(archive.changed)
        lines += [f"~ code in {archive.member}: {text}, of {of}" for text in _counted(archive.changed)]
    if difference.order and not lines:
        lines.append("the same files, in a different order or with different times")
    return lines


def _counted(places: Iterable[str]) -> list[str]:
    """Code objects by library, since a library may have hundreds: `lib/libtorch_hip.so for gfx942: 12`."""
    libraries = Counter((name.rpartition("#")[0], arch) for name, arch in (p.rsplit(" ", 1) for p in places))
    return [f"{name} for {arch}: {count}" for (name, arch), count in sorted(libraries.items())]


def _signed(kind: str, change: Delta) -> list[str]:
    return [f"- {kind} {text}" for text in change.removed] + [f"+ {kind} {text}" for text in change.added]


COMMANDS = {"diff": command(Diff, run)}
