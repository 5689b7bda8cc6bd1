"""A report as one file of HTML that loads nothing."""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.resources

from cairn.output import templates
from cairn.testing.compat import tables
from cairn.testing.compat.report import CompatReport


def as_html(report: CompatReport) -> str:
    """The report; whatever the values hold is shown as text."""
    script = _script()
    return templates.render(
        "cairn.testing.compat",
        "compat.html",
        title=tables.TITLE,
        summary=tables.summary(report),
        pages=list(tables.by_page(report)),
        marks=tables.MARKS,
        seen=tables.seen,
        script=script,
        # The browser runs this one text and no other (Content Security Policy, level 2).
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


@functools.cache
def _script() -> str:
    return importlib.resources.files("cairn.testing.compat").joinpath("compat.js").read_text(encoding="utf-8")
