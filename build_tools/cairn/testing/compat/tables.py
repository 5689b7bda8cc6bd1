"""Render a report as reStructuredText, Markdown and HTML: the pages' own tables, with the measurements."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping

from cairn import templates
from cairn.output import safe_text
from cairn.testing.compat.report import CompatReport, Measured, ReportRow, ReportTable, Support

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
