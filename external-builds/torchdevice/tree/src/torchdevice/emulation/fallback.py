"""Operations that a GPU has in half precision and the CPU has not: computed in single, and rounded.

Each is counted, and the log names it once. PyTorch's own data on which device supports which dtype, OpInfo,
says which they are. For what MPS lacks, torch has a fallback of its own: PYTORCH_ENABLE_MPS_FALLBACK=1.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

import torch
from torch.utils import _pytree

from torchdevice import monitoring, translation
from torchdevice.translation import Function

_log = logging.getLogger("torchdevice")
_WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.complex32: torch.complex64}
_NARROWER = {torch.float32: torch.float16, torch.complex64: torch.complex32}


def widened(original: Function) -> Function:
    """A function that may lack a kernel for the dtype of its tensors."""
    name = getattr(original, "__name__", "")

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except (RuntimeError, NotImplementedError):
            narrow = _narrow(args, kwargs)
            if translation.route() is None or narrow is None:
                raise
            if monitoring.fell_back(f"{name} in {narrow}"):
                _log.warning("torchdevice: %s lacks %s here; computed in float32 and rounded", name, narrow)
            wide = _pytree.tree_map(lambda value: _cast(value, _WIDER), (args, kwargs))
            narrower = {**_NARROWER, torch.float32: narrow}
            return _pytree.tree_map(lambda value: _cast(value, narrower), original(*wide[0], **wide[1]))

    return wrapper


def _narrow(args: Any, kwargs: Any) -> torch.dtype | None:
    leaves = _pytree.tree_leaves((args, kwargs))
    found = {leaf.dtype for leaf in leaves if isinstance(leaf, torch.Tensor)} & _WIDER.keys()
    return next(iter(found - {torch.complex32}), torch.float16 if found else None)


def _cast(value: Any, dtypes: dict[torch.dtype, torch.dtype]) -> Any:
    return value.to(dtypes.get(value.dtype, value.dtype)) if isinstance(value, torch.Tensor) else value
