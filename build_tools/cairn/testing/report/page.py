"""A page of test runs: one file that loads nothing and needs no script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cairn.output import safe_text
from cairn.templates import html
from cairn.testing.compat import tables
from cairn.testing.report.results import TestRun
from cairn.testing.report.summary import Summary

# What a browser opens at once: 43,000 tests that all fail must not make a page of 170 MB.
_FAILURES = 2_000  # named
_LOGS = 300  # of these, shown with what they wrote; 4,000 characters each at most
_NAMES = 200  # tests, in a list that is folded
_GROUPS = 300  # reasons of skips


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much of each list the page shows; what is left out is counted there."""

    failures: int = _FAILURES
    logs: int = _LOGS
    names: int = _NAMES
    groups: int = _GROUPS


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
