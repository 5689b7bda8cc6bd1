"""`cairn test skips lint` and `list`: the files of tests that a suite leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn import converters
from cairn.cli import common_options as common
from cairn.cli.answer import Answer, Note, Piece, Table, Warn
from cairn.cli.binder import command
from cairn.options import option

if TYPE_CHECKING:
    from cairn.testing.skips.conditions import When
    from cairn.testing.skips.select import Selection


def _version(of: str) -> Any:
    return option(f"version of {of} (default: any)", metavar="VERSION", convert=converters.nonempty)


@dataclass(frozen=True, kw_only=True)
class SkipsOfRun:
    """Files of skips, and what is known of the run; an entry whose conditions do not fit it is left aside."""

    files: tuple[Path, ...] = common.skip_files()
    targets: str | None = common.targets("any")
    pytorch_version: str | None = _version("torch, such as 2.13")

    def select(self, *, today: date, torch: str | None = None) -> Selection:
        """Select the entries that apply; `torch` is the version where none was given."""
        from cairn.targets import parse_targets
        from cairn.testing.skips import select, skip_files
        from cairn.testing.skips.conditions import RunFacts, release_of

        torch = self.pytorch_version or torch
        facts = RunFacts(
            targets=parse_targets(self.targets, unbuilt=True) if self.targets else None,
            torch=release_of(torch) if torch else None,
        )
        return select.select(skip_files.read(self.files), facts, today=today)


def today() -> date:
    """Return the date to compare expiry dates with."""
    return datetime.now(tz=UTC).date()


@dataclass(frozen=True, kw_only=True)
class Lint(SkipsOfRun):
    """Options of `cairn test skips lint`.

    Without --collection: keys, ids, conditions, duplicates, and what expired. With it, also what names no
    test; give the conditions of the run that it is from. With --sources-dir, also the unresolved entries for
    that version of torch, with the ids to put in their place. Exits with 1 where it has found something.

        cairn test skips lint external-builds/pytorch/skip-tests --collection collection.txt --targets
        gfx942 --pytorch-version 2.13
    """

    collection: Path | None = option(
        "what `pytest --collect-only -q` printed about all tests", convert=converters.file
    )
    sources_dir: Path | None = option("the sources of the project", convert=converters.folder)


def _lint(request: Lint) -> Answer:
    from cairn.testing.skips import ids, skip_files
    from cairn.testing.skips.sources import Sources

    day = today()
    sources = Sources(request.sources_dir) if request.sources_dir else None
    selection = request.select(today=day, torch=sources.version if sources else None)
    collection = ids.read_collection(request.collection) if request.collection else None
    findings = list(skip_files.lint(selection.entries, today=day, collection=collection, sources=sources))
    rows = [
        {
            "kind": each.kind, "file": each.where.file, "number": each.where.number,
            "text": each.text, "tests": each.tests,
        }
        for each in findings
    ]  # fmt: skip
    text: tuple[Piece, ...] = (
        *(f"{each.kind}: {each.where}: {each.text}" for each in findings),
        *map(Warn, selection.remarks),
        Note(f"entries looked at: {len(selection.entries)}; findings: {len(findings)}"),
    )
    return Answer({"entries": len(selection.entries), "findings": rows}, text, exit_code=1 if findings else 0)


@dataclass(frozen=True, kw_only=True)
class ListSkips(SkipsOfRun):
    """Options of `cairn test skips list`.

    Without a condition, all that may be.

        cairn test skips list external-builds/pytorch/skip-tests --targets gfx942 --pytorch-version 2.13
    """


def _list(request: ListSkips) -> Answer:
    from cairn import datafile

    selection = request.select(today=today())
    plain = [
        {"file": item.file, "number": item.number, **datafile.to_plain(item.entry)}
        for item in selection.entries
    ]
    counts = selection.counts
    return Answer(
        {"entries": plain, "counts": counts, "remarks": selection.remarks},
        (*_text(selection), Note(", ".join(f"{name}: {count}" for name, count in counts.items()))),
    )


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
    """Describe conditions in a few words."""
    from cairn import datafile

    words = (
        f"{name} {value if isinstance(value, str) else ' '.join(value)}"
        for name, value in datafile.to_plain(when).items()
        if value
    )
    return ", ".join(words) or "always"


COMMANDS = {
    "lint": command(Lint, _lint),
    "list": command(ListSkips, _list),
}
