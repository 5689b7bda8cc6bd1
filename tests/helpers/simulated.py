"""A graph carried out on a virtual clock, by the policy that real runs have.

A step works through its serial seconds first, on one core, and then through what can be divided. Where steps
share compile jobs (ninja 1.13, make 4.4), each takes its share of the cores anew whenever something begins or
ends; otherwise it keeps the number it began with, and where that makes more jobs than cores, all of them are
slower in proportion.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cairn.build.engine import schedule
from cairn.build.engine.schedule import Cost, Graph, Limits, Step

_NOTHING = 1e-9  # seconds and core-seconds that are rounding errors


@dataclass(frozen=True, kw_only=True)
class Span:
    """When a simulated step ran, in seconds from the beginning."""

    start: float
    end: float


@dataclass(kw_only=True)
class _Running:
    step: Step
    start: float
    jobs: int
    serial: float
    parallel: float
    rate: float = 0.0

    def usable(self, *, shared: bool) -> int:
        """How many cores it can use at the moment."""
        if self.serial > _NOTHING or self.parallel <= _NOTHING:
            return 1
        return self.step.cores if shared else self.jobs

    def next(self) -> float:
        """Seconds until its serial part ends, or it does, at its present rate."""
        return (self.serial if self.serial > _NOTHING else self.parallel) / self.rate

    def advance(self, seconds: float) -> None:
        work = seconds * self.rate
        if self.serial > _NOTHING:
            self.serial -= work
        else:
            self.parallel -= work


def run(graph: Graph, costs: Mapping[str, Cost], limits: Limits, *, shared: bool = True) -> dict[str, Span]:
    """When each step would start and end; `shared`: steps share compile jobs while they run."""
    paths = schedule.remaining_paths(graph, costs, limits.cores)
    left = {step.name: len(step.waits_for) for step in graph.steps}
    ready = {step.name: step for step in graph.steps if not step.waits_for}
    running: dict[str, _Running] = {}
    spans: dict[str, Span] = {}
    now = 0.0
    while ready or running:
        busy = {name: (r.step, r.jobs) for name, r in running.items()}
        for step, cores in schedule.starts(ready.values(), busy, paths=paths, limits=limits):
            name = step.name
            del ready[name]
            cost = costs[name]
            running[name] = _Running(
                step=step,
                start=now,
                jobs=1 if shared else cores,
                serial=cost.serial,
                parallel=cost.parallel,
            )
        _share(running, paths, limits, shared=shared)
        passed = min(r.next() for r in running.values())
        now += passed
        for each in running.values():
            each.advance(passed)
        for name in [n for n, r in running.items() if r.serial <= _NOTHING and r.parallel <= _NOTHING]:
            spans[name] = Span(start=running.pop(name).start, end=now)
            for after in graph.followers[name]:
                left[after] -= 1
                if not left[after]:
                    ready[after] = graph.by_name[after]
    return spans


def makespan(spans: Mapping[str, Span]) -> float:
    """Seconds until the last step has ended."""
    return max((span.end for span in spans.values()), default=0.0)


def bound(graph: Graph, costs: Mapping[str, Cost], cores: int) -> float:
    """Seconds that no order of the steps can be faster than: the longest path, or all work on all cores."""
    longest = max(schedule.remaining_paths(graph, costs, cores).values(), default=0.0)
    return max(longest, sum(cost.work for cost in costs.values()) / cores)


def shares(usable: Mapping[str, int], *, paths: Mapping[str, float], limits: Limits) -> dict[str, int]:
    """The cores of each running step: one at least, the others to those with the longest remaining path.

    Args:
        usable: how many each running step can use at the moment.
        paths: see `policy.remaining_paths`.
        limits: of the machine.
    """
    cores = dict.fromkeys(usable, 1)
    free = limits.cores - len(cores)
    for name in sorted(usable, key=lambda name: -paths[name]):
        more = max(0, min(usable[name] - 1, free))
        cores[name] += more
        free -= more
    return cores


def _share(
    running: Mapping[str, _Running], paths: Mapping[str, float], limits: Limits, *, shared: bool
) -> None:
    """Set the rate of each step: core-seconds in a second."""
    jobs = {name: r.usable(shared=shared) for name, r in running.items()}
    if shared:
        jobs = shares(jobs, paths=paths, limits=limits)
    slower = min(1.0, limits.cores / sum(jobs.values()))
    for name, each in running.items():
        each.rate = jobs[name] * slower
        if shared:
            each.jobs = jobs[name]
