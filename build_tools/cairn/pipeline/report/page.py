"""Values into HTML: one file that loads nothing; its only script copies text, and the page works without."""

from __future__ import annotations

import datetime as dt
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass

from cairn import files
from cairn.pipeline.report import chart
from cairn.pipeline.request import TrailRequest, TrailResult
from cairn.release.index import keys
from cairn.templates import html
from cairn.testing import record


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
    return html.page(
        "trail",
        request=request,
        result=result,
        generated=generated,
        links=links,
        built={wheel.sha256: wheel for wheel in result.wheels},
        chart=chart.lay_out(result.spans),
    )


def _links(request: TrailRequest, result: TrailResult) -> Iterator[Link]:
    """The files and folders beside the report that exist: a browser shows folders of `file:` too."""
    judgement = keys.set_key(result.wheel_set.id, f"judgements/{result.promotion.judgement}.json")
    pages = {
        "release index": request.store_dir / keys.simple_prefix("release") / "index.html",
        "set": request.wheels_dir / "set.json",
        "manifest": request.wheels_dir / "manifest.json",
        "test record": request.work_dir / "smoke" / record.FILE,
        "gate": request.store_dir / judgement,
        "wheels": request.wheels_dir,
        "logs": request.logs_dir,
        "logs of the builds": request.wheels_dir / "logs",
        "log of the smoke tests": request.work_dir / "smoke" / "smoke.log",
    }
    for name, path in pages.items():
        if path.exists():
            relative = urllib.parse.quote(path.relative_to(result.report.parent).as_posix())
            yield Link(name=name, target=relative + ("/" if path.is_dir() else ""))
