"""Values into HTML: one file without a script and without anything to load."""

from __future__ import annotations

from pathlib import Path

import jinja2

from cairn import console, files
from cairn.report import timeline
from cairn.report.model import Report

_GOOD = ("passed", "promoted", "built", "staged", "holds")
_BAD = ("failed", "invalid", "refused", "interrupted", "does not hold")


def write_report(path: Path, report: Report) -> None:
    """Write a report atomically."""
    files.write_text(path, render(report))


def render(report: Report) -> str:
    """The report as HTML; whatever the values hold is shown as text."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("cairn.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters.update(clock=console.clock, size=console.size, tone=_tone)
    page = environment.get_template("report.html")
    return page.render(report=report, timeline=timeline.lay_out(report.stages))


def _tone(word: str) -> str:
    """The colour of a verdict."""
    return "good" if word in _GOOD else "bad" if word in _BAD else "plain"
