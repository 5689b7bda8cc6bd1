"""A report as one file of HTML that loads nothing."""

from __future__ import annotations

from cairn.output import templates
from cairn.testing.compat import tables
from cairn.testing.compat.report import CompatReport


def as_html(report: CompatReport) -> str:
    """The report; whatever the values hold is shown as text."""
    return templates.render(
        "cairn.testing.compat",
        "compat.html",
        title=tables.TITLE,
        summary=tables.summary(report),
        pages=list(tables.by_page(report)),
        marks=tables.MARKS,
        seen=tables.seen,
    )
