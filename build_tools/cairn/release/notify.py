"""Telling somebody of a promotion, or of a refusal: a command gets it as JSON on its standard input.

What the command does, and whether it succeeds, changes nothing of what it is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from cairn import datafile, process
from cairn.errors import CairnError
from cairn.release.gate.judgement import GateReport

_TIMEOUT = 60.0  # seconds


class Notice(datafile.Value, tag_field="schema", tag="cairn.notice/1"):
    """What a command of `[gate] notify`, or of `--notify`, reads.

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


def notice(report: GateReport) -> Notice:
    """What is said of a judgement."""
    return Notice(
        outcome="promoted" if report.holds else "refused",
        set_id=report.set_id,
        target=report.target,
        untested=report.word,
        reasons=report.reasons,
        report=report,
    )


def send(command: Sequence[str], message: Notice, *, folder: Path) -> str | None:
    """Run a command that reads a notice; why it did not work, or None.

    Args:
        command: the program and its arguments.
        message: what it reads.
        folder: where it runs.
    """
    try:
        process.run(command, stdin=datafile.dumps(message).encode(), cwd=folder, timeout=_TIMEOUT)
    except (CairnError, OSError) as error:
        return f"{command[0]} was to be told of it, and failed: {error}"
    return None
