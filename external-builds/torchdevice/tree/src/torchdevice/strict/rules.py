"""What the mode answers by itself: where tensors are, moves, what leaves torch, gradients.

`RULES` names the functions; everything else is made or computed (see `mode`).
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from torchdevice import errors
from torchdevice.strict import mixing, places
from torchdevice.strict.mode import PASSED, StrictMode
from torchdevice.translation import GPUS, Function, RealDevice

Arguments = tuple[Any, ...]
Keywords = dict[str, Any]
_NO_DEVICE = (torch.Tensor, torch.dtype)  # what else `x.to` takes first


def device(_mode: StrictMode, _func: Function, args: Arguments, _kwargs: Keywords) -> torch.device:
    """`x.device`."""
    return places.device_of(args[0])


def _is(kind: str) -> Function:
    """`x.is_cuda`, and the same of others."""
    return lambda _mode, _func, args, _kwargs: places.device_of(args[0]).type == kind


def get_device(_mode: StrictMode, func: Function, args: Arguments, _kwargs: Keywords) -> Any:
    """`x.get_device()`: the ordinal, or -1."""
    index = places.device_of(args[0]).index
    return func(*args) if index is None else index


def type_(mode: StrictMode, func: Function, args: Arguments, kwargs: Keywords) -> Any:
    """`x.type()`, and `x.type("torch.cuda.FloatTensor")`, which moves."""
    tensor, *rest = args
    asked = rest[0] if rest else kwargs.get("dtype")
    if asked is None:
        return mixing.type_name(tensor)
    if isinstance(asked, type):  # torch.FloatTensor, and torch.cuda.FloatTensor
        asked = f"{asked.__module__}.{asked.__name__}"
    if not isinstance(asked, str):
        return mode.compute(func, args, kwargs)
    there = RealDevice("cuda") if asked.startswith("torch.cuda.") else places.CPU
    converted = func(tensor, asked.replace("torch.cuda.", "torch."))
    places.put_new(converted, places.device_of(tensor))
    return _moved(torch.Tensor.to, converted, places.logical(there))


def to(mode: StrictMode, func: Function, args: Arguments, kwargs: Keywords) -> Any:
    """`x.to(…)`, whose first argument may be a device, a dtype or a tensor."""
    tensor, *rest = args
    asked = None
    if rest and not isinstance(rest[0], _NO_DEVICE):
        asked = rest.pop(0)
    elif kwargs.get("device") is not None:
        kwargs = dict(kwargs)
        asked = kwargs.pop("device")
    if rest and isinstance(rest[0], torch.Tensor):
        there = places.device_of(rest[0])
        rest[0] = rest[0].dtype
    elif asked is None:
        return mode.compute(func, args, kwargs)
    else:
        there = places.logical(asked)
    return _moved(func, tensor, there, *rest, **kwargs)


def cuda(_mode: StrictMode, _func: Function, args: Arguments, kwargs: Keywords) -> Any:
    """`x.cuda(device, non_blocking)`."""
    tensor, *rest = args
    asked = rest[0] if rest else kwargs.get("device")
    there = places.logical("cuda" if asked is None else asked)
    if there.type != "cuda":
        raise errors.not_cuda()
    more = {"memory_format": kwargs["memory_format"]} if "memory_format" in kwargs else {}
    return _moved(torch.Tensor.to, tensor, there, **more)


def cpu(_mode: StrictMode, _func: Function, args: Arguments, kwargs: Keywords) -> Any:
    """`x.cpu()`."""
    return _moved(torch.Tensor.to, args[0], places.CPU, **kwargs)


def type_as(_mode: StrictMode, _func: Function, args: Arguments, kwargs: Keywords) -> Any:
    """`x.type_as(other)`, which moves."""
    other = args[1] if len(args) > 1 else kwargs["other"]
    return _moved(torch.Tensor.to, args[0], places.device_of(other), other.dtype)


def new_tensor(_mode: StrictMode, func: Function, args: Arguments, kwargs: Keywords) -> Any:
    """`x.new_tensor(data)`: where `x` is, also where the data is a tensor on another device."""
    asked = kwargs.get("device")
    there = places.device_of(args[0]) if asked is None else places.logical(asked)
    result = func(*args, **{**kwargs, "device": places.physical(there)})
    places.put_new(result, there)
    return result


def parse_to(_mode: StrictMode, func: Function, args: Arguments, kwargs: Keywords) -> Any:
    """How `Module.to(…)` reads its arguments: a device, a dtype or a tensor."""
    found = func(*args, **kwargs)
    other = args[0] if args else kwargs.get("tensor")
    return (places.device_of(other), *found[1:]) if isinstance(other, torch.Tensor) else found


def _moved(to_: Function, tensor: torch.Tensor, there: torch.device, *rest: Any, **kwargs: Any) -> Any:
    """A move, which copies where the devices differ; what it makes new is on the device asked for."""
    if places.device_of(tensor) != there and tensor.device == places.physical(there):
        if len(rest) > 2:  # dtype, non_blocking, copy
            rest = (*rest[:2], True, *rest[3:])
        else:
            kwargs["copy"] = True
        result = to_(tensor, places.physical(there), *rest, **kwargs)
        if result.grad_fn is not None:
            result.grad_fn.register_hook(_moved_back)
    else:
        result = to_(tensor, places.physical(there), *rest, **kwargs)
    places.put_new(result, there)
    return result


def _moved_back(gradients: tuple[Any, ...], _given: tuple[Any, ...]) -> tuple[Any, ...]:
    """A move copies on its way back, too: C++ would hand on the gradient's memory, and where that is."""
    with torch._C.DisableTorchFunction():
        return tuple(None if gradient is None else gradient.clone() for gradient in gradients)


