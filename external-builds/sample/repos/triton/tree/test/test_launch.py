"""Launches of one-dimensional kernels."""

import pytest

import triton


@pytest.mark.parametrize(
    ("count", "block", "expected"), [(0, 8, 0), (1, 8, 1), (8, 8, 1), (9, 8, 2), (2**40, 2**20, 2**20)]
)
def test_cdiv(count, block, expected):
    assert triton.cdiv(count, block) == expected


@pytest.mark.parametrize(("count", "block"), [(1, 0), (1, -8), (-1, 8)])
def test_cdiv_refuses(count, block):
    with pytest.raises(ValueError, match="cdiv needs"):
        triton.cdiv(count, block)


@pytest.mark.parametrize(("value", "expected"), [(1, 1), (2, 2), (3, 4), (1000, 1024), (2**62, 2**62)])
def test_next_power_of_2(value, expected):
    assert triton.next_power_of_2(value) == expected


@pytest.mark.parametrize("value", [0, -1, 2**62 + 1])
def test_next_power_of_2_refuses(value):
    with pytest.raises(ValueError, match="next_power_of_2 needs"):
        triton.next_power_of_2(value)


@pytest.mark.parametrize(
    ("target", "warp"), [("gfx90a", 64), ("gfx942", 64), ("gfx1030", 32), ("gfx1201", 32)]
)
def test_warps_follow_the_target(target, warp):
    launch = triton.launch_for(1000, target)
    assert (launch.grid, launch.block, launch.warp_size) == (4, 256, warp)
    assert launch.num_warps == 256 // warp


@pytest.mark.parametrize("target", ["", "gfx", "gfx94", "sm_90", "gfx9420"])
def test_unknown_target(target):
    with pytest.raises(ValueError, match="unknown target"):
        triton.launch_for(1, target)
