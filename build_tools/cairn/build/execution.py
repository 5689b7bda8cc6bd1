"""Run plans: their steps become one graph, and the wheels that the cache lacks are built.

The engine (`cairn.build.engine`) decides what starts when. Here is what a step of a build is to it: which
tree it must be alone in, how many jobs and how much memory its compilers take, and what it does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import structs

from cairn import files, platforms
from cairn.build import device_packages, plan
from cairn.build.engine import events, schedule
from cairn.build.engine import run as engine
from cairn.build.engine.run import Running
from cairn.build.engine.schedule import Graph, Step
from cairn.build.inputs import leftovers
from cairn.build.model import BuildRequest, BuiltWheel
from cairn.build.plan import BuildStep, Plan
from cairn.errors import CairnError, UsageError, WheelError
from cairn.output import console
from cairn.sources.git import lock
from cairn.sources.git.repository import root_at
from cairn.sources.worktree import twin
from cairn.wheels import wheelset as wheel_sets
from cairn.wheels.contents import binaries
from cairn.wheels.metadata import wheel_info

_SPARE = 1.25  # of the memory that was measured for a compile job: the next file may be larger


def run(plan: Plan) -> tuple[BuiltWheel, ...]:
    """Run one plan; see `run_all`."""
    return run_all((plan,))[0]


def run_all(
    plans: Sequence[Plan],
    *,
    labels: Sequence[str] = (),
    output_dir: Path | None = None,
    on_whole: Callable[[int, tuple[BuiltWheel, ...]], None] = lambda _number, _wheels: None,
) -> tuple[tuple[BuiltWheel, ...], ...]:
    """Build the wheels that the cache lacks, and put every wheel into the output folder of its plan.

    Finished wheels stay in the cache, so that the next run carries on.

    Args:
        plans: one for each variant; the first says how they are run.
        labels: what tells the variants from each other, where there are several.
        output_dir: receives `events.jsonl`; None for the output folder of the first plan.
        on_whole: called at the end with the number and the wheels of each plan that has them all: one that
            failed does not hold the others back, and what it raises is reported with the failures of steps.

    Raises:
        BuildError: a step failed; it has the log and its last lines.
        WheelError: a wheel was built but is not what was asked for.
        ProblemsError: several steps failed.
        SystemFailureError: the disk is too small for what the steps have needed before.
        CredentialsError: those of the shared cache have expired: all is built, and not all of it there.
    """
    first = plans[0][0].request
    folder = output_dir or first.output_dir
    for place in (folder, *(of_plan[0].request.output_dir for of_plan in plans)):
        place.mkdir(parents=True, exist_ok=True)
    record = first.cache_dir.with_name("durations.json")
    plans = labelled(plans, labels)
    steps = [step for of_plan in plans for step in of_plan]
    graph = graph_of(steps, schedule.read_durations(record))
    resumed = _finished(folder / events.FILE_NAME) if first.run.resume else frozenset()
    _, free = platforms.here.memory() or (None, None)
    options = engine.Options(
        limits=schedule.Limits(cores=first.jobs, memory=first.run.max_memory or free),
        keep_going=first.run.keep_going,
        time_limit=first.run.time_limit,
        events=folder / events.FILE_NAME,
        durations=record,
        logs={step.name: log_of(step.request.output_dir, step.project.name) for step in steps},
        place=first.cache_dir.parent,
    )
    run = _Run(trees=set(), built={}, resumed=resumed, digests=graph.digests)
    work = {step.name: functools.partial(_build, step, run) for step in steps}
    outcome = engine.run(graph, work, options)
    names = [[step.name for step in of_plan] for of_plan in plans]
    failures = dict(outcome.failures)
    for number, names_of_plan in enumerate(names):
        if all(name in outcome.results for name in names_of_plan):
            try:
                on_whole(number, tuple(outcome.results[name] for name in names_of_plan))
            except CairnError as error:
                failures[str(error)] = error  # beside those of steps; once, where plans share its cause
    dataclasses.replace(outcome, failures=failures).require()
    shared = first.wheel_cache.shared
    if shared is not None and shared.expired is not None:
        raise shared.expired
    return tuple(tuple(outcome.results[name] for name in names_of_plan) for names_of_plan in names)


def log_of(output_dir: Path, project: str) -> Path:
    """Return the path of the log of a project's last build."""
    return output_dir / "logs" / f"{project}.log"


