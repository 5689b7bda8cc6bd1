"""What the gate found, as commands show it."""

from __future__ import annotations

from collections.abc import Mapping

from cairn.output import console
from cairn.release.gate.judgement import GateReport, Outcome

_MARKS: Mapping[Outcome, console.Mark] = {"met": "done", "bypassed": "bypassed", "not met": "failed"}


def show(report: GateReport, *, kept: bool = False) -> None:
    """Every demand with how it stands and why, then what the set was not tested on.

    Args:
        report: what the gate found.
        kept: it was asked when the set was promoted, and not again.
    """
    screen = console.current()
    when = f"{report.judged[:10]} {report.judged[11:16]} UTC"
    screen.out(f"the gate on the set {report.set_id[:12]}, asked {when}{' and not again' if kept else ''}:")
    for demand in report.demands:
        text = f"{demand.outcome:8} {demand.number}. {demand.name}: {demand.why}"
        screen.item(_MARKS[demand.outcome], text)
    if note := report.untested_note:
        screen.item("bypassed", note)


def plain(report: GateReport | None) -> dict[str, object]:
    """The same for programs to read."""
    found = [
        {
            "number": d.number,
            "name": d.name,
            "outcome": d.outcome,
            "holds": d.holds,
            "bypassed": d.bypassed,
            "reason": d.why,
        }
        for d in (report.demands if report else ())
    ]
    return {"demands": found, "untested": list(report.untested) if report else []}
