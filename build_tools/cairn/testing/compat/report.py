"""A compatibility report: rows of the pages, the measurement of each, and how two reports differ; as pages.

The rows and their claims are data: `rows.toml` beside this module.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from cairn import datafile, templates
from cairn.output import safe_text

TITLE = "PyTorch compatibility, measured"
MEASURED_COLUMNS = ("Page says", "Measured", "What was seen")
MARKS: Mapping[Support, str] = {
    "supported": "✅ supported",
    "partial": "⚠️ partial",
    "unsupported": "❌ unsupported",
    "not measurable": "not measurable here",
}

# A cell is one paragraph: nor may it begin like a list, `1. `, or with what begins anything else.
_RST_SPECIAL = re.compile(r"[\\*`|_<>:]|^[^\w\s]|^[\w#]+[.)](?= |$)")


def as_rst(report: CompatReport) -> str:
    """Render the report as one page of reStructuredText."""
    bar = "*" * len(TITLE)
    lines = [bar, TITLE, bar, "", *(f"* {_rst(line)}" for line in summary(report))]
    for page, tables in by_page(report):
        lines += ["", page, "=" * len(page)]
        for table in tables:
            lines += ["", _rst(table.section), "-" * len(_rst(table.section)), ""]
            lines += [".. list-table::", "    :header-rows: 1", ""]
            for cells in ((*table.columns, *MEASURED_COLUMNS), *map(cells_of, table.rows)):
                marks = itertools.chain(("* -",), itertools.repeat("  -"))
                lines += [
                    f"    {mark} {_rst(cell)}".rstrip() for mark, cell in zip(marks, cells, strict=False)
                ]
    return "\n".join(lines) + "\n"


def as_markdown(report: CompatReport) -> str:
    """Render the report as one page of Markdown, suited to a GitHub Actions step summary."""
    lines = [f"# {TITLE}", "", *(f"- {safe_text.markdown(line)}" for line in summary(report))]
    for page, tables in by_page(report):
        lines += ["", f"## {safe_text.markdown(page)}"]
        for table in tables:
            lines += ["", f"### {safe_text.markdown(table.section)}", ""]
            rows = (map(safe_text.markdown, cells_of(row)) for row in table.rows)
            lines += safe_text.markdown_table((*table.columns, *MEASURED_COLUMNS), rows)
    return "\n".join(lines) + "\n"


def as_html(report: CompatReport) -> str:
    """Render the report as one self-contained HTML file."""
    return templates.page(
        "compat",
        title=TITLE,
        summary=summary(report),
        pages=list(by_page(report)),
        marks=MARKS,
        seen=seen,
    )


def summary(report: CompatReport) -> list[str]:
    """Describe the wheel, the machine, and the number of rows by result, one line each."""
    tested, counts = report.tested, report.counts
    built = f"HIP {tested.hip}" if tested.hip else f"CUDA {tested.cuda}" if tested.cuda else "the CPU"
    numbers = ", ".join(f"{counts[support]} {support}" for support in MARKS if counts[support])
    lines = [
        f"torch {tested.torch or '(does not import)'}, built for {built}"
        + (f" from commit {tested.commit}" if tested.commit else ""),
        f"ROCm SDK: {tested.rocm or 'not installed'}",
        f"GPUs: {', '.join(tested.gpus) or 'none'}",
        f"Python {tested.python} on {tested.platform}, {report.started}",
        f"{counts.total()} rows: {numbers}",
    ]
    if report.translated:
        lines.append(f"translated by {report.translated}: nothing here was measured on a GPU")
    return [*lines, *([f"torch does not import: {tested.problem}"] if tested.problem else [])]


def cells_of(row: ReportRow) -> tuple[str, ...]:
    """Return a row's cells: those of the page, its claim, the result, and the details of the measurement."""
    measured = row.measured
    support = MARKS[measured.support]
    claim = MARKS[row.claim] if row.claim is not None else "-"
    return (
        *row.cells,
        claim,
        f"{support}, on {measured.device}" if measured.device else support,
        seen(measured),
    )