def numpy(_mode: StrictMode, func: Function, args: Arguments, kwargs: Keywords) -> Any:
    """`x.numpy()`."""
    place = places.device_of(args[0])
    if place.type in GPUS:
        if not kwargs.get("force"):
            raise errors.not_numpy(place)
        return func(args[0].detach().clone(), **kwargs)
    return func(*args, **kwargs)


def pin_memory(_mode: StrictMode, func: Function, args: Arguments, _kwargs: Keywords) -> Any:
    """`x.pin_memory()`: a copy, unless it is pinned."""
    del func
    if places.device_of(args[0]).type in GPUS:
        raise errors.not_pinned(mixing.type_name(args[0]))
    if _is_pinned(args[0]):
        return args[0]
    copied = args[0].clone()
    setattr(copied.untyped_storage(), places.PINNED, True)
    return copied


def is_pinned(_mode: StrictMode, _func: Function, args: Arguments, _kwargs: Keywords) -> bool:
    """`x.is_pinned()`."""
    return _is_pinned(args[0])


def _is_pinned(tensor: torch.Tensor) -> bool:
    return bool(getattr(places._storage(tensor), places.PINNED, False))


def grad(_mode: StrictMode, func: Function, args: Arguments, _kwargs: Keywords) -> Any:
    """`x.grad`: backward makes memory in C++, which does not say where it is."""
    found = func(*args)
    if found is not None:
        places.put_new(found, places.device_of(args[0]))
    return found


def set_grad(_mode: StrictMode, func: Function, args: Arguments, _kwargs: Keywords) -> Any:
    """`x.grad = …`."""
    tensor, gradient = args
    if gradient is not None and places.device_of(gradient) != places.device_of(tensor):
        raise errors.gradient_elsewhere(places.device_of(gradient), places.device_of(tensor))
    return func(tensor, gradient)


def _check_gradients(results: Any, given: Any) -> None:
    """Gradients of results are where the results are; a number may be elsewhere."""
    results, given = ([v] if isinstance(v, torch.Tensor) else list(v or ()) for v in (results, given))
    for index, (result, gradient) in enumerate(zip(results, given, strict=False)):
        if isinstance(result, torch.Tensor) and isinstance(gradient, torch.Tensor) and gradient.dim():
            expected, found = places.device_of(result), places.device_of(gradient)
            if expected != found:
                raise errors.invalid_gradient(index, expected, found)


