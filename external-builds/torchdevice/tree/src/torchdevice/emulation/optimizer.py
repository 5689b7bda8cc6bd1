"""The performance optimizer: what only costs where no GPU copies and nothing runs beside the program.

Pinned memory, the thread of a DataLoader that pins, and what orders the streams that use a tensor are left
out. A move to where a tensor is already stays torch's to answer: to ask in Python first took longer (2.0
times torch's own call, against 1.7).
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

import torch  # noqa: F401 - TorchScript compiles torch's own functions by the globals of their wrappers

from torchdevice import translation
from torchdevice.translation import Function


def loader_init(original: Function) -> Function:
    """`DataLoader(…)` without pinning, and so without a thread for it."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        if translation.route() is not None:
            bound = signature.bind(*args, **kwargs)
            for name, off in (("pin_memory", False), ("pin_memory_device", "")):
                if name in bound.arguments:
                    bound.arguments[name] = off
            args, kwargs = bound.args, bound.kwargs
        original(*args, **kwargs)

    return wrapper


def capturable(original: Function) -> Function:
    """The devices whose optimizers keep everything in tensors, which `capturable=True` asks for."""

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> list[str]:
        found: list[str] = original(*args, **kwargs)
        return found if translation.route() is None else [*found, translation.translate("cuda")]

    return wrapper


def pin_memory(self: Any, device: Any = None) -> Any:
    del device
    return self


def is_pinned(self: Any, device: Any = None) -> bool:
    del self, device
    return False


def record_stream(self: Any, stream: Any) -> None:
    """Memory is used in program order."""
    del self, stream
