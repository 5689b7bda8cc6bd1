"""The mode that sees every call of torch's functions and methods in a thread."""

from __future__ import annotations

import builtins
import types
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _device

from torchdevice import errors, translation
from torchdevice.strict import mixing, places
from torchdevice.translation import GPUS, Function

# What they make of an array has the array's memory.
_SHARING = (torch.as_tensor, torch.asarray)

# Their functions in Python compute as one where all tensors are on one device, and ask nothing of it; but for
# one, of which `backward` returns what was made on the way.
_AS_ONE = frozenset(("torch.functional", "torch.nn.functional"))
_IN_PARTS = "linear_cross_entropy"

Rule = Any  # called with the mode, the function, its arguments and its keywords
PASSED = "has nothing to do with devices, and is called often or tells of none"  # instead of a rule


class StrictMode(TorchFunctionMode):  # type: ignore[misc]
    """Answers for the devices of tensors.

    Attributes:
        rules: what is neither made nor computed from its arguments, by torch's function (see `rules`).
    """

    def __init__(self, rules: dict[Any, Rule]) -> None:
        super().__init__()
        self.rules = rules
        self._constructors = _device._device_constructors()
        self._inside: list[Any] = []

    def __torch_function__(
        self, func: Any, types_: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        for kind in types_:
            if not issubclass(kind, torch.Tensor):  # what is like a tensor answers by itself, and is seen to
                with self:
                    answer = kind.__torch_function__(func, types_, args, kwargs or {})
                return func(*args, **(kwargs or {})) if answer is NotImplemented else answer
        rule = self.rules.get(func)
        if rule is PASSED or not translation.is_strict():  # disabled by another thread
            return func(*args, **kwargs) if kwargs else func(*args)
        kwargs = kwargs or {}
        if rule is not None:
            return rule(self, func, args, kwargs)
        if func in self._constructors:
            return self._make(func, args, kwargs)
        return self.compute(func, args, kwargs)

    def _make(self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        asked = kwargs.get("device")
        if asked is not None:
            device = places.logical(asked)
        else:
            # `torch.tensor` and `torch.as_tensor` of a tensor stay where it is.
            source = args[0] if args and isinstance(args[0], torch.Tensor) else None
            device = places.default() if source is None else places.device_of(source)
        check_generator(kwargs.get("generator"), device)
        pinned = kwargs.get("pin_memory")
        if "pin_memory" in kwargs:
            kwargs = unpinned(kwargs, device)
        # Said for the CPU, too: `torch.set_default_device` is a mode below this one.
        result = func(*args, **{**kwargs, "device": places.physical(device)})
        sources = places.tensors(args[:1])
        if sources:
            shared = any(_shares(result, source) for source in sources)
            if shared and places.device_of(result) != device:
                result = result.clone()
        elif func in _SHARING and device.type in GPUS:  # an array's memory is the CPU's
            result = result.detach().clone().requires_grad_(result.requires_grad)
        places.put_new(result, device)
        if pinned:
            setattr(result.untyped_storage(), places.PINNED, True)
        return result

    def compute(self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A function that computes: on the one device of its tensors, or an error."""
        in_python = type(func) is types.FunctionType and not (self._inside and self._inside[-1] is func)
        if in_python and (func.__module__ not in _AS_ONE or func.__name__ == _IN_PARTS):
            return self.body(func, args, kwargs)
        found = places.tensors(args)
        if kwargs:
            found += places.tensors(kwargs)
        device, mixed = places.common(found)
        if in_python and (mixed or device is None):
            return self.body(func, args, kwargs)
        if kwargs:
            device, kwargs = _asked(device, kwargs)
            if "pin_memory" in kwargs:
                return self._make(func, args, {**kwargs, "device": device})
        if mixed:
            return mixing.run(func, args, kwargs)
        result = func(*args, **kwargs)
        if device is not None and not (found and result is found[0]):  # as of what computes in place
            places.put_new(result, device)
        return result

    def body(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A function of torch's in Python: what it calls is seen, one call after another."""
        self._inside.append(func)
        torch._C._push_on_torch_function_stack(self)
        try:
            return without_question(func)(*args, **kwargs)
        finally:
            torch._C._pop_torch_function_stack()
            self._inside.pop()


def _asked(device: torch.device | None, kwargs: dict[str, Any]) -> tuple[torch.device | None, dict[str, Any]]:
    """The device that keywords ask for, and the keywords as torch is to be given them."""
    if kwargs.get("device") is not None:
        device = places.logical(kwargs["device"])
        kwargs = {**kwargs, "device": places.physical(device)}
    if "generator" in kwargs:
        check_generator(kwargs["generator"], device)
    return device, kwargs


class _Unasked(dict[str, Any]):
    """The globals of a function, except that nobody overrides it."""

    def __init__(self, real: dict[str, Any], names: tuple[str, ...]) -> None:
        super().__init__(dict.fromkeys(_QUESTIONS, _no), __builtins__=real["__builtins__"])
        # Or each `isinstance` would be looked for in vain first, by an exception.
        self.update((n, getattr(builtins, n)) for n in names if n not in real and hasattr(builtins, n))
        self._real = real

    def __missing__(self, name: str) -> Any:
        return self._real[name]


_QUESTIONS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
_bodies: dict[Any, Any] = {}


def _no(*_args: Any) -> bool:
    return False


def without_question(func: types.FunctionType) -> Any:
    """A function of torch as it is after the line that asks whether a mode or a subclass answers for it.

    That line would call the mode, again and again; and with the mode off, what the function calls would go
    unseen.
    """
    found = _bodies.get(func)
    if found is None:
        code = func.__code__
        globals_ = _Unasked(func.__globals__, code.co_names)
        made = types.FunctionType(code, globals_, func.__name__, func.__defaults__, func.__closure__)
        made.__kwdefaults__ = func.__kwdefaults__
        found = _bodies[func] = made
    return found


def unpinned(kwargs: dict[str, Any], device: torch.device | None) -> dict[str, Any]:
    """The keywords of a factory without pinning: memory that no GPU copies from is not pinned.

    Raises:
        RuntimeError: memory of a GPU was to be pinned.
    """
    if kwargs["pin_memory"] and device is not None and device.type in GPUS:
        raise errors.not_pinnable()
    return {**kwargs, "pin_memory": False}


def check_generator(generator: Any, device: torch.device | None) -> None:
    """Raise PyTorch's error for a generator of another kind of device."""
    if generator is not None and device is not None and generator.device.type != device.type:
        raise errors.wrong_generator(device, generator.device)


def _shares(one: Any, other: torch.Tensor) -> bool:
    return isinstance(one, torch.Tensor) and places._storage(one) is places._storage(other) is not None