def seen(measured: Measured) -> str:
    """Format the details of a result in one line: versions, reasons, and the CPU's result."""
    failed = "; ".join(f"{c.what}: {c.reason}" for c in measured.checks if c.outcome == "failed")
    on_cpu = f"on the CPU: {measured.on_cpu}" if measured.on_cpu else ""
    if on_cpu and failed:
        on_cpu += f" ({failed})"
    return "; ".join(filter(None, (measured.found, measured.reason, on_cpu)))


def by_page(report: CompatReport) -> Iterator[tuple[str, list[ReportTable]]]:
    """Yield each page with its tables."""
    for page, tables in itertools.groupby(report.tables, key=lambda table: table.page):
        yield page, list(tables)


def _rst(text: str) -> str:
    return _RST_SPECIAL.sub(r"\\\g<0>", safe_text.visible(" ".join(text.split())))


Claim = Literal["supported", "partial", "unsupported"]

FILE = "compat.json"
Support = Literal["supported", "partial", "unsupported", "not measurable"]
"""All that the row stands for works; it works in part; it does not; it cannot be found out here."""
Outcome = Literal["passed", "failed", "not measured"]
Against = Literal["as claimed", "more", "less", ""]
"""The measurement compared with the page's claim; empty where either is missing."""
RANK = {"unsupported": 0, "partial": 1, "supported": 2}
"""The order of results, the worst first."""
Kind = Literal["less", "more", "newly measured", "no longer measured", "different", "new row", "row gone"]
_Place = tuple[str, str]


class Row(datafile.Value):
    """One row of a page.

    Attributes:
        cells: what the page says, in the order of the table's columns; the first is the row's name.
        claim: of this row, where it differs from the claim of its table.
        probe: how to measure it: a function of `cairn.testing.compat.probes`, with its arguments.
        why_not: why it cannot be measured of a wheel, where there is no probe and its table does not say.
        environment: variables that the probe's process has.
    """

    cells: tuple[str, ...]
    claim: Claim | None = None
    probe: str = ""
    why_not: str = ""
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def name(self) -> str:
        """What the page calls it."""
        return self.cells[0]


class RowTable(datafile.Value):
    """A table of a page, or the statements of one of its sections.

    Attributes:
        id: names it in reports, and in what is compared.
        page: the page it is on, by its file's name.
        section: the heading above it.
        columns: those that hold names and versions; prose is left out.
        of_page: whether the page itself has it as a table.
        claim: what the page claims of its rows; None where it only states versions.
        why_not: why none of its rows can be measured of a wheel.
        rows: in the page's order.
    """

    id: str
    page: str
    section: str
    columns: tuple[str, ...]
    of_page: bool = True
    claim: Claim | None = None
    why_not: str = ""
    rows: tuple[Row, ...]


class Rows(datafile.Value, tag_field="schema", tag="cairn.compat-rows/1"):
    """The contents of rows.toml."""

    tables: tuple[RowTable, ...]


@functools.cache
def load_rows() -> tuple[RowTable, ...]:
    """Load the tables, in the order of the pages."""
    return datafile.read(Path(__file__).with_name("rows.toml"), Rows).tables


class Check(datafile.Value):
    """One thing that a probe tried.

    Attributes:
        what: in a few words.
        outcome: what came of it.
        reason: why it failed, or was not measured.
        essential: without it the feature is not there; without one that is not, it is there in part.
    """

    what: str
    outcome: Outcome
    reason: str = ""
    essential: bool = True


class Measured(datafile.Value):
    """The measurement of one row.

    Attributes:
        support: the result, of the GPU where the row is about one.
        reason: what failed, or why nothing can be said.
        on_cpu: the result on the CPU of a row about a GPU, where there is none; it says nothing of a GPU.
        device: the GPU that it computed on, by its gfx name on ROCm; empty where it used none.
        found: a version, or a similar fact, that was seen.
        checks: what was tried.
        seconds: how long it took.
    """

    support: Support
    reason: str = ""
    on_cpu: Support | None = None
    device: str = ""
    found: str = ""
    checks: tuple[Check, ...] = ()
    seconds: float = 0.0


