"""What no mode is told of: generators, files, threads, functions with a backward of their own."""

from __future__ import annotations

import functools
import importlib
import itertools
import threading
import warnings
from typing import Any

import torch

from torchdevice import errors, interceptor, translation
from torchdevice.strict import legacy, mode, places, rules
from torchdevice.translation import GPUS, Function, RealDevice, RealGenerator

# Each module has a function of its name that computes a step.
_OPTIMIZERS = ("adadelta", "adagrad", "adam", "adamax", "asgd", "nadam", "radam", "rmsprop", "rprop", "sgd")
_ASKING = (
    "capturable",
    "fused",
    "differentiable",
)  # with which a step asks for devices, or is differentiated


class _OnGPU(torch.Generator):  # type: ignore[misc]
    """A generator of the CPU that says it is a GPU's."""

    device = RealDevice("cuda", 0)


class _Strict(threading.local):
    mode: mode.StrictMode | None = None
    default: Any = None  # what `torch.set_default_device` had said before


_here = _Strict()


def enter() -> None:
    """Put a mode over what this thread calls."""
    if _here.mode is None:
        _here.default = _default_device()
        _here.mode = mode.StrictMode(rules.table())
        _here.mode.__enter__()


def leave() -> None:
    """Take the mode of this thread away, wherever in the stack of modes it is."""
    ours, _here.mode = _here.mode, None
    above = []
    while ours is not None and torch._C._len_torch_function_stack():
        top = torch.overrides._pop_mode()
        if top is ours:
            break
        above.append(top)
    for other in reversed(above):
        torch.overrides._push_mode(other)
    if ours is not None and getattr(_default_device(), "type", "") in GPUS:
        torch.set_default_device(_here.default)  # or nothing could be made any more


def _default_device() -> Any:
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return getattr(context, "device", None)


def install(log: interceptor.UndoLog) -> None:
    """Patch what the mode does not see, and enter it in this thread."""
    log.replace(torch, "device", translation.stand_in_by(RealDevice, _device))
    log.replace(torch, "Generator", translation.stand_in_by(RealGenerator, _generator))
    log.replace(torch.nn.Module, "to", _module_to(torch.nn.Module.to))
    log.replace(torch.UntypedStorage, "cuda", _storage_cuda(torch.UntypedStorage.cuda))
    log.replace(torch.serialization, "location_tag", _location_tag(torch.serialization.location_tag))
    restore = torch.serialization.default_restore_location
    log.replace(torch.serialization, "default_restore_location", _restore_location(restore))
    bootstrap = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]
    log.replace(threading.Thread, "_bootstrap_inner", _in_thread(bootstrap))
    log.replace(torch.autograd.Function, "apply", classmethod(_apply(torch.autograd.Function.apply.__func__)))
    backward = torch.autograd.function.BackwardCFunction
    for name in ("apply", "apply_boxed"):
        if hasattr(backward, name):
            log.replace(backward, name, _backward(getattr(backward, name)))
    hooks = torch.autograd.graph.saved_tensors_hooks
    log.replace(hooks, "__init__", _saved_hooks(hooks.__init__))
    group = _group_by_device(torch._C._group_tensors_by_device_and_dtype)
    log.replace(torch._C, "_group_tensors_by_device_and_dtype", group)
    for name in _OPTIMIZERS:
        module = importlib.import_module(f"torch.optim.{name}")
        log.replace(module, name, _step(vars(module)[name]))
        optimizer = vars(module)[module.__all__[0]]
        log.replace(optimizer, "_init_group", _gathered(optimizer._init_group))
    log.replace(torch.overrides, "_pop_mode_temporarily", _Popped)
    for layer in (torch.nn.RNN, torch.nn.LSTM, torch.nn.GRU):  # they ask for many sizes
        log.replace(layer, "forward", _layer(layer.forward))
    for owner in (torch.optim.Optimizer, torch.nn.Module):
        log.replace(owner, "zero_grad", _unseen(owner.zero_grad))
    log.replace(torch.autograd, "_make_grads", _first_gradients(torch.autograd._make_grads))
    legacy.install(log)
    from_dlpack = _from_dlpack(torch.from_dlpack)
    for owner in (torch, torch.utils.dlpack):
        log.replace(owner, "from_dlpack", from_dlpack)
    log.replace(torch, "compile", _uncompiled)
    importlib.import_module("torch.export")
    log.replace(torch.export, "export", _exported(torch.export.export))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated, and torch uses it
        # Forward derivatives, which torch has TorchScript compile when the first is asked for.
        importlib.import_module("torch._decomp.decompositions_for_jvp")
    # As with PYTORCH_JIT=0: what TorchScript computes by itself says nothing about devices.
    log.replace(torch.jit._state._enabled, "enabled", False)
    enter()


class _Popped:
    """What torch makes of a generator for each call of a function in Python, which takes twice as long."""

    __slots__ = ("mode",)

    def __enter__(self) -> Any:
        self.mode = torch.overrides._pop_mode()
        return self.mode

    def __exit__(self, *_error: object) -> None:
        torch.overrides._push_mode(self.mode)


