"""A page of test runs: one file that loads nothing and needs no script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cairn.output import safe_text
from cairn.templates import html
from cairn.testing.compat import tables
from cairn.testing.report.results import TestRun
from cairn.testing.report.summary import Summary


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much of each list the page shows, so that a browser opens it at once; the rest is counted there.

    43,000 tests that all fail would make a page of 170 MB.

    Attributes:
        failures: tests that are named.
        logs: of these, shown with what they wrote; 4,000 characters each at most.
        names: tests, in a list that is folded.
        groups: reasons of skips.
    """

    failures: int = 2_000
    logs: int = 300
    names: int = 200
    groups: int = 300


def render(title: str, runs: Sequence[tuple[TestRun, Summary]], *, generated: str) -> str:
    """The page as HTML; whatever tests are called or write is shown as text.

    Args:
        title: of the page.
        runs: each with its summary.
        generated: when, ISO 8601 in UTC.
    """
    page = html.page(
        "test_report",
        title=title,
        runs=runs,
        generated=generated,
        limits=Limits(),
        compat_summary=tables.summary,
    )
    return safe_text.mask(page)  # tests print addresses, with passwords in them
