"""Profilers: what runs on the CPU is recorded, and no GPU is asked for its times."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from torchdevice import translation
from torchdevice.translation import Function


def profile_init(original: Function) -> Function:
    """`torch.autograd.profiler.profile`, and `torch.profiler.profile`, which makes one."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        if translation.route() is not None:
            # Asked for CUDA's events, a build without them writes a page of warnings for each operation.
            bound = signature.bind(*args, **kwargs)
            if bound.arguments.get("use_cuda"):
                bound.arguments["use_cuda"] = False
            if bound.arguments.get("use_device") == "cuda":
                bound.arguments["use_device"] = None
                bound.arguments["use_cpu"] = (
                    True  # where only CUDA's were asked for, what it ran is the CPU's
                )
            args, kwargs = bound.args, bound.kwargs
        original(*args, **kwargs)

    return wrapper
