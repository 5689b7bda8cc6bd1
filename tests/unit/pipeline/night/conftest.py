"""A night of two families in memory, of which nothing is built yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairn.matrix.legs import Leg
from cairn.pipeline.night.plan import NightRun
from helpers.night import MakeNight, Night, leg_of, run_of


@pytest.fixture
def night_of(tmp_path: Path) -> MakeNight:
    def make(*legs: Leg) -> Night:
        return Night(run_of(*legs, folder=tmp_path), tmp_path / "artifacts")

    return make


@pytest.fixture
def night(night_of: MakeNight) -> Night:
    return night_of(leg_of("gfx94X-dcgpu"), leg_of("gfx110X-all"))


@pytest.fixture
def run(night: Night) -> NightRun:
    return night.run
