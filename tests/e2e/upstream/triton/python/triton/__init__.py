"""Names of triton's that torch imports where there is a triton; nothing is compiled."""

from triton import backends, compiler, language, runtime
from triton.runtime.autotuner import Config
from triton.runtime.jit import JITFunction, jit

__version__ = "3.5.0"
