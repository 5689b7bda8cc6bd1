"""`cairn test skips list`: which tests are skipped in a run, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.cli.binder import command
from cairn.cli.test.skips.options import SkipsOfRun, today
from cairn.output import console

if TYPE_CHECKING:
    from cairn.testing.skips.conditions import When


@dataclass(frozen=True, kw_only=True)
class ListSkips(SkipsOfRun):
    """What `cairn test skips list` is asked for.

    Without a condition, all that may be.

        cairn test skips list external-builds/pytorch/skip-tests --targets gfx942 --pytorch-version 2.13
    """


def run(request: ListSkips) -> int:
    """Run the command; returns the exit code."""
    from cairn import datafile

    selection = request.select(today=today())
    show = console.current()
    if request.json:
        rows = [
            {"file": str(item.file), "number": item.number, **datafile.to_plain(item.entry)}
            for item in selection.entries
        ]
        show.json({"entries": rows, "remarks": list(selection.remarks)})
        return 0
    table = []
    for item in selection.entries:
        entry = item.entry
        expires = f"{entry.expires}{' (expired)' if item in selection.expired else ''}"
        why = f"{entry.reason} {entry.issue}".strip()
        table += [(name, conditions_of(entry.when), entry.owner, expires, why) for name in entry.names]
    if table:
        show.table(("test", "when", "owner", "expires", "reason"), table)
    for remark in selection.remarks:
        show.warn(remark)
    return 0


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
