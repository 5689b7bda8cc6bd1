"""`cairn wheel set-version`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.cli import fields
from cairn.cli.answer import Answer, Note, Piece
from cairn.cli.binder import command
from cairn.options import part
from cairn.wheels.rewrite.options import NewVersion

if TYPE_CHECKING:
    from cairn.wheels.rewrite.set_version import Change


@dataclass(frozen=True, kw_only=True)
class SetVersion:
    """What `cairn wheel set-version` is asked for.

    METADATA, RECORD, WHEEL, folder and file names change together; exact pins among the wheels named and
    on the ROCm SDK follow, and so do version.py and _rocm_init.py inside; everything else is copied as it
    is. All of the wheels are written, or none.

        cairn wheel set-version --rocm-version 7.10.0 --output-dir out dist/*.whl
    """

    wheels: tuple[Path, ...] = fields.wheels()
    new: NewVersion = part(NewVersion)
    output_dir: Path = fields.output_dir()
    json: bool = fields.json()
    dry_run: bool = fields.dry_run()


def run(request: SetVersion) -> Answer:
    """Run the command."""
    from cairn.wheels.rewrite.set_version import set_versions

    changes = set_versions(request.wheels, request.new, request.output_dir, dry_run=request.dry_run)
    return Answer({"dry_run": request.dry_run, "wheels": list(map(_plain, changes))}, _text(changes))


def _text(changes: Iterable[Change]) -> Iterator[Piece]:
    for change in changes:
        for old, new in change.requirements.items():
            yield Note(f"{change.target.name}: requires {new}, before {old}")
        yield str(change.target)


def _plain(change: Change) -> dict[str, object]:
    return {
        "source": change.source,
        "wheel": change.target,
        "version": {"old": change.old, "new": change.new},
        "requirements": [{"old": old, "new": new} for old, new in change.requirements.items()],
        "files": change.files,
    }


COMMANDS = {"set-version": command(SetVersion, run)}
