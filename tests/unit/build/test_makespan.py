"""How near `cairn build` comes to the best possible order: its own graph of many variants, simulated."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from cairn.build import execution, job, variants
from cairn.build.build_options import CompilerCache
from cairn.build.engine.schedule import Cost, Durations, Graph, Limits
from cairn.build.model import Job
from cairn.build.plan import BuildStep
from cairn.build.variants import Axes
from cairn.interpreters import Interpreter
from cairn.stack import Sdk, Stack
from helpers import build, simulated
from helpers.recorded import RECORDED

SHAPES = {(5, 1): (1, 1), (3, 4): (2, 2), (5, 6): (3, 2), (10, 12): (4, 3)}
"""Projects and variants, to families and Pythons."""
FAMILIES = ("gfx942", "gfx1100", "gfx1151", "gfx1201")
# Of what the first variant takes, where a compiler cache has what others compiled: for other targets, for a
# different Python, and for both.
OTHER_TARGETS, OTHER_PYTHON, OTHER_BOTH = 0.6, 0.3, 0.2


def graph_of(
    folder: Path, shape: tuple[int, int], *, cache: CompilerCache | None
) -> tuple[Graph, Mapping[str, Cost]]:
    """The graph of a request for many variants, with tools that share compile jobs; what each step takes."""
    names = [f"{list(RECORDED)[n % len(RECORDED)]}{n}" for n in range(shape[0])]
    trees = {name: folder / name for name in names}
    projects = [
        msgspec.structs.replace(build.project(name), needs=tuple(names[:position][-1:]))
        for position, name in enumerate(names)
    ]
    stack = Stack(name="s", line="l", targets=("gfx942",), projects=tuple(projects), sdk=Sdk())
    wanted = Job(
        stack=stack,
        line="l",
        checkouts=trees,
        output_dir=folder / "out",
        env_dir=folder / "envs",
        jobs=64,
        compiler_cache=cache,
    )
    families, pythons = SHAPES[shape]
    asked = Axes(
        families=FAMILIES[:families],
        pythons=tuple(
            Interpreter(path=Path("p"), version=f"3.{n}", release="", platform="l") for n in range(pythons)
        ),
    )
    jobs = variants.expand(wanted, asked, root=folder)
    plans = []
    for path in trees.values():
        path.mkdir(parents=True)
    for one in jobs:
        request = job.resolve(one, None)
        for project in projects:
            request.tree_of(project).mkdir(parents=True, exist_ok=True)  # else its size is asked for
        steps = [
            BuildStep(
                request=request,
                project=project,
                checkout=request.checkouts[project.name],
                base_version=None,
                needs=dict.fromkeys(project.needs, ""),
                settings_digest="",
                key=f"{project.name} {one.variant}",
                private=False,
                hit=None,
            )
            for project in projects
        ]
        plans.append(tuple(steps))
    every = [step for plan in execution.labelled(plans, variants.labels(jobs)) for step in plan]
    graph = execution.graph_of(every, Durations())
    costs = {}
    for built in every:
        whole = RECORDED[built.project.name.rstrip("0123456789")].cost()
        target = built.request.targets != every[0].request.targets
        python = built.request.python != every[0].request.python
        part = {(0, 0): 1, (1, 0): OTHER_TARGETS, (0, 1): OTHER_PYTHON, (1, 1): OTHER_BOTH}[target, python]
        costs[built.name] = Cost(serial=whole.serial, parallel=whole.parallel * (part if cache else 1))
    steps = (dataclasses.replace(step, memory=0) for step in graph.steps)
    return Graph(tuple(steps)), costs


@pytest.mark.parametrize("shape", SHAPES)
def test_a_build_of_many_variants_is_within_three_percent_of_what_no_order_can_beat(
    tmp_path: Path, shape: tuple[int, int]
) -> None:
    graph, costs = graph_of(tmp_path, shape, cache=None)
    for workers in (1, 4, 16):
        found = simulated.makespan(simulated.run(graph, costs, Limits(cores=workers)))
        bound = simulated.bound(graph, costs, workers)
        assert bound <= found * 1.000001
        assert found <= 1.03 * bound, f"on {workers} cores"


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape[1] > 1])
def test_with_a_compiler_cache_no_variant_compiles_what_another_is_at_and_all_end_sooner(
    tmp_path: Path, shape: tuple[int, int]
) -> None:
    without, whole = graph_of(tmp_path / "without", shape, cache=None)
    graph, costs = graph_of(tmp_path / "with", shape, cache="ccache")
    for workers in (1, 4, 16):
        limits = Limits(cores=workers)
        spans = simulated.run(graph, costs, limits)
        for step in graph.steps:
            assert all(spans[name].end <= spans[step.name].start for name in step.after)
        # The first of each project has part of the time for itself, which is what the others save.
        assert simulated.makespan(spans) <= 1.2 * simulated.bound(graph, costs, workers)
        assert simulated.makespan(spans) <= 0.8 * simulated.makespan(simulated.run(without, whole, limits))


def test_variants_wait_for_those_that_compile_what_they_can_find(tmp_path: Path) -> None:
    graph, _ = graph_of(tmp_path, (3, 4), cache="ccache")
    after = {step.name: step.after for step in graph.steps if step.project == "torch1"}
    assert after == {
        "build torch1 [gfx942 3.0]": (),
        "build torch1 [gfx942 3.1]": ("build torch1 [gfx942 3.0]",),
        "build torch1 [gfx1100 3.0]": ("build torch1 [gfx942 3.0]",),
        "build torch1 [gfx1100 3.1]": ("build torch1 [gfx942 3.1]", "build torch1 [gfx1100 3.0]"),
    }