def labelled(plans: Sequence[Plan], labels: Sequence[str] = ()) -> tuple[Plan, ...]:
    """Return plans whose steps have names that are unique in the whole run."""
    return tuple(
        tuple(structs.replace(step, label=label) for step in of_plan)
        for of_plan, label in zip(plans, labels or [""] * len(plans), strict=True)
    )


def _compiled_by(step: BuildStep, steps: Sequence[BuildStep]) -> tuple[str, ...]:
    """Return the steps that should come first because they fill the compiler cache for this one.

    Variants of a project that run side by side would all compile the same, since none finds what the others
    are still at. So each waits for the first of its Python, which compiles what knows no target, and for the
    first of its targets, which compiles what knows no Python. The others of a family run side by side.
    """
    request = step.request
    if request.compiler_cache is None or step.hit is not None:
        return ()
    same = [
        sibling
        for sibling in steps
        if (sibling.project, sibling.checkout) == (step.project, step.checkout) and sibling.hit is None
    ]
    firsts = (
        next(sibling for sibling in same if sibling.request.python == request.python),
        next(sibling for sibling in same if sibling.request.targets == request.targets),
    )
    return tuple(dict.fromkeys(first.name for first in firsts if first is not step))


def graph_of(steps: Sequence[BuildStep], durations: schedule.Durations) -> Graph:
    """Make the engine's graph of steps.

    Args:
        steps: all of a run.
        durations: what steps took before.
    """
    size_of = functools.cache(twin.size_of)  # variants have copies of the same checkouts
    made = []
    for step in steps:
        request, name = step.request, step.project.name
        tree = request.tree_of(step.project)
        copied = 0 if step.hit is not None or tree.exists() else size_of(step.checkout)
        measured = durations.memory("build", name)
        # A build that goes on with what the last one left has most of its files already.
        left = 0 if "start" in step.inputs else durations.disk("build", name)
        made.append(
            Step(
                name=step.name,
                kind="build",
                project=name,
                needs=tuple(map(step.name_for, step.needs)),
                after=_compiled_by(step, steps),
                inputs={"key": step.key},
                cores=request.jobs,
                memory=schedule.MEMORY_PER_JOB if measured is None else int(measured * _SPARE),
                disk=0 if step.hit else max(left, copied),
                seconds=0.0 if step.hit else None,
                # A build writes into its tree.
                exclusive=(f"tree:{tree.resolve()}",),
            )
        )
    return Graph(tuple(made))


class _Run(msgspec.Struct, frozen=True, kw_only=True):
    """The state that the steps of a run share.

    Attributes:
        trees: those in which one of them has built.
        built: wheels by the names of their steps.
        resumed: digests of steps that an earlier run has finished, and that need not be done again.
        digests: of all steps.
    """

    trees: set[Path]
    built: dict[str, BuiltWheel]
    resumed: frozenset[str]
    digests: Mapping[str, str]


