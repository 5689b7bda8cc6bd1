"""How many jobs, requests, machine hours and hours from beginning to end a night of all release lines takes.

    python benchmarks/night_jobs.py

The matrix is that of the PyTorch stack, for the lines that it has nights of, once as matrix.toml has it and
once with builds for each family. Nothing is built: hours are computed from the costs below. `machine hours`
are those of build machines; `night` is the time from the freeze to the report of all
lines, whose jobs wait for a free machine, as jobs of GitHub Actions do.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from cairn import stack as stacks
from cairn import targets as gpu
from cairn.matrix import legs, matrix_toml
from cairn.matrix.legs import Build, Leg
from cairn.matrix.matrix_options import Choice
from cairn.pipeline.night import shards

STACK = Path(__file__).parents[1] / "external-builds" / "pytorch"
COLUMNS = ("builds", "jobs", "artifacts", "requests")  # of `figures.Figures`
LINES = ("nightly", "release/2.12", "release/2.13", "release/2.14")

# In hours. That torch's 1,700 host files take 3.3 core hours was measured. The rest are assumptions, such as
# that its 268 HIP files take a minute of a core for each target.
HOST, TARGET = 3.5, 268 / 60  # of a core: for one Python, and for one target of it
CORES = 64  # of a build machine
AROUND = 0.5  # a build's checkout, SDK, links, wheels and upload
FREEZE, STAGE_SET, SMOKE, SHARD, AFTER = 0.2, 0.02, 0.3, 1.5, 0.3
BUILDERS = {"linux": 20, "windows": 20}
TESTERS = 4  # machines of each label


def main() -> None:
    """Print both tables."""
    stack = stacks.load(STACK)
    config = matrix_toml.load_matrix_toml(STACK / matrix_toml.FILE, stack)
    choice = Choice(trigger="nightly", lines=LINES)
    together = legs.make(stack, config, choice, stack_path=STACK).legs
    apart = tuple(msgspec.structs.replace(leg, build="", split=False) for leg in together)
    print(f"{'':46} {' '.join(COLUMNS)} {'machine hours':>14} {'night':>7}")
    for name, every in (("a build for each family", apart), ("as matrix.toml has it", together)):
        by_line = _by_line(every)
        counts = {line: sum(len(shards.expected(stack, leg)) for leg in own) for line, own in by_line.items()}
        found = [legs.figures_of(own, shards=counts[line]) for line, own in by_line.items()]
        for one, own in zip(found, by_line.values(), strict=True):
            _print(f"{name}: {one.line}", [one], own)
        _print(f"{name}: all lines", found, every)
    jobs = len(legs.SINGLE_JOBS)
    print(f"a line in which nothing changed: 0 builds, {jobs} jobs, no artifacts (e2e/test_nightly.py)")
    by_token = len(LINES) * legs.REQUESTS_TO_BEGIN
    print(
        f"limits: {legs.MOST_LEGS} jobs of a matrix; {legs.REQUESTS_BY_TOKEN} requests an hour by tokens "
        f"of jobs, of which the lines make {by_token}; jobs on GitHub's own runners end after "
        f"{legs.HOSTED_HOURS} hours, and have {legs.HOSTED_DISK // 10**9} GB of disk"
    )
    print("\n".join(dict.fromkeys(limit for one in found for limit in one.limits())))


def _by_line(every: Iterable[Leg]) -> dict[str, list[Leg]]:
    by_line = defaultdict(list)
    for leg in every:
        by_line[leg.line].append(leg)
    return by_line


def _print(name: str, found: Sequence[legs.Figures], every: Sequence[Leg]) -> None:
    hours = sum(map(build_hours, legs.builds_of(every)))
    counts = [sum(getattr(one, what) for one in found) for what in COLUMNS]
    cells = " ".join(f"{count:{len(what)}}" for count, what in zip(counts, COLUMNS, strict=True))
    print(f"{name:46} {cells} {hours:14.0f} {night(every):7.1f}")


def build_hours(build: Build) -> float:
    """What a build takes on a machine of its own."""
    return AROUND + (HOST + TARGET * len(gpu.parse_targets(build.targets))) / CORES


def night(every: Sequence[Leg]) -> float:
    """Hours from the freeze to the report, where all lines begin at once and share the machines."""
    stack = stacks.load(STACK)
    builds = legs.builds_of(every)
    built = ended([(FREEZE, build.os, build_hours(build)) for build in builds], BUILDERS)
    staged: dict[str, float] = {}
    for line, own in _by_line(every).items():  # a line's sets are staged by one job, once all are built
        last = max(end for build, end in zip(builds, built, strict=True) if build.line == line)
        staged[line] = last + STAGE_SET * len(own)
    tests = [(staged[leg.line], " ".join(leg.test_runs_on), SMOKE) for leg in every if leg.test_runs_on]
    tests += [
        (staged[leg.line], " ".join(shard.runs_on), SHARD)
        for leg in every
        for shard in shards.expected(stack, leg)
    ]
    return max([*staged.values(), *ended(tests, {})]) + AFTER


def ended(jobs: Sequence[tuple[float, str, float]], machines: Mapping[str, int]) -> list[float]:
    """When each job ends: it begins at a time, on one machine of a kind, and takes so many hours."""
    free: dict[str, list[float]] = {}
    ends = [0.0] * len(jobs)
    for begin, number in sorted((job[0], number) for number, job in enumerate(jobs)):
        _, kind, hours = jobs[number]
        pool = free.setdefault(kind, [0.0] * machines.get(kind, TESTERS))
        ends[number] = max(begin, heapq.heappop(pool)) + hours
        heapq.heappush(pool, ends[number])
    return ends


if __name__ == "__main__":
    main()
