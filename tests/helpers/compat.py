"""Compatibility reports made by hand."""

from __future__ import annotations

from cairn.testing.compat.report import Claim, CompatReport, Measured, ReportRow, ReportTable, Support, Tested

CPU = Tested(torch="2.9.1+cpu", commit="c" * 40, python="3.12.4", platform="linux x86_64")
ROCM = Tested(torch="2.9.1+rocm7.10.0", hip="7.1.2", rocm="7.10.0", python="3.12.4", platform="linux x86_64")


def row(
    name: str,
    support: Support,
    *,
    claim: Claim | None = "supported",
    reason: str = "",
    device: str = "",
    on_cpu: Support | None = None,
    found: str = "",
) -> ReportRow:
    """A row of two columns."""
    measured = Measured(support=support, reason=reason, device=device, on_cpu=on_cpu, found=found)
    return ReportRow(cells=(name, "2.3"), claim=claim, measured=measured)


def report(*rows: ReportRow, tested: Tested = CPU) -> CompatReport:
    """A report with one table of these rows."""
    table = ReportTable(
        id="dtypes", page="page.rst", section="Data types", columns=("Data type", "Since PyTorch"), rows=rows
    )
    return CompatReport(tested=tested, started="2026-01-02T03:04:05Z", duration_seconds=1.5, tables=(table,))
