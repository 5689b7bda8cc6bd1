"""What the gate found, demand by demand: the one value that terminal, report, pages and store show."""

from __future__ import annotations

from typing import Literal

from cairn import datafile
from cairn.release.gate.evidence import Bypass
from cairn.targets import CPU

Outcome = Literal["met", "bypassed", "not met"]


class Demand(datafile.Value):
    """One demand and how it stands.

    Attributes:
        number: of the six that promotion demands.
        name: what is demanded.
        outcome: `bypassed` is not met, and let through on a user's word alone.
        reason: why it is met, or why not.
        bypass: whose word, and why; None where none was needed.
    """

    number: int
    name: str
    outcome: Outcome
    reason: str
    bypass: Bypass | None = None

    @property
    def holds(self) -> bool:
        """Whether it does not stand in the way of promotion."""
        return self.outcome != "not met"

    @property
    def bypassed(self) -> bool:
        """Whether it holds on a user's word alone."""
        return self.outcome == "bypassed"

    @property
    def why(self) -> str:
        """The reason, and who let it through all the same."""
        return f"{self.reason}; {self.bypass}" if self.bypass else self.reason


class GateReport(datafile.Value, tag_field="schema", tag="cairn.gate/1"):
    """All demands on one set, kept beside it in the channel that it was promoted to.

    Attributes:
        set_id: the set.
        judged: when, RFC 3339 in UTC.
        demands: the six.
        untested: the targets of the set that no passed record is of, in natural order.
    """

    set_id: str
    judged: str
    demands: tuple[Demand, ...]
    untested: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether every demand holds."""
        return all(demand.holds for demand in self.demands)

    @property
    def bypassed(self) -> tuple[Demand, ...]:
        """The demands that hold on a user's word alone."""
        return tuple(demand for demand in self.demands if demand.bypassed)

    @property
    def reasons(self) -> tuple[str, ...]:
        """One sentence for each demand that does not hold."""
        return tuple(f"{d.number}. {d.name}: {d.reason}" for d in self.demands if not d.holds)

    @property
    def untested_note(self) -> str | None:
        """`untested on hardware: gfx942`; None for a set that was tested on all that it is for."""
        return untested_note(self.untested)


def untested_note(targets: tuple[str, ...]) -> str | None:
    """What to call a set that these of its targets have no test of; None where there are none."""
    if not targets:
        return None
    return "untested" if targets == (CPU,) else f"untested on hardware: {', '.join(targets)}"
