"""Reading a compatibility page: the tables and the sections that it has, and how our list of rows differs.

A page is upstream's: reStructuredText with `list-table`s, or Markdown with pipe tables. What is compared is
names and versions; prose is not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cairn.errors import UsageError
from cairn.testing.compat.rows import RowTable

_UNDERLINE = re.compile(r"([=\-^~*\"'#+])\1{2,}")
_MARKDOWN_HEADING = re.compile(r"#{1,6} +(?P<title>.*)")
_RULE = re.compile(r"[-:| ]+")
_IMAGE_TAG = re.compile(r"layers/rocm/pytorch/(?P<tag>[^/\"]+)/")
_LINK = re.compile(r"`(?P<rst>[^`<]+?) *<[^>`]*>`_+|\[(?P<markdown>[^\]]+)\]\([^)]*\)")
_OR = re.compile(r"(?P<first>\S+) or \S+")
_ESCAPED = re.compile(r"\\(?P<itself>[^\w\s])")
_BAR = re.compile(r"(?<!\\)\|")
_BREAK = re.compile(r"<br>|<ul>")
_ITEM = re.compile(r"(?P<new> *\* -|  +-)(?: (?P<text>.*))?")


@dataclass(frozen=True, kw_only=True)
class PageTable:
    """One table of a page.

    Attributes:
        heading: the section that it is in.
        columns: the names of its columns.
        rows: the cells of each row, without markup.
    """

    heading: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Page:
    """What a page has.

    Attributes:
        headings: of its sections, in order.
        tables: in order.
    """

    headings: tuple[str, ...]
    tables: tuple[PageTable, ...]


def read(path: Path) -> Page:
    """Read a page.

    Raises:
        UsageError: it cannot be read, or is not UTF-8.
    """
    try:
        return parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read as a page: {error}") from error


def parse(text: str) -> Page:
    """A page out of its text."""
    lines = text.splitlines()
    headings: list[str] = []
    tables: list[PageTable] = []
    for number, line in enumerate(lines):
        following = lines[number + 1] if number + 1 < len(lines) else ""
        if found := _MARKDOWN_HEADING.fullmatch(line):
            headings.append(plain(found["title"]).removesuffix("¶"))
        elif line.strip() and not line.startswith(" ") and _UNDERLINE.fullmatch(following):
            headings.append(plain(line))
        heading = headings[-1] if headings else ""
        if line.startswith(".. list-table::"):
            tables.append(_table(heading, list(_list_table(lines[number + 1 :]))))
        elif line.startswith("|") and following.startswith("|") and _RULE.fullmatch(following):
            tables.append(_table(heading, list(_pipe_table(lines[number:]))))
    return Page(headings=tuple(headings), tables=tuple(tables))


def differences(page: Page, listed: Sequence[RowTable]) -> list[str]:
    """How a page differs from our tables of it, one line each; none where they say the same."""
    problems = [
        f"the page has no section {table.section!r}"
        for table in listed
        if table.section not in page.headings and not table.of_page
    ]
    ours = [table for table in listed if table.of_page]
    theirs = [table for table in page.tables if table.rows]
    if len(ours) != len(theirs):
        problems.append(f"the page has {len(theirs)} tables, the list {len(ours)}")
    for table, found in zip(ours, theirs, strict=False):
        if table.section != found.heading:
            problems.append(f"the page's table is in {found.heading!r}, ours in {table.section!r}")
        # A column of prose is not in the list; its name is no problem.
        places = [found.columns.index(c) if c in found.columns else -1 for c in table.columns]
        if -1 in places:
            problems.append(f"{table.section}: the page's table has the columns {', '.join(found.columns)}")
            continue
        there = [tuple(row[place] for place in places) for row in found.rows]
        here = [row.cells for row in table.rows]
        problems += [
            f"{table.section}: only on the page: {' | '.join(row)}" for row in there if row not in here
        ]
        problems += [
            f"{table.section}: only in the list: {' | '.join(row)}" for row in here if row not in there
        ]
        if len(there) != len(here):
            problems.append(f"{table.section}: the page has {len(there)} rows, the list {len(here)}")
    return problems


def plain(text: str) -> str:
    """A cell or a heading without markup: the text of links, no backquotes, the first of several names."""
    if tag := _IMAGE_TAG.search(text):
        return tag["tag"]
    text = _LINK.sub(lambda found: found["rst"] or found["markdown"], text)
    text = " ".join(_BREAK.split(text)[0].replace("`", "").replace(":ref:", "").split())
    alternatives = _OR.fullmatch(text)
    return _ESCAPED.sub(r"\g<itself>", alternatives["first"] if alternatives else text)


def _table(heading: str, rows: list[tuple[str, ...]]) -> PageTable:
    return PageTable(heading=heading, columns=rows[0] if rows else (), rows=tuple(rows[1:]))


def _list_table(lines: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The rows of a `list-table` (docutils): `* -` begins a row, `-` a cell, deeper lines continue it."""
    cells: list[list[str]] = []
    for line in lines:
        if line.strip() and not line.startswith(" "):
            break
        item = _ITEM.fullmatch(line)
        if item and "*" in item["new"] and cells:
            yield tuple(plain(" ".join(cell)) for cell in cells)
            cells = []
        if item and (cells or "*" in item["new"]):
            cells.append([item["text"] or ""])
        elif cells:
            cells[-1].append(line.strip())
    if cells:
        yield tuple(plain(" ".join(cell)) for cell in cells)


def _pipe_table(lines: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The rows of a table of GitHub's Markdown, without the line of dashes."""
    for number, line in enumerate(lines):
        if not line.startswith("|"):
            return
        if number != 1:
            yield tuple(plain(cell) for cell in _BAR.split(line.strip())[1:-1])
