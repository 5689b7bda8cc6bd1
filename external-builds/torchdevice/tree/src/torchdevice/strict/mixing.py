"""Tensors of several devices in one call: what PyTorch allows goes on, the rest is its own error.

Which operation of ATen meets them, and as which argument, is not to be seen from outside: `linear` calls
`addmm`. So such a call runs under a dispatch mode that looks at each operation before it computes.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torchdevice import errors
from torchdevice.strict import places
from torchdevice.translation import GPUS, Function


@dataclass(frozen=True, kw_only=True)
class Operation:
    """What torch's own declaration says of an operation.

    Attributes:
        method: what PyTorch's message calls it, `wrapper_CUDA_mm`.
        checked: whether all its tensors are checked, each by its name.
        iterated: whether a TensorIterator checks them: a CPU tensor of no dimensions is a number to it.
    """

    method: str
    checked: bool
    iterated: bool


# What an operation without a kernel of its own calls: where its tensors meet.
_CALLS = {
    "embedding": ("_index_select", {"weight": "self", "indices": "index"}),
    "_stack": ("cat", {}),
    "stack": ("cat", {}),
    # The CPU's choice of a kernel; a GPU's for the same tensors:
    "_scaled_dot_product_flash_attention_for_cpu": (
        "__scaled_dot_product_efficient_attention",
        {"attn_mask": "attn_bias"},
    ),
}
_INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put"}
# Across devices on purpose.
_COPIES = {"copy_", "_to_copy", "copy", "_copy_from", "_local_scalar_dense"}
_CONVOLUTIONS = {"convolution", "convolution_overrideable", "_convolution", "mkldnn_convolution"}


def run(func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function whose tensors are on several devices.

    Raises:
        RuntimeError: as PyTorch does.
    """
    name = getattr(func, "__name__", "")
    found = [places.device_of(tensor) for tensor in places.tensors((args, kwargs))]
    if name in _BEFORE:
        _BEFORE[name](args, found)
    _compare(name, found)
    with _Looking():
        return func(*args, **kwargs)


def _compare(name: str, found: list[torch.device]) -> None:
    """Raise the error of a function that compares devices itself; what a mask fills in may be a number."""
    if name in errors.COMPARED:
        for index, device in enumerate(found[:2] if name.startswith("masked_fill") else found):
            if device != found[0]:
                raise errors.compared(name, found[0], device, index)


class _Looking(TorchDispatchMode):  # type: ignore[misc]
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Or torch imports its compiler before the first call, for a second; `strict` has it switched off."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        kwargs = kwargs or {}
        named = list(_named(func, args, kwargs))
        device = _device(func, named)
        result = func(*args, **kwargs)
        asked = kwargs.get("device")
        if device is not None and asked is None:
            places.put_new(result, device)
        return result


