"""Which step starts next, and how many cores it has.

The step with the longest remaining path comes first: the time from its start to the end of the last step that
waits for it. That is Hu's rule (1961), and what makes N variants of one chain end together: the long step of
the last variant does not begin when all others are through.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from cairn.build.engine.step import Graph, Step

MEMORY_PER_JOB = 2_000_000_000
"""Bytes that a compile job is taken to need where none was measured: the larger files of torch need more."""

OVER = 1.5
"""How much more than a fair share of the cores a step is given that keeps its number of jobs: steps side by
side seldom compile all the time, and the last one cannot be given the share of those that are done."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The machine's resources for the steps that run side by side.

    Attributes:
        cores: how many may be busy.
        memory: bytes that they may use together; None where no one knows.
    """

    cores: int
    memory: int | None = None


@dataclass(frozen=True, kw_only=True)
class Cost:
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


@dataclass(frozen=True, kw_only=True)
class Start:
    """A step that starts now, with a number of cores."""

    step: Step
    cores: int


def remaining_paths(graph: Graph, costs: Mapping[str, Cost], cores: int) -> dict[str, float]:
    """Seconds from the start of each step to the end of all that waits for it, were it alone."""
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
) -> list[Start]:
    """The steps that start now.

    Args:
        ready: steps whose needs are met.
        running: what runs, with the cores that each has.
        paths: see `remaining_paths`.
        limits: of the machine.
    """
    chosen: list[Start] = []
    taken = {what for step, _ in running.values() for what in step.exclusive}
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
        chosen.append(Start(step=step, cores=cores))
    return chosen
