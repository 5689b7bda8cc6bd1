"""Reference results of triton's launches."""

import pytest
import triton


@pytest.mark.parametrize(("target", "warp"), [("gfx942", 64), ("gfx1100", 32)])
def test_a_launch_covers_all_items(target: str, warp: int) -> None:
    launch = triton.launch_for(1_000_001, target, block=200)
    assert (launch.grid, launch.block, launch.warp_size) == (3907, 256, warp)
