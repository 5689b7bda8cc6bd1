"""How near the engine comes to the best possible order of builds, and how long it takes to plan many steps.

    PYTHONPATH=tests python benchmarks/build_plan.py

Runs are simulated on recorded durations: chains of projects, once for each variant, on 1, 4 and 16 cores.
`bound` is what no order can beat: the longest chain, or all work divided by the cores. Printed are ratios to
it, for four ways of carrying the steps out:

- shared: the engine with tools that share compile jobs while they run (ninja 1.13, make 4.4);
- fixed: the engine with tools that keep the number of jobs they began with;
- one tree: as shared, with the builds of a project one after another, as they would be in one checkout;
- rounds: as other orchestrators do it: everything that is ready runs, each step on an equal share, and the
  next round begins when the last of them has ended (fromager's parallel build; the nightly of a matrix whose
  jobs wait for a whole stage).
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Mapping

from cairn.build.engine import schedule
from cairn.build.engine.schedule import Cost, Graph, Limits
from helpers import simulated
from helpers.recorded import chains

SHAPES = ((5, 1), (3, 4), (5, 6), (10, 12))
WORKERS = (1, 4, 16)
MANY = (100, 100)
RUNS = 5


def main() -> None:
    """Print both tables."""
    head = ("shared", "fixed", "one tree", "rounds")
    print(f"{'projects x variants':20} {'cores':>5} {'bound':>10} {' '.join(f'{name:>8}' for name in head)}")
    for projects, variants in SHAPES:
        for workers in WORKERS:
            limits = Limits(cores=workers)
            graph, costs = chains(projects, variants)
            best = simulated.bound(graph, costs, workers)
            found = (
                simulated.makespan(simulated.run(graph, costs, limits)),
                simulated.makespan(simulated.run(graph, costs, limits, shared=False)),
                simulated.makespan(simulated.run(in_one_tree(graph), costs, limits)),
                rounds(graph, costs, workers),
            )
            ratios = " ".join(f"{seconds / best:8.3f}" for seconds in found)
            print(f"{f'{projects} x {variants}':20} {workers:5} {best / 60:6.0f} min {ratios}")
    print(f"planning {MANY[0] * MANY[1]} steps (graph, digests, remaining paths): {planning():.2f} s")


def in_one_tree(graph: Graph) -> Graph:
    """The same steps where all variants of a project are built in one checkout."""
    return Graph(
        tuple(dataclasses.replace(step, exclusive=(step.name.partition(" [")[0],)) for step in graph.steps)
    )


def rounds(graph: Graph, costs: Mapping[str, Cost], workers: int) -> float:
    """Seconds of rounds with barriers: in each, at most as many steps as cores, with equal shares."""
    level: dict[str, int] = {}
    for step in graph.order:
        level[step.name] = max((level[name] + 1 for name in step.needs), default=0)
    seconds = 0.0
    for number in range(max(level.values()) + 1):
        ready = [name for name, at in level.items() if at == number]
        share = max(1, workers // len(ready))
        free = [0.0] * min(workers, len(ready))
        for name in ready:
            first = free.index(min(free))
            free[first] += costs[name].seconds(share)
        seconds += max(free)
    return seconds


def planning() -> float:
    """Median seconds of planning many steps, from nothing."""
    found = []
    for _ in range(RUNS):
        began = time.perf_counter()
        graph, costs = chains(*MANY)
        _ = graph.digests
        schedule.remaining_paths(graph, costs, 16)
        found.append(time.perf_counter() - began)
    return statistics.median(found)


if __name__ == "__main__":
    main()
