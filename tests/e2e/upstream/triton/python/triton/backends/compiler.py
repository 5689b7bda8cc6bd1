"""What a kernel is compiled for."""

from typing import NamedTuple


class GPUTarget(NamedTuple):
    backend: str
    arch: object
    warp_size: int
