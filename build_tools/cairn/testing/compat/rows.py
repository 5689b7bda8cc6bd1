"""The rows that PyTorch's compatibility pages for ROCm have, as data: `rows.toml` beside this module."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from cairn import datafile

Claim = Literal["supported", "partial", "unsupported"]


class Row(datafile.Value):
    """One row of a page.

    Attributes:
        cells: what the page says, in the order of the table's columns; the first is the row's name.
        claim: of this row, where it differs from the claim of its table.
        probe: how to measure it: a function of `cairn.testing.compat.probes`, with its arguments.
        why_not: why it cannot be measured of a wheel, where there is no probe and its table does not say.
        environment: variables that the probe's process has.
    """

    cells: tuple[str, ...]
    claim: Claim | None = None
    probe: str = ""
    why_not: str = ""
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def name(self) -> str:
        """What the page calls it."""
        return self.cells[0]


class RowTable(datafile.Value):
    """A table of a page, or the statements of one of its sections.

    Attributes:
        id: names it in reports, and in what is compared.
        page: the page it is on, by its file's name.
        section: the heading above it.
        columns: those that hold names and versions; prose is left out.
        of_page: whether the page itself has it as a table.
        claim: what the page claims of its rows; None where it only states versions.
        why_not: why none of its rows can be measured of a wheel.
        rows: in the page's order.
    """

    id: str
    page: str
    section: str
    columns: tuple[str, ...]
    of_page: bool = True
    claim: Claim | None = None
    why_not: str = ""
    rows: tuple[Row, ...]


class Rows(datafile.Value, tag_field="schema", tag="cairn.compat-rows/1"):
    """All that the pages state."""

    tables: tuple[RowTable, ...]


@functools.cache
def load() -> tuple[RowTable, ...]:
    """The tables, in the order of the pages."""
    return datafile.read(Path(__file__).with_name("rows.toml"), Rows).tables
