"""Data loaders, and tensors from files."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from torchdevice import translation
from torchdevice.translation import Function, translate


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


def restore_location(original: Function) -> Function:
    """Where the bytes of a storage go that `torch.load` reads: `map_location` leads here in every form."""

    @functools.wraps(original)
    def wrapper(storage: Any, location: Any) -> Any:
        return original(storage, translate(location))

    return wrapper
