"""`cairn test skips list`: which tests are skipped in a run, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.cli.answer import Answer, Piece, Table, Warn
from cairn.cli.binder import command
from cairn.cli.test.skips.options import SkipsOfRun, today

if TYPE_CHECKING:
    from cairn.testing.skips.conditions import When
    from cairn.testing.skips.select import Selection


@dataclass(frozen=True, kw_only=True)
class ListSkips(SkipsOfRun):
    """What `cairn test skips list` is asked for.

    Without a condition, all that may be.

        cairn test skips list external-builds/pytorch/skip-tests --targets gfx942 --pytorch-version 2.13
    """


def run(request: ListSkips) -> Answer:
    """Run the command."""
    from cairn import datafile

    selection = request.select(today=today())
    plain = [
        {"file": item.file, "number": item.number, **datafile.to_plain(item.entry)}
        for item in selection.entries
    ]
    return Answer({"entries": plain, "remarks": selection.remarks}, _text(selection))


def _text(selection: Selection) -> Iterator[Piece]:
    rows = []
    for item in selection.entries:
        entry = item.entry
        expires = f"{entry.expires}{' (expired)' if item in selection.expired else ''}"
        why = f"{entry.reason} {entry.issue}".strip()
        rows += [(name, conditions_of(entry.when), entry.owner, expires, why) for name in entry.names]
    if rows:
        yield Table(("test", "when", "owner", "expires", "reason"), rows)
    yield from map(Warn, selection.remarks)


def conditions_of(when: When) -> str:
    """Conditions in a few words."""
    from cairn import datafile

    words = (
        f"{name} {value if isinstance(value, str) else ' '.join(value)}"
        for name, value in datafile.to_plain(when).items()
        if value
    )
    return ", ".join(words) or "always"


COMMANDS = {"list": command(ListSkips, run)}
