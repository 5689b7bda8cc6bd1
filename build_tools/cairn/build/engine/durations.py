"""How long steps took, kept from run to run, so that the next one starts the longest path first.

One JSON file, beside the build cache. It is of no use but for the order of steps: one that cannot be read or
written costs time and never a build.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cairn import datafile, files
from cairn.build.engine.policy import Cost
from cairn.build.engine.step import Graph, Step
from cairn.errors import CairnError

_MOST = 5_000  # records that are kept, the newest ones
_UNKNOWN = 60.0  # seconds that a step of a kind which no one has seen yet is taken to need
_DIVIDED = 0.9  # of a step's work that can be divided, where it was measured on one core alone
_LOCK_WAIT = 10.0  # seconds


class Record(datafile.Value):
    """The cost of a step when it last ran to its end.

    Attributes:
        kind: of the step.
        project: of the step.
        seconds: wall time.
        cpu: core-seconds of its programs; 0 where no one measured them.
        cores: how many it had.
        memory: bytes of the largest of its programs; 0 where no one measured it.
        disk: bytes by which the disk was fuller when it had ended.
        ended: seconds since the epoch.
    """

    kind: str
    project: str
    seconds: float
    cpu: float = 0.0
    cores: int = 1
    memory: int = 0
    disk: int = 0
    ended: float = 0.0

    def cost(self) -> Cost:
        """Its serial and its parallel part, solved from seconds and core-seconds."""
        # seconds = serial + parallel / cores, cpu = serial + parallel
        if self.cpu <= 0:
            return Cost(serial=self.seconds)
        if self.cores <= 1:
            divided = _DIVIDED * min(self.cpu, self.seconds)
            return Cost(serial=self.seconds - divided, parallel=divided)
        parallel = (self.cpu - self.seconds) / (1 - 1 / self.cores)
        parallel = min(max(0.0, parallel), self.cpu, self.seconds * self.cores)
        return Cost(serial=max(0.0, self.seconds - parallel / self.cores), parallel=parallel)


class _File(datafile.Value, tag_field="schema", tag="cairn.durations/1"):
    steps: Mapping[str, Record]


@dataclass(frozen=True)
class Durations:
    """Records by the name of their step."""

    steps: Mapping[str, Record] = field(default_factory=dict)

    def costs(self, graph: Graph) -> dict[str, Cost]:
        """The expected cost of each step: recorded, else typical of its project, else of its kind."""
        alike: dict[tuple[str, ...], list[Record]] = {}
        for record in self.steps.values():
            alike.setdefault((record.kind, record.project), []).append(record)
            alike.setdefault((record.kind,), []).append(record)
        typical = {}
        for key, records in alike.items():
            known = [record.cost() for record in records]
            typical[key] = Cost(
                serial=statistics.median(cost.serial for cost in known),
                parallel=statistics.median(cost.parallel for cost in known),
            )
        return {step.name: self._cost(step, typical) for step in graph.steps}

    def _cost(self, step: Step, typical: Mapping[tuple[str, ...], Cost]) -> Cost:
        if step.seconds is not None:
            return Cost(serial=step.seconds)
        if (own := self.steps.get(step.name)) is not None and own.kind == step.kind:
            return own.cost()
        cost = typical.get((step.kind, step.project)) or typical.get((step.kind,))
        return cost or Cost(serial=_UNKNOWN)

    def memory(self, kind: str, project: str) -> int | None:
        """Bytes that one program of a project's steps has needed at most; None where no one measured it."""
        measured = [
            r.memory for r in self.steps.values() if (r.kind, r.project) == (kind, project) and r.memory
        ]
        return max(measured, default=None)

    def disk(self, kind: str, project: str) -> int:
        """Bytes that a project's last step of a kind left on the disk; 0 where no one measured it."""
        records = [r for r in self.steps.values() if (r.kind, r.project) == (kind, project)]
        return max(records, key=lambda record: record.ended).disk if records else 0


def read(path: Path) -> Durations:
    """The records of a file; none where there is no such file, or it was damaged."""
    try:
        return Durations(datafile.read(path, _File).steps)
    except (CairnError, OSError):
        return Durations()


def add(path: Path, new: Mapping[str, Record]) -> None:
    """Put records into a file, beside those that other runs have put there meanwhile."""
    if not new:
        return
    try:
        with files.locked(path.with_name(f"{path.name}.lock"), timeout=_LOCK_WAIT):
            steps = {**read(path).steps, **new}
            newest = sorted(steps, key=lambda name: steps[name].ended)[-_MOST:]
            datafile.write(path, _File(steps={name: steps[name] for name in sorted(newest)}))
    except (CairnError, OSError):
        return  # a full disk stops what matters; this is not it
