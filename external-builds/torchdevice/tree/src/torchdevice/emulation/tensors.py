"""Tensors that are sent to a device."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import torch
from torch.nn.parameter import UninitializedTensorMixin

from torchdevice import translation
from torchdevice.router import Route
from torchdevice.translation import Argument, Function, RealDevice, translate

_NO_DEVICES = (torch.dtype, torch.Tensor)


def to(original: Function) -> Function:
    """`Tensor.to`, whose first argument may be a device, a dtype or a tensor."""

    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args and not isinstance(args[0], _NO_DEVICES):
            return original(self, translate(args[0]), *args[1:], **kwargs)
        if "device" in kwargs:
            kwargs["device"] = translate(kwargs["device"])
        return original(self, *args, **kwargs)

    return wrapper


def module_to(original: Function) -> Function:
    """`Module.to` reads its arguments in C++, which knows no ordinals without a GPU."""
    return to(original)


def cuda(original: Function) -> Function:
    """`Tensor.cuda`: a move to where "cuda" leads."""

    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        if translation.route() is None:
            return original(self, *args, **kwargs)
        device, *rest = args or (kwargs.pop("device", None),)
        return self.to("cuda" if device is None else device, *rest, **kwargs)

    return wrapper


def packed_cuda(original: Function) -> Function:
    """`PackedSequence.cuda`, which asks whether its data is on a GPU once it has been sent there."""

    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        if translation.route() is None:
            return original(self, *args, **kwargs)
        device, *rest = args or (kwargs.pop("device", None),)
        return self.to("cuda" if device is None else device, *rest, **kwargs)

    return wrapper


def storage_cuda(original: Function) -> Function:
    """A storage's `cuda`: itself, where it is on the CPU already."""

    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        target = translate(args[0] if args else kwargs.get("device", "cuda"))
        if target is None:
            target = translate("cuda")
        if RealDevice(target).type == "cuda":
            return original(self, *args, **kwargs)
        return self if self.device.type == target else self.to(device=RealDevice(target))

    return wrapper


def keyword_device(original: Function) -> Function:
    """A function of C++ without a schema that takes `device` as a keyword."""
    return translation.wrap(original, (Argument(name="device"),))


class _Unwrapping(list[Any]):
    """A list of functions in which one of ours counts as the one that it replaces."""

    def __contains__(self, function: object) -> bool:
        return super().__contains__(inspect.unwrap(function) if callable(function) else function)


def _allowed_methods(_route: Route) -> list[Any]:
    """What may be asked of parameters that have no shape yet, as of LazyLinear: to be sent somewhere."""
    return _Unwrapping(UninitializedTensorMixin._allowed_methods)
