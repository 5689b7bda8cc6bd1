"""torch in miniature: tensors of floats, computed by a C++ library and its device kernels."""

import importlib

# A build against the ROCm SDK packages generates `_rocm_init`, which loads the
# SDK's libraries before `_C` needs them. Other builds have no such module; any
# other missing module is a real fault and must be seen.
try:
    _rocm_init = importlib.import_module(f"{__name__}._rocm_init")
except ModuleNotFoundError as error:
    if error.name != f"{__name__}._rocm_init":
        raise
else:
    _rocm_init.initialize()
    del _rocm_init

from torch import cuda, testing, version
from torch._device import device
from torch._functions import add, full, matmul, mul, ones, relu, sum, tensor, zeros
from torch._tensor import Tensor
from torch.version import __version__

__all__ = [
    "Tensor",
    "__version__",
    "add",
    "cuda",
    "device",
    "full",
    "matmul",
    "mul",
    "ones",
    "relu",
    "sum",
    "tensor",
    "testing",
    "version",
    "zeros",
]
