"""The steps of a run; which one starts next, and with how many cores, by the recorded durations.

The step with the longest remaining path comes first: the time from its start to the end of the last step that
waits for it. That is Hu's rule (1961), and what makes N variants of one chain end together: the long step of
the last variant does not begin when all others are through.

How long steps took is one JSON file, beside the build cache. It is of no use but for the order of steps: one
that cannot be read or written costs time and never a build.
"""

from __future__ import annotations

import functools
import graphlib
import hashlib
import json
import math
import statistics
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from cairn import datafile, files
from cairn.errors import CairnError, UsageError


@dataclass(frozen=True, kw_only=True)
class Step:
    """One piece of work, as the engine sees it.

    Attributes:
        name: what it is called everywhere; no other step of its graph has it.
        kind: `checkout`, `build`, …: steps of a kind take alike long where nothing else is known.
        project: what it works on; with `kind` it says whose recorded durations are its own.
        needs: names of the steps that come first.
        after: names of steps that it waits for as well, though it needs nothing of them and runs also where
            they fail: what they compile, it finds in the compiler cache.
        inputs: all that may change its result, besides the results of its needs; values of JSON.
        cores: the most that it can use at once.
        memory: bytes at its peak for each core that it uses; 0 where no one knows.
        disk: bytes that must be free where it works when it starts.
        seconds: how long it takes, where who made the graph knows better than the records: 0 for a wheel that
            the cache has; None where not.
        exclusive: what it must be the only user of, such as a checkout: steps that name the same one run one
            after another.
    """

    name: str
    kind: str
    project: str = ""
    needs: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    inputs: Mapping[str, object] = field(default_factory=dict)
    cores: int = 1
    memory: int = 0
    disk: int = 0
    seconds: float | None = None
    exclusive: tuple[str, ...] = ()

    @functools.cached_property
    def waits_for(self) -> tuple[str, ...]:
        """The names of all steps that come before it."""
        return tuple(dict.fromkeys((*self.needs, *self.after)))


@dataclass(frozen=True)
class Graph:
    """Steps in which every need is met and none needs itself.

    Raises:
        UsageError: two steps have one name, a step needs one that does not exist, or needs go round in a
            circle.
    """

    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        if len(self.by_name) != len(self.steps):
            names = [step.name for step in self.steps]
            twice = next(name for name in names if names.count(name) > 1)
            raise UsageError(f"two steps are called {twice!r}")
        for step in self.steps:
            for name in step.waits_for:
                if name not in self.by_name:
                    raise UsageError(f"the step {step.name!r} needs {name!r}, which is not a step")
        _ = self.order  # raises where there is a circle

    @functools.cached_property
    def by_name(self) -> Mapping[str, Step]:
        """Every step by its name."""
        return {step.name: step for step in self.steps}

    @functools.cached_property
    def order(self) -> tuple[Step, ...]:
        """The steps, each after those it waits for; otherwise as they were given."""
        sorter = graphlib.TopologicalSorter({step.name: step.waits_for for step in self.steps})
        try:
            return tuple(self.by_name[name] for name in sorter.static_order())
        except graphlib.CycleError as error:
            circle = " > ".join(error.args[1])
            raise UsageError(f"steps need each other in a circle: {circle}") from error

    @functools.cached_property
    def dependents(self) -> Mapping[str, tuple[str, ...]]:
        """The names of the steps that need each step themselves."""
        return _inverted({step.name: tuple(dict.fromkeys(step.needs)) for step in self.steps})

    @functools.cached_property
    def followers(self) -> Mapping[str, tuple[str, ...]]:
        """The names of the steps that wait for each step, whatever for."""
        return _inverted({step.name: step.waits_for for step in self.steps})

    @functools.cached_property
    def digests(self) -> Mapping[str, str]:
        """A sha256 for each step, over its kind, its inputs and the digests of the steps it needs.

        Names are not part of it: the same work has the same digest in every graph.
        """
        digests: dict[str, str] = {}
        for step in self.order:
            whole = {
                "kind": step.kind,
                "inputs": step.inputs,
                "needs": sorted(digests[name] for name in step.needs),
            }
            text = json.dumps(whole, sort_keys=True, ensure_ascii=True)
            digests[step.name] = hashlib.sha256(text.encode()).hexdigest()
        return digests

    def behind(self, name: str) -> tuple[str, ...]:
        """The names of all steps that cannot run without a step, nearest first."""
        names: dict[str, None] = {}
        waiting = [name]
        for each in waiting:
            new = [after for after in self.dependents[each] if after not in names]
            names |= dict.fromkeys(new)
            waiting += new
        return tuple(names)


