"""How long a night takes from beginning to end, beside the bound that nothing can beat and a simulation.

    python benchmarks/night_makespan.py [--scale 1] [local] [dask]

The steps are those of a night of the sample: 3 Pythons, 2 families, suites in two shards. The driver, the
engine, the executors and what starts a step's commands are Cairn's; in place of each command a program
sleeps, so that a machine with two cores has room for six steps at once. `bound` is the longer of the critical
path and all work over all places; `simulated` gives each free place to the step with the longest path behind
it, both with the seconds that each step took where it ran. `programs` is what all these are above what was
slept: the start of a program a step, which takes long on a busy machine.
"""

from __future__ import annotations

import argparse
import heapq
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from msgspec import structs

from cairn import stack as stacks
from cairn.build.engine import schedule
from cairn.build.engine.schedule import Cost, Record
from cairn.matrix import legs, matrix_toml
from cairn.matrix.matrix_options import Choice
from cairn.pipeline.night import driver, placing, steps
from cairn.pipeline.night.driver import DriveRequest, Executor, Here
from cairn.pipeline.night.plan import NightPlan
from cairn.pipeline.night.steps import NightStep, Settings
from cairn.pipeline.pipeline_options import FreezeOptions
from cairn.store.memory import MemoryStore

STACK = Path(__file__).parents[1] / "external-builds" / "sample"
PLACES = 6
WORKERS = 3
SECONDS = {"build": 60.0, "stage": 3.0, "test": 15.0, "suite": 25.0, "merge": 1.0, "promote": 2.0}
# In place of the package `cairn`: sleeps, and has staged whatever it was asked to.
STAND_IN = """
import json, os, sys, time
kind, *words = sys.argv[4 if sys.argv[3] == "step" else 3 :]
known = json.load(open(os.environ["NIGHT_SECONDS"]))
time.sleep(known.get(kind, 0))
if kind == "stage":
    legs = {word for before, word in zip(words, words[1:]) if before == "--leg"}
    with open(os.environ["GITHUB_OUTPUT"], "a") as file:
        for name, includes in known["outputs"].items():
            print(f"{name}=" + json.dumps({"include": [i for i in includes if i["id"] in legs]}), file=file)
"""


@dataclass(frozen=True, kw_only=True)
class Night:
    """A night to run.

    Attributes:
        request: as the driver takes it.
        steps: all of them.
        variables: that lead to the stand-in.
        seconds: by kind.
    """

    request: DriveRequest
    steps: tuple[NightStep, ...]
    variables: Mapping[str, str]
    seconds: Mapping[str, float]


