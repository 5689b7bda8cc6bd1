"""Which machine tests a leg, and which leg has none."""

from __future__ import annotations

import msgspec
import pytest

from cairn.errors import PrerequisiteError
from cairn.pipeline.night.placing import Demand, Machine, demand_of, place
from cairn.pipeline.night.plan import NightRun
from cairn.stack import Sdk, Stack
from helpers.night import leg_of

LINUX = "linux_x86_64"
A, B = leg_of("gfx94X-dcgpu"), leg_of("gfx110X-all")


@pytest.fixture
def stack(run: NightRun) -> Stack:
    return msgspec.structs.replace(run.stack, sdk=Sdk())


def machine(platform: str = LINUX, **gpus: int) -> Machine:
    return Machine(name="one", platform=platform, cores=4, gpus=gpus)


def test_a_leg_is_tested_where_one_of_its_gpus_is(stack: Stack) -> None:
    legs, remarks = place((A, B), stack, (machine(), machine(gfx1101=1)))
    assert [(leg.test_runs_on, leg.multi_gpu_runs_on) for leg in legs] == [((), ()), (("gfx1101",), ())]
    assert [leg.ends for leg in legs] == ["untested", "tested"]
    assert [leg.host_runs_on for leg in legs] == [(LINUX,), ()]
    assert remarks == [f"{A.name} is tested without a GPU: no machine here has gfx942"]
    assert demand_of(legs[1], legs[1].test_runs_on) == Demand(platform=LINUX, gpu="gfx1101", gpus=1)


def test_a_target_that_more_machines_have_is_taken(stack: Stack) -> None:
    (leg,), _ = place((B,), stack, (machine(gfx1100=1), machine(gfx1101=1), machine(gfx1101=1)))
    assert leg.test_runs_on == ("gfx1101",)


def test_suites_of_several_gpus_need_them_in_one_machine(stack: Stack) -> None:
    (apart,), _ = place((A,), stack, (machine(gfx942=1), machine(gfx942=1)))
    assert apart.multi_gpu_runs_on == ()
    (together,), _ = place((A,), stack, (machine(gfx942=8),))
    assert demand_of(together, together.multi_gpu_runs_on).gpus == 2
    assert demand_of(together, together.test_runs_on).gpus == 1


def test_a_gpu_of_another_platform_is_none(stack: Stack) -> None:
    (leg,), _ = place((A,), stack, (machine(), machine("win_amd64", gfx942=1)))
    assert leg.test_runs_on == ()


def test_an_sdk_that_reaches_no_gpu_is_tested_anywhere(stack: Stack) -> None:
    without = msgspec.structs.replace(stack, sdk=Sdk(devices=False))
    (leg,), remarks = place((A,), without, (machine(),))
    assert (leg.test_runs_on, leg.multi_gpu_runs_on, remarks) == ((LINUX,), (), [])
    assert demand_of(leg, leg.test_runs_on) == Demand(platform=LINUX)


def test_legs_of_other_platforms_are_left_out_and_all_of_them_are_refused(stack: Stack) -> None:
    windows = leg_of("gfx110X-all", platform="win_amd64", id="w", name="the one for Windows")
    legs, remarks = place((A, windows), stack, (machine(),))
    assert [leg.id for leg in legs] == [A.id]
    assert "the one for Windows is left out: no machine here builds for win_amd64" in remarks
    with pytest.raises(PrerequisiteError, match="no leg is for that"):
        place((windows,), stack, (machine(),))


def test_a_demand_is_met_by_a_machine_with_all_of_it() -> None:
    assert Demand(platform=LINUX, gpu="gfx942", gpus=2).is_met_by(machine(gfx942=2))
    assert not Demand(platform=LINUX, gpu="gfx942", gpus=2).is_met_by(machine(gfx942=1))
    assert not Demand(platform=LINUX).is_met_by(machine("win_amd64"))
    assert Demand().is_met_by(machine("win_amd64"))