def _inverted(before: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """By step those that come after it, from those that come before it."""
    after: dict[str, list[str]] = {name: [] for name in before}
    for step, names in before.items():
        for name in names:
            after[name].append(step)
    return {name: tuple(steps) for name, steps in after.items()}


MEMORY_PER_JOB = 2_000_000_000
"""Bytes that a compile job is taken to need where none was measured: the larger files of torch need more."""

OVER = 1.5
"""How much more than a fair share of the cores a step is given that keeps its number of jobs: steps side by
side seldom compile all the time, and the last one cannot be given the share of those that are done."""

_MOST = 5_000  # records that are kept, the newest ones
_UNKNOWN = 60.0  # seconds that a step of a kind which no one has seen yet is taken to need
_DIVIDED = 0.9  # of a step's work that can be divided, where it was measured on one core alone
_LOCK_WAIT = 10.0  # seconds


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The machine's resources for the steps that run side by side.

    Attributes:
        cores: how many may be busy.
        memory: bytes that they may use together; None where no one knows.
    """

    cores: int
    memory: int | None = None


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """The time that a step takes.

    Attributes:
        serial: seconds that are the same with any number of cores.
        parallel: core-seconds that are divided among the cores it has.
    """

    serial: float
    parallel: float = 0.0

    @property
    def work(self) -> float:
        """Core-seconds in all."""
        return self.serial + self.parallel

    def seconds(self, cores: int) -> float:
        """Wall time with a number of cores."""
        return self.serial + self.parallel / max(1, cores)


def remaining_paths(graph: Graph, costs: Mapping[str, Cost], cores: int) -> dict[str, float]:
    """Return the seconds from each step's start to the end of all that waits for it, if run alone."""
    paths: dict[str, float] = {}
    for step in reversed(graph.order):
        after = max((paths[name] for name in graph.followers[step.name]), default=0.0)
        paths[step.name] = costs[step.name].seconds(min(cores, step.cores)) + after
    return paths


def starts(
    ready: Collection[Step],
    running: Mapping[str, tuple[Step, int]],
    *,
    paths: Mapping[str, float],
    limits: Limits,
) -> list[tuple[Step, int]]:
    """Choose the steps that start now, each with a number of cores.

    Args:
        ready: steps whose needs are met.
        running: what runs, with the cores that each has.
        paths: see `remaining_paths`.
        limits: of the machine.
    """
    chosen: list[tuple[Step, int]] = []
    taken = {resource for step, _ in running.values() for resource in step.exclusive}
    memory = limits.memory
    if memory is not None:
        memory -= sum(step.memory * cores for step, cores in running.values())
    waiting = sorted(ready, key=lambda step: -paths[step.name])
    free = limits.cores - len(running)
    for step in waiting:
        if free <= len(chosen):
            break
        if not taken.isdisjoint(step.exclusive):
            continue
        side_by_side = min(limits.cores, len(running) + len(waiting))
        cores = min(step.cores, math.ceil(limits.cores * OVER / side_by_side))
        if step.memory and memory is not None:
            fitting = memory // step.memory
            # The only step runs in any case: that it may need more was said before.
            if fitting < 1 and (running or chosen):
                continue
            cores = max(1, min(cores, fitting))
            memory -= cores * step.memory
        taken |= set(step.exclusive)
        chosen.append((step, cores))
    return chosen


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


class Durations(msgspec.Struct, frozen=True):
    """Records by the name of their step."""

    steps: Mapping[str, Record] = msgspec.field(default_factory=dict)

    def costs(self, graph: Graph) -> dict[str, Cost]:
        """Return the expected cost of each step: recorded, else typical of its project or kind."""
        alike: dict[tuple[str, ...], list[Record]] = {}
        for record in self.steps.values():
            alike.setdefault((record.kind, record.project), []).append(record)
            alike.setdefault((record.kind,), []).append(record)
        typical = {}
        for key, records in alike.items():
            measured = [record.cost() for record in records]
            typical[key] = Cost(
                serial=statistics.median(cost.serial for cost in measured),
                parallel=statistics.median(cost.parallel for cost in measured),
            )
        costs = {}
        for step in graph.steps:
            last = self.steps.get(step.name)
            if step.seconds is not None:
                cost = Cost(serial=step.seconds)
            elif last is not None and last.kind == step.kind:
                cost = last.cost()
            else:
                alike_cost = typical.get((step.kind, step.project)) or typical.get((step.kind,))
                cost = alike_cost or Cost(serial=_UNKNOWN)
            costs[step.name] = cost
        return costs

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


def read_durations(path: Path) -> Durations:
    """The records of a file; none where there is no such file, or it was damaged."""
    try:
        return Durations(datafile.read(path, _File).steps)
    except (CairnError, OSError):
        return Durations()


def add_durations(path: Path, new: Mapping[str, Record]) -> None:
    """Add records to a file, keeping those that other runs have added meanwhile."""
    if not new:
        return
    try:
        with files.locked(path.with_name(f"{path.name}.lock"), timeout=_LOCK_WAIT):
            steps = {**read_durations(path).steps, **new}
            newest = sorted(steps, key=lambda name: steps[name].ended)[-_MOST:]
            datafile.write(path, _File(steps={name: steps[name] for name in sorted(newest)}))
    except (CairnError, OSError):
        return  # a full disk stops what matters; this is not it
