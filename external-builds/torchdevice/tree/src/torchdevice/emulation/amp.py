"""Automatic mixed precision under the name of another device."""

from __future__ import annotations

import functools
from typing import Any

import torch

from torchdevice import translation
from torchdevice.emulation import precision
from torchdevice.translation import Function, translate


def autocast_init(original: Function) -> Function:
    """`torch.autocast(…)`, and `torch.cuda.amp.autocast(…)`, which calls it."""

    @functools.wraps(original)
    def wrapper(
        self: Any,
        device_type: str,
        dtype: torch.dtype | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        target = translate(device_type)
        if dtype is None and target != device_type:
            dtype = torch.float16  # CUDA's default; the CPU's is bfloat16
        original(self, target, dtype, enabled, cache_enabled)

    return precision.uncompiled(wrapper)


def _first_device_type(original: Function) -> Function:
    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], str):
            args = (translate(args[0]), *args[1:])
        elif "device_type" in kwargs:
            kwargs["device_type"] = translate(kwargs["device_type"])
        elif translation.route() is not None:
            # Without a device type, torch means CUDA: is_autocast_enabled(), set_autocast_enabled(True).
            args = (translate("cuda"), *args)
        return original(*args, **kwargs)

    return wrapper


is_autocast_enabled = set_autocast_enabled = get_autocast_dtype = set_autocast_dtype = _first_device_type


def get_autocast_gpu_dtype(original: Function) -> Function:
    """The dtype of CUDA's autocast: of the device's that computes."""
    return _without_gpu(original, torch.get_autocast_dtype)


def set_autocast_gpu_dtype(original: Function) -> Function:
    """As `get_autocast_gpu_dtype`."""
    return _without_gpu(original, torch.set_autocast_dtype)


def _without_gpu(original: Function, general: Function) -> Function:
    @functools.wraps(original)
    def wrapper(*args: Any) -> Any:
        return original(*args) if translation.route() is None else general(translate("cuda"), *args)

    return wrapper
