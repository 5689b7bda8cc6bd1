"""Contract: `triton` has the version that its environment variables gave it, and a compiled part."""

from triton._C.libtriton import cdiv
from triton._version import __version__
from triton.runtime import warp_size

__all__ = ["__version__", "cdiv", "warp_size"]
