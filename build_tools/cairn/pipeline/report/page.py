"""Values into HTML: one file that loads nothing; its only script copies text, and the page works without."""

from __future__ import annotations

import base64
import datetime as dt
import functools
import hashlib
import importlib.resources
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass

import jinja2

from cairn import files
from cairn.output import console, safe_text
from cairn.pipeline.report import chart
from cairn.pipeline.request import TrailRequest, TrailResult
from cairn.release.index import keys

# The words of a test record's verdict, of a demand's outcome and of a stage's mark; others have no colour.
_GOOD = ("passed", "released", "met")
_BAD = ("failed", "invalid", "not met")
_SIGNS = {"met": "✓", "not met": "✗", "bypassed": "!", "failed": "✗", "kept": "="}
_SCHEMES = ("", "file", "http", "https")


@dataclass(frozen=True, kw_only=True)
class Link:
    """A file or folder beside the report.

    Attributes:
        name: what the page calls it.
        target: a URL, relative to the report where it is beside it.
    """

    name: str
    target: str


def write(request: TrailRequest, result: TrailResult) -> None:
    """Write `report.html` of a run atomically, with links to the files beside it."""
    generated = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    page = render(request, result, generated=generated, links=tuple(_links(request, result)))
    files.write_text(result.report, page)


def render(
    request: TrailRequest, result: TrailResult, *, generated: str, links: tuple[Link, ...] = ()
) -> str:
    """The report as HTML; whatever the values hold is shown as text, all of it.

    Args:
        request: the run.
        result: its result.
        generated: when, ISO 8601 in UTC.
        links: to the files beside the report.
    """
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
        request=request,
        result=result,
        generated=generated,
        links=links,
        built={wheel.sha256: wheel for wheel in result.wheels},
        chart=chart.lay_out(result.spans),
        script=script,
        # The browser runs this one text and no other (Content Security Policy, level 2).
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _links(request: TrailRequest, result: TrailResult) -> Iterator[Link]:
    """The files and folders beside the report that exist: a browser shows folders of `file:` too."""
    judgement = keys.set_key(result.wheel_set.id, f"judgements/{result.promotion.judgement}.json")
    found = {
        "release index": request.store_dir / keys.simple_prefix("release") / "index.html",
        "set": request.wheels_dir / "set.json",
        "manifest": request.wheels_dir / "manifest.json",
        "test record": request.work_dir / "smoke" / "record.json",
        "gate": request.store_dir / judgement,
        "wheels": request.wheels_dir,
        "logs": request.logs_dir,
        "logs of the builds": request.wheels_dir / "logs",
        "log of the smoke tests": request.work_dir / "smoke" / "smoke.log",
    }
    for name, path in found.items():
        if path.exists():
            relative = urllib.parse.quote(path.relative_to(result.report.parent).as_posix())
            yield Link(name=name, target=relative + ("/" if path.is_dir() else ""))


def _seen(value: object) -> object:
    """A value as the page shows it: without characters that turn or hide the text around them."""
    if not isinstance(value, str) or hasattr(value, "__html__"):  # the latter: markup of ours (MarkupSafe)
        return value
    return "\n".join(safe_text.visible(line) for line in value.split("\n"))


@functools.cache
def _script() -> str:
    return (
        importlib.resources.files("cairn.pipeline.report").joinpath("report.js").read_text(encoding="utf-8")
    )


def _tone(word: str) -> str:
    """The colour of a verdict."""
    return "good" if word in _GOOD else "bad" if word in _BAD else "plain"


def _sign(word: str) -> str:
    """The sign before a verdict, for readers who do not see colours."""
    return _SIGNS.get(word, "")


def _moment(text: str) -> str:
    """A time in a form that is easy to read; a text that is not a time stays as it is."""
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