def _device(real: Any, *args: Any, **kwargs: Any) -> Any:
    if len(args) == 1 and translation.is_ordinal(args[0]):  # without a GPU, torch knows no ordinals
        return real("cuda", int(args[0]))
    return real(*args, **kwargs)


def _generator(real: Any, device: Any = "cpu") -> Any:
    place = places.logical(device)
    if place.type not in GPUS:
        return real(place)
    made = _OnGPU()
    made.device = place
    return made


def _module_to(original: Function) -> Function:
    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        # C++ reads the arguments.
        if args and translation.is_ordinal(args[0]):
            args = (RealDevice("cuda", int(args[0])), *args[1:])
        elif translation.is_ordinal(kwargs.get("device")):
            kwargs["device"] = RealDevice("cuda", int(kwargs["device"]))
        return original(self, *args, **kwargs)

    return wrapper


def _storage_cuda(original: Function) -> Function:
    @functools.wraps(original)
    def wrapper(self: Any, device: Any = None, non_blocking: bool = False) -> Any:
        del non_blocking
        made = self.clone()
        made.torchdevice = places.logical("cuda" if device is None else device)
        return made

    return wrapper


def _location_tag(original: Function) -> Function:
    """Files say "cuda:0", as those that are written on a GPU."""

    @functools.wraps(original)
    def wrapper(storage: Any) -> Any:
        kept = getattr(getattr(storage, "_untyped_storage", storage), places.KEPT, None)
        return original(storage) if kept is None or kept.type == "cpu" else str(kept)

    return wrapper


def _restore_location(original: Function) -> Function:
    @functools.wraps(original)
    def wrapper(storage: Any, location: Any) -> Any:
        text = str(location)
        if text.partition(":")[0] not in GPUS:
            return original(storage, location)
        restored = original(storage, "cpu")
        setattr(getattr(restored, "_untyped_storage", restored), places.KEPT, places.logical(text))
        return restored

    return wrapper


def _in_thread(original: Function) -> Function:
    @functools.wraps(original)
    def wrapper(self: Any) -> Any:
        enter()
        return original(self)

    return wrapper


def _from_dlpack(original: Function) -> Function:
    """Memory of a tensor is where the tensor is; a capsule does not say it."""

    @functools.wraps(original)
    def wrapper(ext_tensor: Any, *args: Any, **kwargs: Any) -> Any:
        with torch._C.DisableTorchFunction():
            result = original(ext_tensor, *args, **kwargs)
            if isinstance(ext_tensor, torch.Tensor):
                places.put_new(result, places.device_of(ext_tensor))
        return result

    return wrapper


def _apply(original: Function) -> Function:
    """`Function.apply`: its node of the graph remembers where the results are, and what they came from."""

    @functools.wraps(original)
    def wrapper(cls: Any, *args: Any, **kwargs: Any) -> Any:
        is_seen = torch._C._len_torch_function_stack()
        result = original(cls, *args, **kwargs)
        with torch._C.DisableTorchFunction():
            made = places.tensors(result)
            given = [places.device_of(arg) if isinstance(arg, torch.Tensor) else None for arg in args]
            # Inside an operator of `torch.library` nothing says where it is: where its tensors are.
            there = None if is_seen else next(filter(None, given), None)
            if there is not None:
                places.put_new(result, there)
            for tensor in made:
                if isinstance(tensor.grad_fn, torch.autograd.function.BackwardCFunction):
                    setattr(tensor.grad_fn, places.KEPT, ([places.device_of(other) for other in made], given))
        return result

    return wrapper


def _backward(original: Function) -> Function:
    """Gradients come from C++, which does not say where they are: where the results were."""

    @functools.wraps(original)
    def wrapper(self: Any, *gradients: Any) -> Any:
        found, given = getattr(self, places.KEPT, (None, []))
        if found is None:
            return original(self, *gradients)
        with torch._C.DisableTorchFunction():
            gradients = tuple(itertools.starmap(_where, zip(gradients, found, strict=False)))
        result = original(self, *gradients)
        # With no mode on, what backward makes does not say where it is.
        if torch._C._len_torch_function_stack():
            with torch._C.DisableTorchFunction():
                _check_returned(self.name(), result, given)
        return result

    return wrapper


def _saved_hooks(original: Function) -> Function:
    """Hooks that pack and unpack what backward needs: C++ calls them, in the middle of other calls."""

    @functools.wraps(original)
    def wrapper(self: Any, pack_hook: Function, unpack_hook: Function) -> None:
        original(self, _seen(pack_hook), _seen(unpack_hook))

    return wrapper


def _seen(hook: Function) -> Function:
    @functools.wraps(hook)
    def wrapper(value: Any) -> Any:
        ours = _here.mode
        if ours is None or ours in torch.overrides._get_current_function_mode_stack():
            return hook(value)
        with ours:
            return hook(value)

    return wrapper


