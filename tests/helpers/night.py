"""A night of two families in memory, and what its build jobs leave in a folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from cairn.matrix.legs import Leg
from cairn.pipeline.night import plan, stage, standing
from cairn.pipeline.night.build import set_folder
from cairn.pipeline.night.plan import NightPlan, NightRun
from cairn.pipeline.night.stage import StagedLeg
from cairn.release import records
from cairn.release.index.generation import now
from cairn.release.index.snapshot import read_set
from cairn.sources.manifest.manifest import Manifest
from cairn.store.memory import MemoryStore
from cairn.store.protocol import Store
from cairn.wheels import wheelset
from cairn.wheels.wheelset import WheelSet
from helpers.gate import data_of, record_of, stack_of
from helpers.release import contents, make_set, make_wheel, projects_of, statement_of

TARGETS = {"gfx94X-dcgpu": "gfx942", "gfx110X-all": "gfx1100,gfx1101"}


PYTHON = "3.99"
"""A version that no machine has: the gate then tries no installation, which takes two seconds."""


def leg_of(family: str, **changes: object) -> Leg:
    values: dict[str, object] = {
        "id": f"main-{family}-py{PYTHON}-linux_x86_64",
        "name": f"main {family} Python {PYTHON} linux_x86_64",
        "stack": "external-builds/sample",
        "line": "main",
        "family": family,
        "targets": TARGETS.get(family, family),
        "python": PYTHON,
        "platform": "linux_x86_64",
        "os": "linux",
        "trigger": "nightly",
        "build_runs_on": ("ubuntu-24.04",),
        "test_runs_on": ("linux-gpu",),
        "multi_gpu_runs_on": (),
        "expect_failure": False,
        "bypass_tests": False,
        "push_on_success": True,
        "host_runs_on": () if changes.get("test_runs_on", True) else ("ubuntu-24.04",),
    }
    return Leg(**(values | changes))  # type: ignore[arg-type]


FROZEN = Manifest(
    stack="sample",
    line="main",
    projects=projects_of("torch", "torchvision", "vision"),
    targets=("gfx942", "gfx1100", "gfx1101"),
    pythons=(PYTHON,),
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


# Not a shipped suite: its floor is three tests, which results that a test writes can reach.
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


_STAGED: dict[tuple[tuple[Leg, ...], tuple[int, ...]], tuple[str, dict[str, bytes]]] = {}
"""By a night's legs and the numbers of those built: the id of the last set, and what staging has written."""


def _besides_nights(store: Store) -> dict[str, bytes]:
    return {key: data for key, data in contents(store).items() if not key.startswith("nights/")}


@dataclass(frozen=True)
class Night:
    """A night, whose builds lie in a folder as their jobs have left them."""

    run: NightRun
    artifacts: Path

    def leg(self, number: int = 0) -> Leg:
        return self.run.plan.legs[number]

    def artifact(self, leg: int = 0, attempt: int = 1) -> Path:
        """Where the build job of a leg leaves what it uploads."""
        return self.artifacts / stage.artifact_name(self.leg(leg).build_id, attempt)

    def build(
        self, number: int = 0, *, content: str | None = None, folder: Path | None = None, **changes: Any
    ) -> WheelSet:
        """What the build job of a leg uploads; the set that it says its wheels form, with `changes`."""
        leg, folder = self.leg(number), folder or self.artifact(number)
        wheels = [make_wheel(folder, "torch", "2.9.0", content=content)]
        folder = set_folder(folder, leg)
        folder.mkdir(exist_ok=True)
        made = make_set(wheels, family=leg.family, targets=plan.targets_of(leg), python=leg.python)
        made = msgspec.structs.replace(made, manifest_sha256=FROZEN.digest())
        (folder / "builder.json").write_bytes(statement_of(made, wheels, FROZEN.canonical()))
        made = msgspec.structs.replace(made, **changes)
        wheelset.write(folder / "set.json", made)
        return made

    def stage(self) -> tuple[StagedLeg, ...]:
        return stage.stage_night(self.run, self.artifacts)

    def built_and_staged(self, *numbers: int) -> WheelSet:
        """Build legs, the first where none is named, and stage them; the staged set of the last.

        An empty store gets what staging the same has written before: uv resolves what a set needs, for long.
        """
        store, numbers = self.run.store, numbers or (0,)
        legs = self.run.plan.legs
        empty = not _besides_nights(store)
        if empty and (legs, numbers) in _STAGED:
            set_id, content = _STAGED[legs, numbers]
            for key, data in content.items():
                store.write(key, data)
            return staged(self.run, set_id)
        for number in numbers:
            self.build(number, content=self.leg(number).family)
        made = staged(self.run, str(self.stage()[numbers[-1]].set_id))
        if empty:
            _STAGED[legs, numbers] = made.id, _besides_nights(store)
        return made

    def tested_on_host(self, *numbers: int) -> WheelSet:
        """Build and stage legs, and give the record of tests without a GPU of each; the set of the last."""
        made = self.built_and_staged(*numbers)
        for number in numbers or (0,):
            leg = self.leg(number)
            entry = plan.set_of(self.run.index(leg, self.run.plan.staging), self.run.plan, leg)
            assert entry is not None
            self.record(staged(self.run, entry.set_id), **HOST)
        return made

    def record(self, made: WheelSet, **changes: Any) -> None:
        """Give a record of a set to the store."""
        records.add(self.run.store, data_of(record_of(made, **changes)))

    def standing(self, leg: int = 0) -> standing.Standing:
        return standing.look(self.run, self.leg(leg))


HOST = {"verdict": "untested", "reason": "none on a GPU"}
"""A record of tests that passed without a GPU."""

MakeNight = Callable[..., Night]
"""The night of some legs, in a folder of the test."""
