"""How a kernel over many items is launched on a target."""

from __future__ import annotations

from dataclasses import dataclass

from triton._C import libtriton


@dataclass(frozen=True)
class Launch:
    """A one-dimensional launch: `grid` blocks of `block` threads, in warps of `warp_size`."""

    grid: int
    block: int
    warp_size: int

    @property
    def num_warps(self) -> int:
        return libtriton.cdiv(self.block, self.warp_size)


def launch_for(count: int, target: str, block: int = 256) -> Launch:
    """The launch that covers `count` items on `target`, such as gfx942.

    Raises ValueError for an unknown target, or a count or block that makes no sense.
    """
    warp = libtriton.warp_size(target)
    size = max(warp, libtriton.next_power_of_2(block))
    return Launch(grid=libtriton.cdiv(count, size), block=size, warp_size=warp)
