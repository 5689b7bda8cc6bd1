"""Starts kernels."""

from triton.runtime import autotuner, cache, jit
