"""The one table of a compatibility report, read back out of its reStructuredText or Markdown."""

import re
from collections.abc import Iterator, Sequence

_ITEM = re.compile(r"(?P<new> *\* -|  +-)(?: (?P<text>.*))?")
_BAR = re.compile(r"(?<!\\)\|")
_ESCAPED = re.compile(r"\\([^\w\s])")


def rows_of(text: str) -> list[tuple[str, ...]]:
    """The rows, the first of which names the columns, without what escapes them."""
    lines = text.splitlines()
    start = next((at for at, line in enumerate(lines) if line.startswith(".. list-table::")), None)
    rows = _pipe_table(lines) if start is None else _list_table(lines[start + 1 :])
    return [tuple(_ESCAPED.sub(r"\1", " ".join(cell.split())) for cell in row) for row in rows]


def _list_table(lines: Sequence[str]) -> Iterator[list[str]]:
    """`* -` begins a row, `-` a cell, deeper lines continue it (docutils, `list-table`)."""
    cells: list[str] = []
    for line in lines:
        item = _ITEM.fullmatch(line)
        if item and "*" in item["new"] and cells:
            yield cells
            cells = []
        if item and (cells or "*" in item["new"]):
            cells.append(item["text"] or "")
        elif cells:
            cells[-1] += f" {line.strip()}"
    yield cells


def _pipe_table(lines: Sequence[str]) -> Iterator[list[str]]:
    """The rows of a table of GitHub's Markdown, without the line of dashes."""
    for line in lines:
        if line.startswith("|") and not set(line) <= set("|- "):
            yield _BAR.split(line.strip())[1:-1]
