"""What changed between two reports: of two wheels, or of two nights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from cairn import datafile
from cairn.testing.compat.report import RANK, CompatReport, Measured, ReportRow

Kind = Literal["less", "more", "newly measured", "no longer measured", "different", "new row", "row gone"]


class Change(datafile.Value):
    """One row that is different.

    Attributes:
        table: the table's id.
        name: the row's.
        kind: what it means; `different` is a row that works as before and says something else, such as a
            version.
        before: in the first report; None where that has no such row.
        after: in the second.
    """

    table: str
    name: str
    kind: Kind
    before: Measured | None
    after: Measured | None


class Difference(datafile.Value):
    """What two reports do not have in common.

    Attributes:
        tested: what was looked at, by the name of its field: before, and after.
        changes: rows, in the order of the second report; those that only the first has come last.
    """

    tested: Mapping[str, tuple[str, str]]
    changes: tuple[Change, ...]


def diff(first: CompatReport, second: CompatReport) -> Difference:
    """What changed from the first to the second."""
    before, after = datafile.to_plain(first.tested), datafile.to_plain(second.tested)
    tested = {
        name: (_text(before[name]), _text(after[name])) for name in after if before[name] != after[name]
    }
    return Difference(tested=tested, changes=tuple(_changes(_by_place(first), _by_place(second))))


_Place = tuple[str, str]


def _by_place(report: CompatReport) -> dict[_Place, ReportRow]:
    return {(table.id, row.name): row for table, row in report.rows}


def _changes(first: Mapping[_Place, ReportRow], second: Mapping[_Place, ReportRow]) -> Iterator[Change]:
    for place in [*second, *(place for place in first if place not in second)]:
        before = first[place].measured if place in first else None
        after = second[place].measured if place in second else None
        if kind := _kind(before, after):
            yield Change(table=place[0], name=place[1], kind=kind, before=before, after=after)


def _kind(before: Measured | None, after: Measured | None) -> Kind | None:
    if before is None:
        return "new row"
    if after is None:
        return "row gone"
    # On a machine without a GPU, what the CPU does is what there is to compare.
    a, b = before.support, after.support
    if a == b == "not measurable" and before.on_cpu and after.on_cpu:
        a, b = before.on_cpu, after.on_cpu
    if a != b and "not measurable" in (a, b):
        return "newly measured" if a == "not measurable" else "no longer measured"
    if a != b:
        return "more" if RANK[b] > RANK[a] else "less"
    return "different" if (before.found, before.reason) != (after.found, after.reason) else None


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
