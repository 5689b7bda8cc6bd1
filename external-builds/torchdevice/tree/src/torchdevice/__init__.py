"""Runs PyTorch code that says "cuda" on the device there is.

    import torchdevice
    torchdevice.enable()        # disable() puts everything back

On a machine with CUDA or ROCm nothing is changed. `python -m torchdevice SCRIPT` does it for a program as it
is, and `pytest --torchdevice` for a test suite. What becomes of each function stands in `matrix.toml`.
"""

from torchdevice.errors import RefusedError
from torchdevice.redirect import disable, enable, redirected, status
from torchdevice.router import Route

__all__ = ["RefusedError", "Route", "disable", "enable", "redirected", "status"]
