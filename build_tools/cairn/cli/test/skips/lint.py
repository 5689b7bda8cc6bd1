"""`cairn test skips lint`: what is wrong, out of date or without effect in files of skips."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cairn import converters
from cairn.cli.answer import Answer, Note, Piece, Warn
from cairn.cli.binder import command
from cairn.cli.test.skips.options import SkipsOfRun, today
from cairn.options import option


@dataclass(frozen=True, kw_only=True)
class Lint(SkipsOfRun):
    """What `cairn test skips lint` is asked for.

    Without --collection: keys, ids, conditions, duplicates, and what expired. With it, also what names no
    test; give the conditions of the run that it is from. Exits with 1 where it has found something.

        cairn test skips lint external-builds/pytorch/skip-tests --collection collection.txt --targets
        gfx942 --pytorch-version 2.13
    """

    collection: Path | None = option(
        "what `pytest --collect-only -q` printed about all tests", metavar="FILE", convert=converters.file
    )


def run(request: Lint) -> Answer:
    """Run the command."""
    from cairn.testing.skips import ids, lint

    day = today()
    selection = request.select(today=day)
    findings = [*lint.expired(selection.entries, today=day), *lint.contradictory(selection.entries)]
    if request.collection:
        findings += lint.against(selection.entries, ids.read_collection(request.collection))
    rows = [
        {"kind": each.kind, "file": each.where.file, "number": each.where.number, "text": each.text}
        for each in findings
    ]
    text: tuple[Piece, ...] = (
        *(f"{each.kind}: {each.where}: {each.text}" for each in findings),
        *map(Warn, selection.remarks),
        Note(f"entries looked at: {len(selection.entries)}; findings: {len(findings)}"),
    )
    return Answer({"entries": len(selection.entries), "findings": rows}, text, exit_code=1 if findings else 0)


COMMANDS = {"lint": command(Lint, run)}