def _where(gradient: Any, place: torch.device) -> Any:
    """A gradient on the device of its result; C++ may give one tensor for results on several."""
    places.put_new(gradient, place)
    if isinstance(gradient, torch.Tensor) and places.device_of(gradient) != place:
        gradient = gradient.clone()
        places.put_new(gradient, place)
    return gradient


def _check_returned(node: str, result: Any, given: list[torch.device | None]) -> None:
    returned = result if isinstance(result, tuple) else (result,)
    # Counted as C++ does: only what was given as a tensor.
    pairs = [(place, gradient) for place, gradient in zip(given, returned, strict=False) if place is not None]
    for index, (place, gradient) in enumerate(pairs):
        if isinstance(gradient, torch.Tensor) and gradient.dim():
            found = places.device_of(gradient)
            if found != place:
                raise errors.invalid_gradient(index, place, found, node)


def _group_by_device(original: Function) -> Function:
    """How optimizers and clipping take lists of tensors apart, so that each call has those of one device."""

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        made = {}
        with torch._C.DisableTorchFunction():
            for (_, dtype), (lists, indices) in original(*args, **kwargs).items():
                found = [places.device_of(tensor) for tensor in lists[0]]
                for place in dict.fromkeys(found):
                    at = [index for index, other in enumerate(found) if other == place]
                    parts = (
                        [values[index] for index in at] if values else values for values in (*lists, indices)
                    )
                    *of_place, order = parts
                    made[place, dtype] = (of_place, order)
        return made

    return wrapper


def _step(original: Function) -> Function:
    """A step of an optimizer: looked at once, as a whole, where all but its counts are on one device."""

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if _here.mode is None or any(map(kwargs.get, _ASKING)) or places.tensors(kwargs):
            return original(*args, **kwargs)
        with torch._C.DisableTorchFunction():
            found = places.tensors(args)
            there = places.device_of(found[0]) if found else places.CPU
            if all(parameter.dim() for parameter in args[0]) and places.all_at(there, found):
                original(*args, **kwargs)
                if len(places.tensors(args)) > len(found):  # as of the first step with momentum
                    places.put_new(args, there)
                return None
        return original(*args, **kwargs)

    return wrapper


def _layer(original: Function) -> Function:
    """A layer of torch's in Python: looked at once, as a whole, where all its tensors are on one device."""

    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        ours = _here.mode
        if ours is None or self._modules or torch.overrides._get_current_function_mode() is not ours:
            return original(self, *args, **kwargs)
        torch._C._pop_torch_function_stack()
        try:
            found = places.tensors((args, kwargs, list(self._parameters.values())))
            there = places.device_of(found[0]) if found else places.CPU
            if places.all_at(there, found):
                result = original(self, *args, **kwargs)
                places.put_new(result, there)
                return result
        finally:
            torch._C._push_on_torch_function_stack(ours)
        return original(self, *args, **kwargs)

    return wrapper


def _gathered(original: Function) -> Function:
    """What a step gathers of its parameters: none of it is looked at where nothing is made."""

    @functools.wraps(original)
    def wrapper(self: Any, group: Any, parameters: list[Any], gradients: list[Any], *args: Any) -> Any:
        if _here.mode is None or not all(map(self.state.get, group["params"])):
            return original(self, group, parameters, gradients, *args)
        with torch._C.DisableTorchFunction():
            result = original(self, group, parameters, gradients, *args)
            for parameter, gradient in zip(parameters, gradients, strict=True):
                places.put_new(gradient, places.device_of(parameter))
        return result

    return wrapper


def _unseen(original: Function) -> Function:
    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with torch._C.DisableTorchFunction():
            return original(*args, **kwargs)

    return wrapper


def _first_gradients(original: Function) -> Function:
    """The ones that backward begins with, where its results are."""

    @functools.wraps(original)
    def wrapper(outputs: Any, *args: Any, **kwargs: Any) -> Any:
        with torch._C.DisableTorchFunction():
            made = original(outputs, *args, **kwargs)
            for output, gradient in zip(outputs, made, strict=True):
                if isinstance(output, torch.Tensor):
                    places.put_new(gradient, places.device_of(output))
        return made

    return wrapper


def _exported(original: Function) -> Function:
    """`torch.export.export`, which asks C++ for devices: on the CPU, where all tensors are, with no mode on.

    What the program makes where its inputs are is then made on the CPU by the graph: that is set right.
    """

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with torch._C.DisableTorchFunction():
            made = original(*args, **kwargs)
            given = places.tensors([*made.state_dict.values(), args[1:], kwargs])
            there = next((place for place in map(places.device_of, given) if place.type in GPUS), places.CPU)
        for node in made.graph.nodes:
            if node.kwargs.get("device") == places.CPU:
                node.kwargs = {**node.kwargs, "device": there}
        return made

    return wrapper


def _uncompiled(model: Any = None, **kwargs: Any) -> Any:
    """`torch.compile`: the function itself. Compiled code would say nothing about devices."""
    if model is None:
        return functools.partial(_uncompiled, **kwargs)
    return model
