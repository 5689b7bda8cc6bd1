"""The gate's report, demand by demand: the one value that terminal, report, pages and store show.

`notify` passes it to a command of the stack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from cairn import datafile, process
from cairn.errors import CairnError
from cairn.release.weighing import Bypass
from cairn.stack import Floor, RecordKind
from cairn.targets import CPU

Outcome = Literal["met", "bypassed", "not met"]


class Demand(datafile.Value):
    """One demand and its outcome.

    Attributes:
        number: its place among those that promotion makes, from 0.
        name: what is demanded.
        outcome: `bypassed` means not met, but let through by a named user.
        reason: why it is met, or why not.
        bypass: who let it through, and why; None where that was not needed.
    """

    number: int
    name: str
    outcome: Outcome
    reason: str
    bypass: Bypass | None = None

    @property
    def holds(self) -> bool:
        """Whether the demand does not block the promotion."""
        return self.outcome != "not met"

    @property
    def bypassed(self) -> bool:
        """Whether it holds only because a user bypassed it."""
        return self.outcome == "bypassed"

    @property
    def why(self) -> str:
        """The reason, and who let it through."""
        return f"{self.reason}; {self.bypass}" if self.bypass else self.reason


class Policy(datafile.Value):
    """The rules that a set was judged by.

    Attributes:
        cairn: version of Cairn whose gate it was.
        stack: name of the stack; `stack_sha256` is of all that it says, as in a test record.
        line: its release line.
        floors: kinds of record that it demands, with their floors.
        lock_sha256: of what a mirror may hold; None where no lock was asked for.
    """

    cairn: str
    stack: str
    stack_sha256: str
    line: str
    floors: Mapping[RecordKind, Floor]
    lock_sha256: str | None = None


class GateReport(datafile.Value, tag_field="schema", tag="cairn.gate/1"):
    """The outcome of all demands on one set, kept beside it in the store.

    Attributes:
        set_id: the set.
        target: the index that it was to go into.
        judged: when, RFC 3339 in UTC.
        demands: all of them; older reports lack the one of number 0, and the refusal of a set without a test
            record those that read its files.
        untested: the targets of the set that no passed record is of, in natural order.
        replaced: those of them that a set which the index offers was tested on: this one may not replace it.
        answered: failed records that stand against the set, each with whose word lets it through and why.
        records: digests of the records that were weighed.
        answers: digests of the answers to them.
        size: bytes of all the files that the set installs.
        metadata_size: bytes of pages and metadata that an installer reads to choose them; None where it
            cannot.
        installed_with: the installers that installed it; the others could not be tried.
        policy: by what it was judged; None in judgements of an older Cairn.
        weakened: where that asks less than it should, or than of the last set, a sentence each.
    """

    set_id: str
    target: str
    judged: str
    demands: tuple[Demand, ...]
    untested: tuple[str, ...]
    replaced: tuple[str, ...] = ()
    answered: tuple[str, ...] = ()
    records: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    size: int = 0
    metadata_size: int | None = None
    installed_with: tuple[str, ...] = ()
    policy: Policy | None = None
    weakened: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether every demand holds."""
        return all(demand.holds for demand in self.demands)

    @property
    def bypassed(self) -> tuple[Demand, ...]:
        """The demands that hold only because a user bypassed them."""
        return tuple(demand for demand in self.demands if demand.bypassed)

    @property
    def reasons(self) -> tuple[str, ...]:
        """One sentence for each demand that does not hold."""
        return tuple(f"{d.number}. {d.name}: {d.reason}" for d in self.demands if not d.holds)

    @property
    def untested_note(self) -> str | None:
        """`untested on hardware: gfx942`; None for a set that was tested on all its targets."""
        return untested_note(self.untested)

    @property
    def caveat(self) -> str | None:
        """Its label on pages: untested targets, bypasses, and answered failures."""
        words = [self.untested_note, *(str(d.bypass) for d in self.bypassed), *self.answered]
        return "; ".join(word for word in words if word) or None


def untested_note(targets: tuple[str, ...]) -> str | None:
    """The label of a set that was not tested on these targets; None if there are none."""
    if not targets:
        return None
    return "untested" if targets == (CPU,) else f"untested on hardware: {', '.join(targets)}"


_TIMEOUT = 60.0  # seconds


class Notice(datafile.Value, tag_field="schema", tag="cairn.notice/1"):
    """The JSON input of a `[gate] notify` or `--notify` command.

    Attributes:
        outcome: what became of the set.
        set_id: the set.
        target: the index that it is in, or may not go into.
        untested: what pages say of it where it was not tested on everything, or None.
        reasons: why it was refused, demand by demand.
        report: what the gate found.
    """

    outcome: Literal["promoted", "refused"]
    set_id: str
    target: str
    untested: str | None
    reasons: tuple[str, ...]
    report: GateReport


def notify(command: Sequence[str], report: GateReport, *, folder: Path) -> str | None:
    """Run a command with the outcome of a set as its input; return why it failed, or None.

    The outcome stays the same, whatever the command does and whether or not it succeeds.

    Args:
        command: the program and its arguments; it gets a `Notice` as JSON on its standard input.
        report: what the gate found.
        folder: where it runs.
    """
    message = Notice(
        outcome="promoted" if report.holds else "refused",
        set_id=report.set_id,
        target=report.target,
        untested=report.caveat,
        reasons=report.reasons,
        report=report,
    )
    try:
        process.run(
            command, stdin=datafile.dumps(message).encode(), cwd=folder, timeout=_TIMEOUT, confined=False
        )
    except (CairnError, OSError) as error:
        return f"{command[0]} was to be told of it, and failed: {error}"
    return None
