"""A night of two families in memory, whose builds lie in a folder as their jobs have left them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from cairn.matrix.legs import Leg
from cairn.pipeline.night import plan, stage
from cairn.pipeline.night.plan import NightRun
from cairn.wheels import wheelset
from cairn.wheels.wheelset import WheelSet
from helpers.night import FROZEN, Build, leg_of, run_of
from helpers.release import make_set, make_wheel, statement_of


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """What the build job of a leg uploads; the set that it says its wheels form."""

    def one(
        leg: Leg, *, attempt: int = 1, content: str | None = None, name: str = "", **changes: object
    ) -> WheelSet:
        folder = tmp_path / "artifacts" / (name or stage.artifact_name(leg, attempt))
        wheels = [make_wheel(folder, "torch", "2.9.0", content=content)]
        made = make_set(wheels, family=leg.family, targets=plan.targets_of(leg))
        made = msgspec.structs.replace(made, manifest_sha256=FROZEN.digest())
        (folder / "builder.json").write_bytes(statement_of(made, wheels, FROZEN.canonical()))
        made = msgspec.structs.replace(made, **changes)
        wheelset.write(folder / "set.json", made)
        return made

    return one


@pytest.fixture
def run(tmp_path: Path) -> NightRun:
    """A night of both families, of which nothing is built yet."""
    return run_of(leg_of("gfx94X-dcgpu"), leg_of("gfx110X-all"), folder=tmp_path)
