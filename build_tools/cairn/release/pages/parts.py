"""What the landing page and the status page are put together from."""

from __future__ import annotations

import datetime as dt
import functools
import importlib.resources
import itertools
from collections.abc import Iterable, Sequence

from cairn.output.markup import LINE, Markup, document, join, tag

MARK = Markup(
    '<svg viewBox="0 0 48 40" width="48" height="40" aria-hidden="true">'
    '<ellipse cx="24" cy="33" rx="21" ry="6.5"/><ellipse cx="23" cy="20" rx="14.5" ry="5.5"/>'
    '<ellipse cx="25" cy="9" rx="8.5" ry="4.5"/></svg>'
)
"""A cairn of three stones."""


def page(title: str, *body: str) -> bytes:
    """A whole page in the one style."""
    return document(title, tag("main", *body), style=_file("pages.css"), script=_file("pages.js"))


def section(name: str, heading: str, *content: str, searched: bool = False) -> Markup:
    """A part of a page with its heading; one that is searched goes away where nothing in it is found."""
    head = tag("h2", heading, id=name)
    return tag("section", head, *content, aria_labelledby=name, data_group=searched)


def badge(word: str, tone: str) -> Markup:
    """A word with a sign for who does not see colours: `good`, `bad` or `plain`."""
    sign = {"good": "✓", "bad": "✗", "plain": "!"}[tone]
    return tag("span", tag("span", f"{sign} ", aria_hidden="true"), word, class_=f"badge {tone}")


def when(moment: str) -> Markup:
    """A time; the script adds how long ago that was, and what is not a time stays as it is written."""
    try:
        parsed = dt.datetime.fromisoformat(moment).astimezone(dt.UTC)
    except (ValueError, OverflowError):
        return tag("span", moment)
    return tag("time", parsed.strftime("%Y-%m-%d %H:%M UTC"), datetime=parsed.isoformat())


def short(digest: str, what: str) -> Markup:
    """A digest of which the beginning is shown, and all of it copied."""
    return tag(
        "span", tag("code", digest[:12], title=digest), class_="copy short", data_copy=digest, data_what=what
    )


def copied_line(label: str, line: str, *shown: str) -> Markup:
    """A command line with its button.

    Args:
        label: what it is for, such as `pip`.
        line: the line itself, for the label of the button.
        shown: the same as elements.
    """
    code = tag("pre", tag("code", *shown))
    return tag("div", tag("span", label, class_="tool"), code, class_="copy line", data_what=line)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, words: Sequence[str] = ()) -> Markup:
    """A table whose rows become cards where there is no room for columns.

    Args:
        heads: of the columns.
        rows: the cells of each row.
        words: by which each row is found, where they are searched.
    """
    head = tag("thead", tag("tr", *(tag("th", name, scope="col") for name in heads)))
    body = (
        tag(
            "tr",
            *(tag("td", cell, data_head=name) for name, cell in zip(heads, row, strict=True)),
            data_words=found,
        )
        for row, found in itertools.zip_longest(rows, words)
    )
    return tag("table", head, tag("tbody", join(body, LINE)))


def search(label: str, example: str) -> Markup:
    """The search field; hidden until the script can answer it."""
    return tag(
        "div",
        tag("label", label, for_="search"),
        tag("input", id="search", type="search", placeholder=example, autocomplete="off", spellcheck="false"),
        tag("p", role="status", id="found"),
        class_="search",
        hidden=True,
    )


@functools.cache
def _file(name: str) -> str:
    return importlib.resources.files("cairn.release.pages").joinpath(name).read_text(encoding="utf-8")
