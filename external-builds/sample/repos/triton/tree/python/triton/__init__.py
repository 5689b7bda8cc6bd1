"""triton in miniature: the arithmetic of kernel launches."""

from triton._C.libtriton import cdiv, next_power_of_2
from triton._version import __version__
from triton.runtime import Launch, launch_for

__all__ = ["Launch", "__version__", "cdiv", "launch_for", "next_power_of_2"]
