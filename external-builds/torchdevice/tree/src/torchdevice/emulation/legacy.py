"""Old spellings: tensor types as classes and as text, and annotations for TorchScript."""

from __future__ import annotations

import functools
from typing import Any

import torch

from torchdevice import translation
from torchdevice.translation import Function, RealDevice, RealGenerator


def _on_cpu(kind: Any) -> Any:
    if isinstance(kind, str) and translation.route() is not None:
        return kind.replace("torch.cuda.", "torch.")
    return kind


def first_type(original: Function) -> Function:
    """`torch.set_default_tensor_type("torch.cuda.FloatTensor")`."""

    @functools.wraps(original)
    def wrapper(t: Any) -> Any:
        return original(_on_cpu(t))

    return wrapper


def method_type(original: Function) -> Function:
    """`x.type("torch.cuda.FloatTensor")`."""

    @functools.wraps(original)
    def wrapper(self: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        return original(self, _on_cpu(dtype), *args, **kwargs)

    return wrapper


def tensor_type(original: type) -> type:
    """`torch.cuda.FloatTensor`: the CPU's."""
    named: type = getattr(torch, original.__name__)
    return named


storage_type = tensor_type


def as_it_is(original: Function) -> Function:
    """Python code of torch that calls what is translated."""
    return original


def annotation(original: Function) -> Function:
    """A parameter annotated `torch.device` before torchdevice was enabled: TorchScript asks by identity."""

    @functools.wraps(original)
    def wrapper(ann: Any, *args: Any, **kwargs: Any) -> Any:
        if ann is RealDevice:
            ann = torch.device
        elif ann is RealGenerator:
            ann = torch.Generator
        return original(ann, *args, **kwargs)

    return wrapper
