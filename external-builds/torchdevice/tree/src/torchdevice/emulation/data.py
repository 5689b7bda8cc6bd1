"""Tensors from files."""

from __future__ import annotations

import functools
from typing import Any

from torchdevice.translation import Function, translate


def restore_location(original: Function) -> Function:
    """Where the bytes of a storage go that `torch.load` reads: `map_location` leads here in every form."""

    @functools.wraps(original)
    def wrapper(storage: Any, location: Any) -> Any:
        return original(storage, translate(location))

    return wrapper