class ReportRow(datafile.Value):
    """A row of a page, measured.

    Attributes:
        cells: what the page has.
        claim: what the page claims; None where it claims nothing.
        measured: what was seen.
    """

    cells: tuple[str, ...]
    claim: Claim | None
    measured: Measured

    @property
    def name(self) -> str:
        """What the page calls it."""
        return self.cells[0]

    @property
    def against(self) -> Against:
        """How the measurement compares with the claim."""
        support = self.measured.support
        if self.claim is None or support == "not measurable":
            return ""
        difference = RANK[support] - RANK[self.claim]
        return "more" if difference > 0 else "less" if difference < 0 else "as claimed"

    @property
    def broken(self) -> bool:
        """Whether the page claims at least partial support, and the feature does not work."""
        return self.claim in ("supported", "partial") and self.measured.support == "unsupported"


class ReportTable(datafile.Value):
    """A table of a page, measured; see `rows.RowTable` for what the fields are."""

    id: str
    page: str
    section: str
    columns: tuple[str, ...]
    rows: tuple[ReportRow, ...]


class Tested(datafile.Value):
    """The wheel and the machine that were measured.

    Attributes:
        torch: its version; empty where it does not import.
        commit: that it was built from.
        hip: of the HIP that it was built with, or empty.
        cuda: likewise.
        rocm: version of the installed ROCm SDK, or empty.
        python: version of the interpreter.
        platform: system and processor.
        gpus: as torch sees them; gfx names on ROCm, with their features.
        problem: why torch does not import.
    """

    torch: str = ""
    commit: str = ""
    hip: str = ""
    cuda: str = ""
    rocm: str = ""
    python: str = ""
    platform: str = ""
    gpus: tuple[str, ...] = ()
    problem: str = ""


class CompatReport(datafile.Value, tag_field="schema", tag="cairn.compat/1"):
    """The features that a wheel supports on this machine.

    Attributes:
        tested: the wheel and the machine.
        set_id: the sealed set that it is of; None where that is not known.
        started: RFC 3339, with its zone.
        duration_seconds: wall time.
        tables: those of the pages.
        translated: what stood in for a GPU, such as `torchdevice 0.1.0`; none was measured then.
    """

    tested: Tested
    set_id: str | None = None
    started: str
    duration_seconds: float
    tables: tuple[ReportTable, ...]
    translated: str = ""

    @property
    def rows(self) -> tuple[tuple[ReportTable, ReportRow], ...]:
        """Every row, each with its table."""
        return tuple((table, row) for table in self.tables for row in table.rows)

    @property
    def counts(self) -> Counter[Support]:
        """The number of rows by result."""
        return Counter(row.measured.support for _, row in self.rows)


def read(path: Path) -> CompatReport:
    """Read a report from its file or folder.

    Raises:
        UsageError: it is not a report, or of an unknown version.
    """
    place = path / FILE if path.is_dir() else path
    return datafile.read(place, CompatReport, tip="`cairn test compat` writes one")


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
    """The differences between two reports.

    Attributes:
        tested: what was looked at, by the name of its field: before, and after.
        changes: rows, in the order of the second report; those that only the first has come last.
    """

    tested: Mapping[str, tuple[str, str]]
    changes: tuple[Change, ...]


def diff(first: CompatReport, second: CompatReport) -> Difference:
    """Compare two reports, the older one first."""
    before, after = datafile.to_plain(first.tested), datafile.to_plain(second.tested)
    tested = {
        name: (_text(before[name]), _text(after[name])) for name in after if before[name] != after[name]
    }
    return Difference(tested=tested, changes=tuple(_changes(_by_place(first), _by_place(second))))


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