def main() -> None:
    """Print a line for each executor."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", type=float, default=1.0, help="of the time that steps take")
    parser.add_argument("executors", nargs="*", default=["local", "dask"])
    chosen = parser.parse_args()
    seconds = {kind: value * chosen.scale for kind, value in SECONDS.items()}
    print(
        f"{'':6} {'steps':>5} {'bound':>8} {'simulated':>9} {'took':>8} {'of simulated':>12} {'programs':>9}"
    )
    for name in chosen.executors:
        open_executor: Callable[..., object] = {"local": _local, "dask": _dask}[name]
        with tempfile.TemporaryDirectory() as folder, open_executor() as executor:  # type: ignore[attr-defined]
            night = _night(Path(folder), executor, seconds, on_one_machine=name == "local")
            places = PLACES if name == "local" else WORKERS
            began = time.monotonic()
            outcome = driver._Drive(night.request, executor, night.steps, night.variables).carry_out()  # noqa: SLF001
            took = time.monotonic() - began
            outcome.require()
            known = schedule.read_durations(night.request.settings.work_dir / driver.DURATIONS).steps
            real = {one.step.name: known[one.step.name].seconds for one in night.steps}
            bound, simulated = _simulate(night, real, places, beside=name == "dask")
            programs = sum(real.values()) - sum(night.seconds[one.step.kind] for one in night.steps)
            numbers = (
                f"{bound:7.1f}s {simulated:8.1f}s {took:7.1f}s {took / simulated:12.3f} {programs:8.1f}s"
            )
            print(f"{name:6} {len(night.steps):5} {numbers}", flush=True)


@contextmanager
def _local() -> Iterator[Executor]:
    yield Here(PLACES)


@contextmanager
def _dask() -> Iterator[Executor]:
    from distributed import LocalCluster  # noqa: PLC0415 - of an extra

    from cairn.cluster import dask_executor  # noqa: PLC0415 - likewise

    with LocalCluster(  # type: ignore[no-untyped-call]
        n_workers=WORKERS, threads_per_worker=2, resources={"cores": 1}, dashboard_address=None
    ) as here:
        where = dask_executor.Where(scheduler=here.scheduler_address, workers=WORKERS)
        with dask_executor.connect(where) as executor:
            yield executor


def _night(folder: Path, executor: Executor, seconds: Mapping[str, float], *, on_one_machine: bool) -> Night:
    stack = stacks.load(STACK).for_line("nightly")
    config = matrix_toml.load_matrix_toml(STACK / matrix_toml.FILE, stack)
    matrix = legs.make(stack, config, Choice(trigger="nightly", lines=("nightly",)), stack_path=STACK)
    placed, _ = placing.place(matrix.legs, stack, executor.machines)
    plan = NightPlan(
        night="1",
        stack=stack.name,
        line=stack.line,
        frozen=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        manifest_sha256="",
        staging="staging",
        release="nightly",
        legs=placed,
    )
    cores = 1 if not on_one_machine else executor.cores
    settings = Settings(
        stack=STACK, store="none", work_dir=folder / "work", cores=cores, on_one_machine=on_one_machine
    )
    every = steps.steps_of(plan, stack, settings, builds={one.id for one in plan.builds}, legs=placed)
    every = tuple(structs.replace(one, phases=None) for one in every)  # nothing is fetched or kept
    tests = [{"id": one.step.name.split()[1]} for one in every if one.step.kind == "test"]
    parts = [one.step.name.split()[1:] for one in every if one.step.kind == "suite"]
    suites = [
        {"id": leg, "config": part.rpartition("-")[0], "shard": int(part.rpartition("-")[2])}
        for leg, part in parts
    ]
    (folder / "stand-in/cairn").mkdir(parents=True)
    (folder / "stand-in/cairn/__init__.py").touch()
    (folder / "stand-in/cairn/__main__.py").write_text(STAND_IN)
    known = {**seconds, "outputs": {"test": tests, "suite": suites}}
    (folder / "seconds.json").write_text(json.dumps(known))
    # As a night before has left them: which steps are urgent is known.
    settings.work_dir.mkdir()
    schedule.add_durations(
        settings.work_dir / driver.DURATIONS,
        {
            one.step.name: Record(
                kind=one.step.kind,
                project=one.step.project,
                seconds=seconds[one.step.kind],
                cores=one.step.cores,
                ended=time.time(),
            )
            for one in every
        },
    )
    request = DriveRequest(
        night="1",
        stack=stack,
        store=MemoryStore(),
        legs=placed,
        freeze_options=FreezeOptions(),
        settings=settings,
    )
    variables = {"PYTHONPATH": str(folder / "stand-in"), "NIGHT_SECONDS": str(folder / "seconds.json")}
    return Night(request=request, steps=every, variables=variables, seconds=seconds)


def _simulate(night: Night, took: Mapping[str, float], places: int, *, beside: bool) -> tuple[float, float]:
    """Return the bound, and the end of a list schedule; with `beside`, central steps need no place."""
    graph = steps.graph_of(night.steps)
    costs = {name: Cost(serial=value) for name, value in took.items()}
    paths = schedule.remaining_paths(graph, costs, 1)
    free = {one.step.name for one in night.steps if beside and one.is_central}
    bound = max(*paths.values(), sum(took[name] for name in took if name not in free) / places)
    left = {step.name: len(step.waits_for) for step in graph.steps}
    by_name = {step.name: step for step in graph.steps}
    ready = [name for name, count in left.items() if not count]
    running: list[tuple[float, str]] = []
    now = 0.0
    while ready or running:
        for name in sorted(ready, key=lambda name: -paths[name]):
            taken = {what for _, other in running for what in by_name[other].exclusive}
            busy = sum(other not in free for _, other in running)
            if taken.isdisjoint(by_name[name].exclusive) and (name in free or busy < places):
                ready.remove(name)
                heapq.heappush(running, (now + took[name], name))
        now, ended = heapq.heappop(running)
        for follower in graph.followers[ended]:
            left[follower] -= 1
            if not left[follower]:
                ready.append(follower)
    return bound, now


if __name__ == "__main__":
    main()
