"""Values into HTML: one file that loads nothing; its only script copies text, and the page works without."""

from __future__ import annotations

import base64
import datetime as dt
import functools
import hashlib
import importlib.resources
import urllib.parse
from pathlib import Path

import jinja2

from cairn import files
from cairn.output import console, escaping
from cairn.pipeline.report import timeline
from cairn.pipeline.report.model import Report

_GOOD = ("passed", "promoted", "released", "built", "staged", "met")
_BAD = ("failed", "invalid", "refused", "interrupted", "not met")
_SIGNS = {"met": "✓", "not met": "✗", "bypassed": "!", "failed": "✗", "kept": "="}
_SCHEMES = ("", "file", "http", "https")


def write_report(path: Path, report: Report) -> None:
    """Write a report atomically."""
    files.write_text(path, render(report))


def render(report: Report) -> str:
    """The report as HTML; whatever the values hold is shown as text, all of it."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("cairn.pipeline.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        finalize=_seen,
    )
    environment.filters.update(clock=console.clock, size=console.size, moment=_moment)
    environment.filters.update(tone=_tone, sign=_sign, address=_address)
    page = environment.get_template("report.html")
    script = _script()
    return page.render(
        report=report,
        timeline=timeline.lay_out(report.stages),
        script=script,
        # The browser runs this one text and no other (Content Security Policy, level 2).
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _seen(value: object) -> object:
    """A value as the page shows it: no character turns or hides what stands beside it; HTML of ours stays."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return "\n".join(escaping.visible(line) for line in value.split("\n"))


@functools.cache
def _script() -> str:
    return (
        importlib.resources.files("cairn.pipeline.report").joinpath("report.js").read_text(encoding="utf-8")
    )


def _tone(word: str) -> str:
    """The colour of a verdict."""
    return "good" if word in _GOOD else "bad" if word in _BAD else "plain"


def _sign(word: str) -> str:
    """The sign before a verdict, for those who do not see colours."""
    return _SIGNS.get(word, "")


def _moment(text: str) -> str:
    """A time as people read it; a text that is none stays as it is."""
    try:
        return dt.datetime.fromisoformat(text).astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M UTC")
    except ValueError:
        return text


def _address(target: str) -> str:
    """A link's target, if it leads to a file or a page and runs nothing."""
    try:
        parts = urllib.parse.urlsplit(target)
    except ValueError:
        return "#"
    return target if parts.scheme in _SCHEMES else "#"
