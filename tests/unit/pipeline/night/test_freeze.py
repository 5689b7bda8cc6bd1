"""A night begins with something to build, of one line, and goes on with what it began with."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from cairn.errors import StoreError, UsageError
from cairn.pipeline.night import plan
from cairn.pipeline.night.freeze import FreezeRequest, freeze
from cairn.pipeline.night.plan import NightRun
from helpers.night import leg_of, plan_of


@pytest.fixture
def request_(run: NightRun, tmp_path: Path) -> FreezeRequest:
    return FreezeRequest(
        night="8",
        stack=run.stack,
        legs=run.plan.legs,
        work_dir=tmp_path / "work",
        release="release",
        like="7",
    )


def test_the_manifest_of_an_earlier_night_is_taken_again(run: NightRun, request_: FreezeRequest) -> None:
    made = freeze(run.store, request_)
    assert made.manifest_sha256 == run.plan.manifest_sha256
    assert plan.read(run.store, "8") == plan.read(run.store, "latest") == made
    assert plan.read(run.store, "latest", line="main") == made
    with pytest.raises(StoreError, match="has no night of nightly"):
        plan.read(run.store, "latest", line="nightly")


def test_a_night_that_is_there_goes_on_with_what_it_began_with(
    run: NightRun, request_: FreezeRequest
) -> None:
    again = dataclasses.replace(request_, night="7", legs=(leg_of("gfx110X-all"),))
    assert freeze(run.store, again) == run.plan


def test_a_dry_run_begins_nothing(run: NightRun, request_: FreezeRequest) -> None:
    freeze(run.store, request_, dry_run=True)
    assert plan.find(run.store, "8") is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"legs": ()}, "the matrix is empty"),
        ({"legs": (leg_of("gfx94X-dcgpu"), leg_of("gfx94X-dcgpu"))}, "a leg twice"),
        ({"legs": (leg_of("gfx94X-dcgpu", line="nightly"),)}, "is of the line nightly"),
        ({"legs": (leg_of("gfx94X-dcgpu", python="3.12"),)}, "and not for 3.12"),
        ({"night": "../7"}, "cannot name a night"),
        ({"night": "7", "release": "nightly"}, "from staging to release, and not of"),
        ({"release": "nightyl"}, "'nightyl' is not a channel"),
        ({"image": "ghcr.io/me/build:latest"}, "another one tomorrow"),
    ],
)
def test_what_cannot_become_a_night_is_refused(
    run: NightRun, request_: FreezeRequest, changes: dict[str, object], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        freeze(run.store, dataclasses.replace(request_, **changes))  # type: ignore[arg-type]
    assert plan.find(run.store, "8") is None


def test_two_plans_are_never_one_night(run: NightRun) -> None:
    with pytest.raises(StoreError, match="has different bytes"):
        plan.create(run.store, plan_of(leg_of("gfx110X-all")), plan.manifest_of(run.store, run.plan))
