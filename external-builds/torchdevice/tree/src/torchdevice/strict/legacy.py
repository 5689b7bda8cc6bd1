"""Old spellings under `strict`: `torch.cuda.FloatTensor` as a class, and `torch.set_default_tensor_type`."""

from __future__ import annotations

import functools
from typing import Any

import torch

from torchdevice import interceptor, translation
from torchdevice.strict import mixing, places
from torchdevice.translation import Function


class _TensorType(type):
    """The class of `torch.cuda.FloatTensor`: it makes tensors on the current GPU, and knows them again."""

    cpu: Any  # torch.FloatTensor

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if translation.route() is None:
            raise TypeError(f"type {cls.__module__}.{cls.__name__} not available")
        kwargs.pop("device", None)
        with torch._C.DisableTorchFunction():
            made = cls.cpu(*args, **kwargs).clone()  # also where it would have the memory of what is given
            places.put_new(made, places.logical("cuda"))
        return made

    def __instancecheck__(cls, instance: Any) -> bool:
        if not isinstance(instance, torch.Tensor):
            return False
        with torch._C.DisableTorchFunction():
            return mixing.type_name(instance) == f"{cls.__module__}.{cls.__name__}"

    @property
    def dtype(cls) -> Any:
        return cls.cpu.dtype


def install(log: interceptor.UndoLog) -> None:
    """Put classes that work in the place of those that a build without CUDA has."""
    for name, cpu in list(vars(torch).items()):
        if type(cpu).__name__ == "tensortype" and hasattr(torch.cuda, name):
            names = {"__module__": "torch.cuda", "__qualname__": name, "cpu": cpu, "is_cuda": True}
            log.replace(torch.cuda, name, _TensorType(name, (), names))
    log.replace(torch, "set_default_tensor_type", _set_default(torch.set_default_tensor_type))


def _set_default(original: Function) -> Function:
    """A type of a GPU's tensors is a dtype and a device."""

    @functools.wraps(original)
    def wrapper(t: Any, /) -> None:
        text = t if isinstance(t, str) else f"{t.__module__}.{t.__name__}"
        if translation.route() is None:
            original(t)
            return
        original(text.replace("torch.cuda.", "torch."))
        torch.set_default_device("cuda" if text.startswith("torch.cuda.") else None)

    return wrapper
