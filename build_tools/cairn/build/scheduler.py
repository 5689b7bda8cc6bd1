"""Carries a plan out: projects that need nothing of each other are built side by side.

Each is built as soon as the last project that it needs is done: graphlib says which are ready, and its own
thread waits for the build programs of each. Wheels from the cache are steps like others, which take no time.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import graphlib
import math
import time
from collections.abc import Mapping
from pathlib import Path

from cairn import files, process
from cairn.build import build_project
from cairn.build.model import BuildRequest, BuiltWheel
from cairn.build.plan import BuildStep, Plan
from cairn.errors import UsageError, WheelError
from cairn.output import console
from cairn.wheels import wheelset as wheel_sets
from cairn.wheels.contents import binaries
from cairn.wheels.metadata import wheel_info


def run(plan: Plan) -> tuple[BuiltWheel, ...]:
    """Build what the cache does not have, and put every wheel into the output folder.

    When a step fails, the programs of the running steps are ended and none is started. Finished wheels stay
    in the cache, so that the next run carries on.

    Raises:
        BuildError: a step failed; it has the log and its last lines.
        WheelError: a wheel was built but is not what was asked for.
    """
    plan.request.output_dir.mkdir(parents=True, exist_ok=True)
    built: dict[str, BuiltWheel] = {}
    waiting = {s.project.name: s for s in plan.steps}
    sorter = graphlib.TopologicalSorter({s.project.name: s.needs for s in plan.steps})
    sorter.prepare()
    group = process.Group()
    with concurrent.futures.ThreadPoolExecutor(thread_name_prefix="build", initializer=group.join) as pool:
        running: dict[concurrent.futures.Future[BuiltWheel], str] = {}
        try:
            while sorter.is_active():
                ready = sorter.get_ready()
                side_by_side = len(ready) + len(running)
                for name in ready:
                    # Half as many again as a fair share: builds side by side seldom compile all the time, and
                    # the last one cannot be given the share of those that are done.
                    share = math.ceil(plan.request.jobs * 1.5 / side_by_side)
                    request = dataclasses.replace(plan.request, jobs=min(plan.request.jobs, share))
                    running[pool.submit(_one, waiting[name], request, dict(built))] = name
                done, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
                for future in done:
                    name = running.pop(future)
                    built[name] = future.result()
                    sorter.done(name)
        except BaseException:
            # The pool's exit would wait for compilers whose output is of no use any more.
            group.end()
            raise
    return tuple(built[s.project.name] for s in plan.steps)


def _one(step: BuildStep, request: BuildRequest, built: Mapping[str, BuiltWheel]) -> BuiltWheel:
    """The wheel of one step, in the output folder: from the cache, else built now."""
    started, name = time.time(), f"build {step.project.name}"
    hit, counted = step.hit, None
    if hit is not None:
        which = "cache that machines share" if hit.origin == "shared" else "cache"
        console.current().kept(name, f"nothing changed, wheel taken from the {which}")
    else:
        with console.current().stage(name) as stage:
            hit, counted = build_project.build(step, request, built, stage)
        if counted is not None:
            console.current().info(f"  {step.project.name}: {counted}")
    wheel = request.output_dir / hit.wheel.name
    _remove_others(wheel, step)
    if not (wheel.exists() and wheel.samefile(hit.wheel)):
        files.link_or_copy(hit.wheel, wheel)
    return BuiltWheel(
        project=step.project.name,
        wheel=wheel,
        sha256=hit.sha256,
        version=wheel_info.read(wheel).version,
        targets=binaries.targets_of(wheel),
        seconds=hit.seconds,
        started=started,
        ended=time.time(),
        identity=hit.identity,
        cached=hit.origin != "built",
        origin=hit.origin,
        builder=hit.entry.builder,
        compiler_cache=counted,
    )


def _remove_others(wheel: Path, step: BuildStep) -> None:
    """Remove the wheels that earlier builds of a project for the same Python left in the output folder.

    `pip install --find-links` would choose among them. A file that is not known to be ours stays.
    """
    # {distribution}-{version}(-{build})?-{python}-{abi}-{platform}.whl (PEP 427)
    name, _, rest = wheel.name.partition("-")
    tag = "-".join(rest.split("-")[-3:-1])
    others = [other for other in wheel.parent.glob(f"{name}-*-{tag}-*.whl") if other != wheel]
    ours: dict[str, str] = {}
    if others:  # the wheels of the last build that came to its end here
        with contextlib.suppress(UsageError, WheelError):
            ours = {w.file_name: w.sha256 for w in wheel_sets.read(wheel.parent / "set.json").wheels}
    for other in others:
        if ours.get(other.name) == files.sha256_of(other):
            console.current().info(f"  {other.name} is replaced by the new wheel of {step.project.name}")
            other.unlink()
        else:
            console.current().warn(f"{other} is not a wheel of an earlier build here, and stays")