def backward(mode: StrictMode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """`torch.autograd.backward`, which `x.backward()` calls."""
    _check_gradients(args[0], args[1] if len(args) > 1 else kwargs.get("grad_tensors"))
    return mode.body(func, args, kwargs)


def gradients(mode: StrictMode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """`torch.autograd.grad`: each gradient is where its input is."""
    outputs = args[0] if args else kwargs["outputs"]
    _check_gradients(outputs, args[2] if len(args) > 2 else kwargs.get("grad_outputs"))
    result = mode.body(func, args, kwargs)
    inputs = args[1] if len(args) > 1 else kwargs["inputs"]
    inputs = (inputs,) if isinstance(inputs, torch.Tensor) else inputs
    for gradient, tensor in zip(result, inputs, strict=False):
        if gradient is not None:
            places.put_new(gradient, places.device_of(tensor))
    return result


def register_hook(mode: StrictMode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """`x.register_hook(hook)`: the gradient that a hook is given is where its tensor is."""
    tensor, hook = args[0], args[1] if len(args) > 1 else kwargs["hook"]
    place = places.device_of(tensor)

    @functools.wraps(hook)
    def told(gradient: torch.Tensor) -> Any:
        with torch._C.DisableTorchFunction():
            places.put_new(gradient, place)
            before = mixing.type_in_cpp(gradient)
        given = hook(gradient)
        with torch._C.DisableTorchFunction():
            if isinstance(given, torch.Tensor) and places.device_of(given).type != place.type:
                raise errors.hook_moved(hook.__name__, before, mixing.type_in_cpp(given))
        return given

    return mode.body(func, (tensor, told), {})


def deepcopy(_mode: StrictMode, func: Function, args: Arguments, _kwargs: Keywords) -> Any:
    """`copy.deepcopy(x)`, which copies the memory by itself."""
    result = func(*args)
    place = places.device_of(args[0])
    places.put_new(result, place)
    if isinstance(result, torch.Tensor) and result.grad is not None:
        places.put_new(result.grad, place)
    return result


def pack_padded_sequence(_mode: StrictMode, func: Function, args: Arguments, kwargs: Keywords) -> Any:
    """Lengths are on the CPU, always."""
    lengths = places.device_of(args[1])
    if lengths.type in GPUS:
        raise errors.lengths_on_gpu(lengths, args[1].type().split(".")[-1].removesuffix("Tensor"))
    result = func(*args, **kwargs)
    places.put_new(result[0], places.device_of(args[0]))  # the sizes of batches stay on the CPU
    return result


def pad_packed_sequence(_mode: StrictMode, func: Function, args: Arguments, kwargs: Keywords) -> Any:
    """Lengths are on the CPU, always."""
    result = func(*args, **kwargs)
    places.put_new(result[0], places.device_of(args[0]))
    return result


def ctc_loss(_mode: StrictMode, func: Function, args: Arguments, kwargs: Keywords) -> Any:
    """Targets and lengths may be anywhere: they are sent to where they are needed."""
    result = func(*args, **kwargs)
    places.put_new(result, places.device_of(args[0]))
    return result


def tensor_split(_mode: StrictMode, func: Function, args: Arguments, kwargs: Keywords) -> Any:
    """Sections and indices are on the CPU, always."""
    sections = args[1] if len(args) > 1 else kwargs.get("tensor_indices_or_sections")
    if isinstance(sections, torch.Tensor) and places.device_of(sections).type in GPUS:
        raise errors.sections_on_gpu(places.device_of(sections))
    return func(*args, **kwargs)


def table() -> dict[Any, Any]:
    """The rules, by torch's functions as a mode is told of them."""
    tensor = torch.Tensor
    found = {
        tensor.device.__get__: device,
        **{getattr(tensor, f"is_{kind}").__get__: _is(kind) for kind in ("cuda", "cpu", "xpu", "mps")},
        tensor.get_device: get_device,
        tensor.type: type_,
        tensor.to: to,
        tensor.cuda: cuda,
        tensor.cpu: cpu,
        tensor.numpy: numpy,
        tensor.type_as: type_as,
        tensor.new_tensor: new_tensor,
        torch._C._nn._parse_to: parse_to,
        tensor.pin_memory: pin_memory,
        tensor.is_pinned: is_pinned,
        tensor.grad.__get__: grad,
        tensor.grad.__set__: set_grad,
        torch.autograd.backward: backward,
        torch.autograd.grad: gradients,
        tensor.register_hook: register_hook,
        tensor.__deepcopy__: deepcopy,
        torch._C._VariableFunctions._pack_padded_sequence: pack_padded_sequence,
        torch._C._VariableFunctions._pad_packed_sequence: pad_packed_sequence,
        torch.ctc_loss: ctc_loss,
        torch.tensor_split: tensor_split,
        tensor.tensor_split: tensor_split,
        tensor.copy_: PASSED,
        torch.get_device: get_device,
    }
    for name in ("shape", "dtype", "layout", "requires_grad", "is_leaf", "ndim", "grad_fn", "is_sparse"):
        found[getattr(tensor, name).__get__] = PASSED
    for name in (
        *("size", "dim", "stride", "numel", "is_contiguous", "item", "tolist", "untyped_storage", "data_ptr"),
        *("storage_offset", "element_size", "is_floating_point", "is_complex"),
    ):
        found[getattr(tensor, name)] = PASSED
    asked = (torch.is_complex, torch.is_floating_point, torch.numel, torch._C._set_grad_enabled)
    profiled = torch.ops.profiler  # what each step of an optimizer tells the profiler
    noted = (profiled._record_function_enter_new, profiled._record_function_exit._RecordFunction)
    return found | dict.fromkeys((*asked, *noted), PASSED)
