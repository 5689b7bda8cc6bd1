"""A night of two families in memory, and what its build jobs leave in a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from cairn.matrix.legs import Leg
from cairn.pipeline.night import plan
from cairn.pipeline.night.plan import NightPlan, NightRun
from cairn.release.index.generation import now
from cairn.release.index.snapshot import read_set
from cairn.sources.manifest.manifest import Manifest
from cairn.store.memory import MemoryStore
from cairn.wheels.wheelset import WheelSet
from helpers.gate import stack_of
from helpers.release import make_set, make_wheel, projects_of

Build = Callable[..., WheelSet]
"""Leaves what the build job of a leg uploads; gives the set that it says its wheels form."""

TARGETS = {"gfx94X-dcgpu": "gfx942", "gfx110X-all": "gfx1100,gfx1101"}


def leg_of(family: str, **changes: object) -> Leg:
    values: dict[str, object] = {
        "id": f"main-{family}-py3.11-linux_x86_64",
        "name": f"main {family} Python 3.11 linux_x86_64",
        "stack": "external-builds/sample",
        "line": "main",
        "family": family,
        "targets": TARGETS.get(family, family),
        "python": "3.11",
        "platform": "linux_x86_64",
        "os": "linux",
        "trigger": "nightly",
        "build_runs_on": ("ubuntu-24.04",),
        "test_runs_on": ("linux-gpu",),
        "multi_gpu_runs_on": (),
        "expect_failure": False,
        "bypass_tests": False,
        "push_on_success": True,
    }
    return Leg(**(values | changes))  # type: ignore[arg-type]


FROZEN = Manifest(
    stack="sample",
    line="main",
    projects=projects_of("torch", "torchvision", "vision"),
    targets=("gfx942", "gfx1100", "gfx1101"),
    pythons=("3.11",),
    platform="linux_x86_64",
)


def plan_of(*legs: Leg, night: str = "7") -> NightPlan:
    return NightPlan(
        night=night,
        stack="sample",
        line="main",
        frozen=now(),
        manifest_sha256=FROZEN.digest(),
        staging="staging",
        release="release",
        legs=legs,
    )


SUITE = """schema = "cairn.suite/1"
project = "torch"
tests = "test"
version_module = "torch/version.py"
version_file = "version.txt"
configs.default = { shards = 2, floor = 3, groups = [{ modules = ["test_*"] }] }
configs.distributed = { gpus = "all", groups = [{ modules = ["test_*"] }] }
"""


def run_of(*legs: Leg, folder: Path) -> NightRun:
    made = make_set([make_wheel(folder / "stack", "torch", "2.9.0")])
    (folder / "stack" / "suite.toml").write_text(SUITE)
    store, night = MemoryStore(), plan_of(*legs)
    plan.create(store, night, FROZEN)
    stack = msgspec.structs.replace(stack_of(made), folder=str(folder / "stack"))
    return NightRun(store=store, plan=night, stack=stack)


def staged(run: NightRun, set_id: str) -> WheelSet:
    return read_set(run.store, set_id)