def _build(planned: BuildStep, run: _Run, running: Running) -> BuiltWheel:
    """Put the wheel of one step into the output folder, from the cache or built now."""
    started, request = time.time(), planned.request
    step = _as_it_is_now(planned, run)
    built = {project: run.built[planned.name_for(project)] for project in planned.needs}
    hit, counted, edited = step.hit, None, False
    if hit is None and run.digests[planned.name] in run.resumed:
        check = plan.check_of(step.project, request)
        hit = request.wheel_cache.get(step.key, check=check, private=step.private)
    if hit is not None:
        which = "cache that machines share" if hit.origin == "shared" else "cache"
        running.keep(f"nothing changed, wheel taken from the {which}")
    else:
        from cairn.build import build_project  # noqa: PLC0415 - see `cairn.build.job`

        run.trees.add(step.checkout)
        try:
            with console.current().stage(planned.name) as stage:
                hit, counted, edited = build_project.build(step, request, built, stage, running=running)
            if counted is not None:
                console.current().info(f"  {step.project.name}: {counted}")
                running.note(structs.replace(counted, step=planned.name))
        finally:
            _fold(planned.name, running)
    parts: tuple[Path, ...] = (request.output_dir / hit.wheel.name,)
    if device_packages.is_split(step.project, request):
        parts = device_packages.parts_of(hit.wheel, hit.entry.sha256, step.project, request)
    elif not (parts[0].exists() and parts[0].samefile(hit.wheel)):
        files.link_or_copy(hit.wheel, parts[0])
    _remove_others(parts, step, request)
    built_wheel = BuiltWheel(
        project=step.project.name,
        wheel=parts[0],
        devices=parts[1:],
        whole=hit.wheel,
        sha256=hit.entry.sha256 if not parts[1:] else files.sha256_of(parts[0]),
        version=wheel_info.read(hit.wheel).version,
        targets=binaries.targets_of(hit.wheel),
        seconds=hit.entry.seconds,
        started=started,
        ended=time.time(),
        first_key=hit.entry.first_key,
        cached=hit.origin != "built",
        origin=hit.origin,
        builder=hit.entry.builder,
        compiler_cache=counted,
        edited=edited,
    )
    run.built[planned.name] = built_wheel
    return built_wheel


def _as_it_is_now(step: BuildStep, run: _Run) -> BuildStep:
    """Return the step as planned, or planned again if this run has changed its inputs."""
    request = step.request
    needs = {project: run.built[step.name_for(project)].first_key for project in step.needs}
    if needs != step.needs or step.checkout in run.trees:
        step = structs.replace(plan.step_of(request, step.project, needs=needs), label=step.label)
    if step.hit is not None or (tree := request.tree_of(step.project)) == step.checkout:
        return step
    copying = contextlib.nullcontext() if tree.exists() else console.current().stage(f"copy {step.checkout}")
    waiting = functools.partial(console.current().info, f"waiting for a run that uses {step.checkout}")
    with copying, lock.hold(step.checkout, on_wait=waiting), lock.hold(tree):
        left = leftovers.movable(root_at(step.checkout), step.project.source_dirs)
        twin.follow(step.checkout, tree, without=left)
    return plan.step_of(request, step.project, needs=needs, checkout=tree)


def _fold(name: str, running: Running) -> None:
    """Copy the whole log of a step into the CI log, where that can fold it."""
    if running.log is None or console.current().verbose:
        return
    with contextlib.suppress(OSError), running.log.open(encoding="utf-8", errors="replace") as lines:
        console.current().fold(f"log of {name}", lines)


def _finished(path: Path) -> frozenset[str]:
    """Return the digests of the steps that the last run finished; empty if it was completed."""
    last = events.last_run(path)
    if not last or any(isinstance(e, events.RunEnded) and e.ending == "done" for e in last):
        return frozenset()
    return frozenset(
        e.digest for e in last if isinstance(e, events.StepEnded) and e.ending in ("done", "kept")
    )


def _remove_others(parts: Sequence[Path], step: BuildStep, request: BuildRequest) -> None:
    """Remove the wheels that earlier builds of a project for the same Python left in the output folder.

    `pip install --find-links` would choose among them. A file that is not known to be ours stays.
    """
    # {distribution}-{version}(-{build})?-{python}-{abi}-{platform}.whl (PEP 427)
    folder = parts[0].parent
    name, _, rest = parts[0].name.partition("-")
    tag = "-".join(rest.split("-")[-3:-1])
    device = device_packages.file_prefix(name, request)
    beside = (*folder.glob(f"{name}-*-{tag}-*.whl"), *folder.glob(f"{device}gfx*-{tag}-*.whl"))
    others = [sibling for sibling in beside if sibling not in parts]
    ours: dict[str, str] = {}
    if others:  # the wheels of the last build that came to its end here
        with contextlib.suppress(UsageError, WheelError):
            ours = {w.file_name: w.sha256 for w in wheel_sets.read(folder / "set.json").wheels}
    for sibling in others:
        if ours.get(sibling.name) == files.sha256_of(sibling):
            console.current().info(f"  {sibling.name} is replaced by the new wheel of {step.project.name}")
            sibling.unlink()
        else:
            console.current().warn(f"{sibling} is not a wheel of an earlier build here, and stays")
