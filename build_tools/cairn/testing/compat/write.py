"""A report written in every form that it has."""

from __future__ import annotations

from pathlib import Path

from cairn import files
from cairn.testing import record
from cairn.testing.compat import evidence, report, tables
from cairn.testing.compat.report import CompatReport

NAMES = (report.FILE, "compat.rst", "compat.md", "compat.html", record.JUNIT)


def write(folder: Path, found: CompatReport, *, baseline: CompatReport | None = None) -> None:
    """Write it as JSON, reStructuredText, Markdown, HTML and JUnit XML, each file atomically.

    Args:
        folder: gets the files.
        found: the report.
        baseline: see `evidence.write_junit`.
    """
    report.write(folder / report.FILE, found)
    files.write_text(folder / "compat.rst", tables.as_rst(found))
    files.write_text(folder / "compat.md", tables.as_markdown(found))
    files.write_text(folder / "compat.html", tables.as_html(found))
    evidence.write_junit(folder / record.JUNIT, found, baseline=baseline)
