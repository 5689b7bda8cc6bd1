"""A compatibility report: each row of the pages, with what was measured of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Literal

from cairn import datafile
from cairn.testing.compat.rows import Claim

FILE = "compat.json"

Support = Literal["supported", "partial", "unsupported", "not measurable"]
"""All that the row stands for works; it works in part; it does not; it cannot be found out here."""

Outcome = Literal["passed", "failed", "not measured"]

Against = Literal["as claimed", "more", "less", ""]
"""The measurement compared with the page's claim; empty where either is missing."""

RANK = {"unsupported": 0, "partial": 1, "supported": 2}
"""The order of results, the worst first."""


class Check(datafile.Value):
    """One thing that a probe tried.

    Attributes:
        what: in a few words.
        outcome: what came of it.
        reason: why it failed, or was not measured.
        essential: without it the feature is not there; without one that is not, it is there in part.
    """

    what: str
    outcome: Outcome
    reason: str = ""
    essential: bool = True


class Measured(datafile.Value):
    """What was measured of one row.

    Attributes:
        support: the result, of the GPU where the row is about one.
        reason: what failed, or why nothing can be said.
        on_cpu: the result on the CPU of a row about a GPU, where there is none; it says nothing of a GPU.
        device: the GPU that it computed on, by its gfx name on ROCm; empty where it used none.
        found: a version, or a similar fact, that was seen.
        checks: what was tried.
        seconds: how long it took.
    """

    support: Support
    reason: str = ""
    on_cpu: Support | None = None
    device: str = ""
    found: str = ""
    checks: tuple[Check, ...] = ()
    seconds: float = 0.0


class ReportRow(datafile.Value):
    """A row of a page, measured.

    Attributes:
        cells: what the page has.
        claim: what the page claims; None where it claims nothing.
        measured: what was seen.
    """

    cells: tuple[str, ...]
    claim: Claim | None
    measured: Measured

    @property
    def name(self) -> str:
        """What the page calls it."""
        return self.cells[0]

    @property
    def against(self) -> Against:
        """How the measurement compares with the claim."""
        support = self.measured.support
        if self.claim is None or support == "not measurable":
            return ""
        difference = RANK[support] - RANK[self.claim]
        return "more" if difference > 0 else "less" if difference < 0 else "as claimed"

    @property
    def broken(self) -> bool:
        """Whether the page claims it, in part at least, and it does not work."""
        return self.claim in ("supported", "partial") and self.measured.support == "unsupported"


class ReportTable(datafile.Value):
    """A table of a page, measured; see `rows.RowTable` for what the fields are."""

    id: str
    page: str
    section: str
    columns: tuple[str, ...]
    rows: tuple[ReportRow, ...]


class Tested(datafile.Value):
    """What was looked at.

    Attributes:
        torch: its version; empty where it does not import.
        commit: that it was built from.
        hip: of the HIP that it was built with, or empty.
        cuda: likewise.
        rocm: version of the installed ROCm SDK, or empty.
        python: version of the interpreter.
        platform: system and processor.
        gpus: as torch sees them; gfx names on ROCm, with their features.
        problem: why torch does not import.
    """

    torch: str = ""
    commit: str = ""
    hip: str = ""
    cuda: str = ""
    rocm: str = ""
    python: str = ""
    platform: str = ""
    gpus: tuple[str, ...] = ()
    problem: str = ""


class CompatReport(datafile.Value, tag_field="schema", tag="cairn.compat/1"):
    """What a wheel supports on this machine.

    Attributes:
        tested: the wheel and the machine.
        set_id: the sealed set that it is of; None where that is not known.
        started: RFC 3339, with its zone.
        duration_seconds: wall time.
        tables: those of the pages.
        translated: what stood in for a GPU, such as `torchdevice 0.1.0`; none was measured then.
    """

    tested: Tested
    set_id: str | None = None
    started: str
    duration_seconds: float
    tables: tuple[ReportTable, ...]
    translated: str = ""

    @property
    def rows(self) -> tuple[tuple[ReportTable, ReportRow], ...]:
        """Every row, with its table."""
        return tuple((table, row) for table in self.tables for row in table.rows)

    @property
    def counts(self) -> Counter[Support]:
        """Rows by result."""
        return Counter(row.measured.support for _, row in self.rows)


def read(path: Path) -> CompatReport:
    """Read a report, or the one in a folder.

    Raises:
        UsageError: it is not a report, or of an unknown version.
    """
    place = path / FILE if path.is_dir() else path
    return datafile.read(place, CompatReport, tip="`cairn test compat` writes one")
