"""A report as one file of HTML that loads nothing."""

from __future__ import annotations

import jinja2

from cairn.output import console, safe_text
from cairn.testing.compat import tables
from cairn.testing.compat.report import CompatReport


def as_html(report: CompatReport) -> str:
    """The report; whatever the values hold is shown as text."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("cairn.testing.compat", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        finalize=_visible,
    )
    environment.filters.update(clock=console.clock)
    return environment.get_template("compat.html").render(
        title=tables.TITLE,
        summary=tables.summary(report),
        pages=list(tables.by_page(report)),
        marks=tables.MARKS,
        seen=tables.seen,
    )


def _visible(value: object) -> object:
    """A value as the page shows it: without characters that turn or hide the text around them."""
    return value if not isinstance(value, str) or hasattr(value, "__html__") else safe_text.visible(value)
