"""Carries a plan out: projects that need nothing of each other are built side by side."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import graphlib
import math
import time
from collections.abc import Mapping
from pathlib import Path

from cairn import files, process
from cairn.build import build_project, cache
from cairn.build.model import BuildRequest, BuiltWheel
from cairn.build.plan import Plan, Step
from cairn.errors import UsageError, WheelError
from cairn.output import console
from cairn.wheels import wheelset as wheel_sets
from cairn.wheels.contents import binaries
from cairn.wheels.metadata import wheel_info


def run(plan: Plan) -> tuple[BuiltWheel, ...]:
    """Build what the cache does not have, and put every wheel into the output folder.

    A step that fails ends the programs of those under way, which start no others. The wheels that are done
    stay in the cache, so that the next run carries on.

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
                    request = _with_jobs(plan.request, side_by_side)
                    running[pool.submit(_one, waiting[name], request, dict(built))] = name
                done, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
                for future in done:
                    name = running.pop(future)
                    built[name] = future.result()
                    sorter.done(name)
        except BaseException:
            # The pool's exit would wait for compilers that nobody wants any more.
            group.end()
            raise
    return tuple(built[s.project.name] for s in plan.steps)


def _with_jobs(request: BuildRequest, side_by_side: int) -> BuildRequest:
    # Half as many again as a fair share: builds side by side seldom compile all the time, and the last one
    # cannot be given the share of those that are done.
    share = math.ceil(request.jobs * 1.5 / side_by_side)
    return dataclasses.replace(request, jobs=min(request.jobs, share))


def _one(current: Step, request: BuildRequest, built: Mapping[str, BuiltWheel]) -> BuiltWheel:
    started = time.time()
    cached = current.hit is not None
    if current.hit is not None:
        hit = current.hit
        console.current().kept(f"build {current.project.name}", "nothing changed, wheel taken from the cache")
    else:
        with console.current().stage(f"build {current.project.name}") as stage:
            hit = build_project.build(current, request, built, stage)
    return _delivered(current, request, hit, started=started, cached=cached)


def _delivered(
    current: Step, request: BuildRequest, hit: cache.Hit, *, started: float, cached: bool
) -> BuiltWheel:
    wheel = request.output_dir / hit.wheel.name
    _remove_others(wheel, current)
    if not (wheel.exists() and wheel.samefile(hit.wheel)):
        files.link_or_copy(hit.wheel, wheel)
    return BuiltWheel(
        project=current.project.name,
        wheel=wheel,
        sha256=hit.sha256,
        version=wheel_info.read(wheel).version,
        targets=binaries.targets_of(wheel),
        seconds=hit.seconds,
        started=started,
        ended=time.time(),
        cached=cached,
    )


def _remove_others(wheel: Path, current: Step) -> None:
    # An earlier wheel of the same project for the same Python would make the folder ambiguous for pip.
    name, _, rest = wheel.name.partition("-")
    tag = "-".join(rest.split("-")[-3:-1])
    others = [other for other in wheel.parent.glob(f"{name}-*-{tag}-*.whl") if other != wheel]
    ours = _made_before(wheel.parent) if others else {}
    for other in others:
        if ours.get(other.name) == files.sha256_of(other):
            console.current().info(f"  {other.name} is replaced by the new wheel of {current.project.name}")
            other.unlink()
        else:
            console.current().warn(f"{other} is no wheel of an earlier build here, and stays")


def _made_before(output_dir: Path) -> dict[str, str]:
    """The wheels of the last build that came to its end here, and their sha256."""
    try:
        made = wheel_sets.read(output_dir / "set.json").wheels
    except (UsageError, WheelError):
        return {}
    return {wheel.file_name: wheel.sha256 for wheel in made}
