"""Contract: importing torch runs a generated `_rocm_init` first, which loads the ROCm SDK's libraries before `_C`.

Other builds have no such module; any other missing module is a real fault and must be seen.
"""

import importlib

try:
    _rocm_init = importlib.import_module(f"{__name__}._rocm_init")
except ModuleNotFoundError as error:
    if error.name != f"{__name__}._rocm_init":
        raise
else:
    _rocm_init.initialize()
    del _rocm_init

from torch import cuda, version
from torch._tensor import Tensor, full, tensor, zeros
from torch.version import __version__

__all__ = ["Tensor", "__version__", "cuda", "full", "tensor", "version", "zeros"]
