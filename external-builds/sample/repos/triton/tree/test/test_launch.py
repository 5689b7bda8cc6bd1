"""Contract: a suite that runs from a copy against the installed wheel."""

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


def test_warps_follow_the_target():
    assert [triton.warp_size(target) for target in ("gfx90a", "gfx942", "gfx1030", "gfx1201")] == [64, 64, 32, 32]
    with pytest.raises(ValueError, match="unknown target"):
        triton.warp_size("sm_90")
