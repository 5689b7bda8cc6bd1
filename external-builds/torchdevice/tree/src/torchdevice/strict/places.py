"""Where tensors are: the device that is kept beside each storage.

All views of a tensor, `detach()` and `.data` give the same `UntypedStorage` object, and its attributes live
as long as the memory. Neither pickle nor `deepcopy` carries them. A storage without is where torch says it
is.

Call these with no `TorchFunctionMode` of ours on: they ask tensors themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.utils import _device

from torchdevice import errors, translation
from torchdevice.emulation import devices
from torchdevice.translation import GPUS, RealDevice

CPU = RealDevice("cpu")
KEPT = "torchdevice"  # the attribute of a storage, or of a node of autograd's graph
PINNED = "torchdevice_pinned"  # that of a storage whose memory the program has had pinned
PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))
# What calls are given most, and no tensor is in. Every call passes here: the types are compared, not asked.
_EMPTY = frozenset((bool, float, int, str, type(None), torch.dtype, RealDevice, torch.layout, torch.Size))
_SEVERAL = (list, tuple)


def logical(value: Any) -> torch.device:
    """The device that an argument means; "cuda" is the current one.

    Raises:
        RuntimeError: there is no such device, or torch cannot read the argument.
    """
    device = value if type(value) is RealDevice else _from(value)
    if device.type not in GPUS:
        return device
    route = translation.route()
    count = route.count if route else 0
    if device.index is None:
        return translation.named_device(device.type, devices.current_device())
    if device.index >= count:
        raise errors.invalid_ordinal(device.index, count)
    return device


def _from(value: Any) -> torch.device:
    if type(value) is str:
        return translation.named_device(value)
    # Without a GPU, torch knows no ordinals.
    return RealDevice("cuda", int(value)) if translation.is_ordinal(value) else RealDevice(value)


def physical(device: torch.device) -> torch.device:
    """Where a tensor of a device really is."""
    return CPU if device.type in GPUS else device


def default() -> torch.device:
    """The device of what is made without one: of `torch.set_default_device` or `with torch.device(…)`."""
    device = _device.CURRENT_DEVICE
    return CPU if device is None else logical(device)


def device_of(tensor: torch.Tensor) -> torch.device:
    """The device that a tensor is said to be on."""
    kept: torch.device | None
    try:  # first what nearly all are, and with no more calls than it takes
        kept = getattr(tensor.untyped_storage() if type(tensor) in PLAIN else _storage(tensor), KEPT, None)
    except (NotImplementedError, RuntimeError):
        kept = getattr(_storage(tensor), KEPT, None)
    return tensor.device if kept is None else kept


def put(tensor: torch.Tensor, device: torch.device) -> None:
    """Say that a tensor, and all that shares its memory, is on a device."""
    storage = _storage(tensor)
    if storage is not None:
        storage.torchdevice = device


def put_new(result: Any, device: torch.device) -> None:
    """Say of all tensors in a result where they are, except of those that know it already."""
    kind = type(result)
    if kind in _EMPTY or device is CPU or device.type not in GPUS:
        return
    for tensor in (result,) if kind in PLAIN else tensors(result):
        storage = _storage_of_plain(tensor) if kind in PLAIN else _storage(tensor)
        if storage is not None and not hasattr(storage, KEPT) and tensor.device == CPU:
            storage.torchdevice = device


def tensors(values: Any) -> list[torch.Tensor]:
    """All tensors in a value, or in nested lists, tuples and dictionaries of them."""
    if type(values) in PLAIN or isinstance(values, torch.Tensor):
        return [values]
    if isinstance(values, dict):
        values = values.values()
    elif not isinstance(values, _SEVERAL):
        return []
    found: list[torch.Tensor] = []
    for value in values:
        kind = type(value)
        if kind in PLAIN:
            found.append(value)
        elif kind not in _EMPTY:
            found += tensors(value)
    return found


def common(found: Iterable[torch.Tensor]) -> tuple[torch.device | None, bool]:
    """The device of the first tensor, and whether another is elsewhere."""
    first = None
    for tensor in found:
        device = device_of(tensor)
        if first is None:
            first = device
        elif device is not first and device != first:
            return first, True
    return first, False


def all_at(there: torch.device, found: Iterable[torch.Tensor]) -> bool:
    """Whether tensors are all plain ones on a device; numbers may be on the CPU."""
    for tensor in found:
        if type(tensor) not in PLAIN:
            return False
        device = device_of(tensor)
        if device is not there and device != there and (tensor.dim() or device != CPU):
            return False
    return True


def _storage(tensor: torch.Tensor) -> Any:
    if type(tensor) in PLAIN:
        return _storage_of_plain(tensor)
    with torch._C.DisableTorchFunctionSubclass():
        local = getattr(tensor, "_local_tensor", None)  # of a DTensor
        return _storage(local) if isinstance(local, torch.Tensor) else _storage_of_plain(tensor)


def _storage_of_plain(tensor: torch.Tensor) -> Any:
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        part = _part(tensor)
        return None if part is None else _storage(part)


def _part(tensor: torch.Tensor) -> torch.Tensor | None:
    """A tensor inside one that has no storage: the values of a sparse one, what functorch wraps."""
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return torch._C._functorch.get_unwrapped(tensor)
    if tensor.layout is torch.sparse_coo:
        return tensor._values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
        return tensor.values()
    return None