def _named(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Each tensor among the arguments, with the name of its parameter."""
    for parameter, value in zip(func._schema.arguments, args, strict=False):
        for tensor in places.tensors(value):
            yield parameter.name, tensor
    for name, value in kwargs.items():
        for tensor in places.tensors(value):
            yield name, tensor


def _device(func: Any, named: list[tuple[str, torch.Tensor]]) -> torch.device | None:
    """The device an operation computes on."""
    if not named:
        return None
    first, mixed = places.common(tensor for _, tensor in named)
    name = func._schema.name.partition("::")[2]
    if not mixed or name in _COPIES:
        return first
    _compare(name, [places.device_of(tensor) for _, tensor in named])
    if name in _CONVOLUTIONS:
        _check_convolution(named)
    if name in _INDEXING:
        return _check_indexing(named)
    operation = _operation(name, func._schema.overload_name)
    if operation.iterated:
        return _check_iterated(name, named)
    if operation.checked:
        _check_each(name, operation, named)
    return first


def _check_each(name: str, operation: Operation, named: list[tuple[str, torch.Tensor]]) -> NoReturn:
    method, names = operation.method, dict[str, str]()
    if name in _CALLS:
        inner, names = _CALLS[name]
        method = f"wrapper_CUDA_{inner}"
    device = places.device_of(named[0][1])
    parameter, place = next((p, d) for p, t in named if (d := places.device_of(t)) != device)
    raise errors.different_argument(names.get(parameter, parameter), place, device, method)


def _check_iterated(name: str, named: list[tuple[str, torch.Tensor]]) -> torch.device:
    """Numbers from the CPU may join, unless the result is to be written into them."""
    found = [(parameter, tensor, places.device_of(tensor)) for parameter, tensor in named]
    device = next(place for _, _, place in found if place.type != "cpu")
    for index, (parameter, tensor, place) in enumerate(found):
        written = parameter == "out" or (index == 0 and name.endswith("_"))
        number = tensor.dim() == 0 and place.type == "cpu" and not written
        if place != device and not number:
            raise errors.two_devices(device, place)
    return device


def _check_indexing(named: list[tuple[str, torch.Tensor]]) -> torch.device:
    """Indices from the CPU may index tensors on a GPU, not the other way round."""
    device = places.device_of(named[0][1])
    for parameter, tensor in named[1:]:
        place = places.device_of(tensor)
        if parameter == "indices" and place.type != "cpu" and place != device:
            raise errors.index_elsewhere(device)
        if parameter == "values" and place != device and tensor.dim() != 0:
            raise errors.two_devices(device, place)
    return device


def _check_convolution(named: list[tuple[str, torch.Tensor]]) -> None:
    data = named[0][1]
    for parameter, tensor in named[1:]:
        if places.device_of(tensor) != places.device_of(data):
            raise errors.convolution(type_name(data), parameter, type_name(tensor), places.device_of(data))


def type_name(tensor: torch.Tensor) -> str:
    """As torch writes the type of a tensor: `torch.cuda.FloatTensor`."""
    name: str = tensor.type()
    device = places.device_of(tensor)
    return name.replace("torch.", f"torch.{device.type}.", 1) if device.type in GPUS else name


def type_in_cpp(tensor: torch.Tensor) -> str:
    """As C++ writes it: `CUDAFloatType`."""
    kind = tensor.type().removeprefix("torch.").removesuffix("Tensor")
    return f"{places.device_of(tensor).type.upper()}{kind}Type"


def _check_recurrent(args: tuple[Any, ...], _found: list[torch.device]) -> None:
    data = places.device_of(args[0])
    # Packed: data, batch_sizes, hidden, weights; else data, hidden, weights, and whether there are biases.
    packed = isinstance(args[3], list | tuple)
    hidden, weights = (args[2], args[3]) if packed else (args[1], args[2])
    for what, group in (("parameter", weights), ("hidden", hidden)):
        for tensor in places.tensors(group):
            if places.device_of(tensor) != data:
                raise errors.recurrent(data, what, places.device_of(tensor))


def _check_attention(_args: tuple[Any, ...], found: list[torch.device]) -> None:
    query, key, value = found[:3]
    if not query.type == key.type == value.type:
        raise errors.attention(query, key, value)


def _check_quantiles(_args: tuple[Any, ...], _found: list[torch.device]) -> NoReturn:
    raise errors.quantiles("q")


def _check_along(_args: tuple[Any, ...], found: list[torch.device]) -> NoReturn:
    raise errors.take_along_dim(found[0], found[1])


# What functions of C++ ask by themselves, before any operation: called with their arguments and the devices.
_BEFORE = {
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), _check_recurrent),
    **dict.fromkeys(("quantile", "nanquantile"), _check_quantiles),
    "scaled_dot_product_attention": _check_attention,
    "take_along_dim": _check_along,
}


@functools.cache
def _operation(name: str, overload: str) -> Operation:
    declared = _declarations().get(f"{name}.{overload}" if overload else name, "")
    structured = "structured" in declared
    parts = (name, overload) if structured else (overload, name)
    method = "wrapper_CUDA_" + "_".join(parts if overload or not structured else (name,))
    unchecked = re.search(r"device_check: NoCheck *(#.*)?", declared)
    foreach = name.startswith("_foreach_")  # its slow path calls the others
    iterated = foreach or bool(unchecked and (structured or "TensorIterator" in (unchecked[1] or "")))
    return Operation(method=method, checked=not unchecked, iterated=iterated)


@functools.cache
def _declarations() -> dict[str, str]:
    """Of each operation, what torch's `native_functions.yaml` says; the wheel has the file."""
    import torchgen  # type: ignore[import-not-found]

    path = Path(torchgen.__path__[0]) / "packaged/ATen/native/native_functions.yaml"
    blocks = path.read_text(encoding="utf-8").split("\n- func: ")[1:]
    return {block.partition("(")[0]: block for block in blocks}
