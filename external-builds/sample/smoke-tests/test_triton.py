"""Reference results of triton's functions."""

import triton


def test_a_launch_covers_all_items() -> None:
    assert triton.cdiv(1_000_001, 256) == 3907
    assert (triton.warp_size("gfx942"), triton.warp_size("gfx1100")) == (64, 32)
