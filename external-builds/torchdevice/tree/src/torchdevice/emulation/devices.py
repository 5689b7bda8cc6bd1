"""torch.cuda as a machine: which devices there are, and which one is current."""

from __future__ import annotations

import functools
import os
import platform
import threading
from dataclasses import dataclass
from typing import Any

import torch

from torchdevice import errors, translation
from torchdevice.router import Route
from torchdevice.translation import Function, RealDevice, stand_in

__all__ = ["stand_in"]


class _Current(threading.local):
    """CUDA keeps the current device for each thread, and so do we, for as long as torchdevice is enabled."""

    index: int = 0
    route: Route | None = None


_current = _Current()


def _count() -> int:
    route = translation.route()
    return route.count if route else 0


def ordinal(device: Any = None) -> int:
    """The ordinal that a device argument of torch.cuda means; without one, the current device.

    A `torch.device` made while enabled has lost its ordinal and means the current one.

    Raises:
        RuntimeError: there is no such device.
        ValueError: another kind of device.
    """
    if device is None:
        return current_device()
    if isinstance(device, str):
        device = RealDevice(device)
    if isinstance(device, RealDevice):
        target = translation.translate("cuda")
        if device.type not in (*translation.GPUS, target) or (
            device.type == "cpu" and translation.is_strict()
        ):
            raise ValueError(f"Expected a cuda device, but got: {device}")
        index = device.index if device.type in translation.GPUS else None
        return ordinal(index)
    if not 0 <= device < _count():
        raise errors.invalid_ordinal(device, _count())
    return int(device)


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    if isinstance(device, str):
        device = RealDevice(device)
    if isinstance(device, int):
        return device
    if hasattr(device, "idx"):  # torch.cuda.device
        return int(device.idx)
    if allow_cpu and isinstance(device, RealDevice) and device.type == "cpu":
        return -1
    if device is None and not optional:
        raise ValueError(f"Expected a torch.device with a specified index or an integer, but got:{device}")
    return ordinal(device)


def module_of(original: Function) -> Function:
    """The module of what is named, not of where it leads; without a name, torch.cuda.

    A program that asks torch.accelerator for the device is told where `redirect` leads. The module of that
    type, such as torch.cpu, lacks what an accelerator's has, so that it is given torch.cuda, too.
    """

    @functools.wraps(original)
    def wrapper(device: Any = None) -> Any:
        asked = "cuda" if device is None and translation.route() is not None else device
        kind = RealDevice(asked).type if isinstance(asked, str | RealDevice) else ""
        if kind and translation.route() is not None and kind == translation.shown(0).type:
            return torch.cuda
        is_ours = kind in translation.GPUS and hasattr(torch, kind)
        return getattr(torch, kind) if is_ours else original(device)

    return wrapper


def called_cuda(original: Function) -> Function:
    """A method that asks for a device of that name, and is given what stands in for it."""

    @functools.wraps(original)
    def wrapper(self: Any, device: torch.device) -> Any:
        is_ours = translation.route() is not None and device == translation.shown(0)
        return original(self, RealDevice("cuda", current_device()) if is_ours else device)

    return wrapper


def is_available() -> bool:
    return True


def is_initialized() -> bool:
    return True


def init() -> None:
    """Nothing is to be initialized."""


def _lazy_init() -> None:
    """Nothing is to be initialized."""


def device_count() -> int:
    return _count()


def current_device() -> int:
    return _current.index if _current.route is translation.route() else 0


def set_device(device: Any) -> None:
    if not (isinstance(device, int) and device < 0):  # CUDA's way of asking for nothing
        _current.index, _current.route = ordinal(device), translation.route()


def _cuda_setDevice(device: int) -> None:  # noqa: N802 - torch's name
    set_device(device)


def _exchange_device(device: int) -> int:
    before = current_device()
    set_device(device)
    return before


def _maybe_exchange_device(device: int) -> int:
    return _exchange_device(device)


class device:  # noqa: N801 - torch.cuda.device
    """The current device, for the length of a block. None and negative ordinals change nothing."""

    def __init__(self, device: Any) -> None:
        nothing = device is None or (isinstance(device, int) and device < 0)
        self.idx = -1 if nothing else ordinal(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _exchange_device(self.idx)

    def __exit__(self, *_error: object) -> None:
        self.idx = _exchange_device(self.prev_idx)


class device_of(device):  # noqa: N801 - torch.cuda.device_of
    """The device of a tensor, for the length of a block: nothing, since no tensor is on a GPU."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.get_device() if obj.is_cuda else -1)


@dataclass(frozen=True, kw_only=True)
class _Properties:
    """What torch tells of a GPU. What has no truthful value here is missing, as an AttributeError says."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    is_integrated: int = 1
    is_multi_gpu_board: int = 0
    warp_size: int = 32
    has_fp64: bool = True
    gcnArchName: str = "emulated"  # noqa: N815 - inductor's cache has it in its key


def get_device_properties(device: Any = None) -> _Properties:
    from torchdevice.emulation import memory

    major, minor = get_device_capability(device)
    return _Properties(
        name=get_device_name(device),
        major=major,
        minor=minor,
        total_memory=memory.total(),
        multi_processor_count=os.cpu_count() or 1,
    )


def get_device_name(device: Any = None) -> str:
    ordinal(device)
    return f"emulated on {translation.translate('cuda')} by torchdevice ({platform.machine()})"


def get_device_capability(device: Any = None) -> tuple[int, int]:
    ordinal(device)
    return (7, 0)


def is_bf16_supported(including_emulation: bool = True) -> bool:
    del including_emulation
    return True


def is_tf32_supported() -> bool:
    return False


def is_acceptable(tensor: torch.Tensor) -> bool:
    del tensor
    return False


def get_arch_list() -> list[str]:
    return []


def get_gencode_flags() -> str:
    return ""


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    ordinal(device)
    ordinal(peer_device)
    return False


def check_error(res: int) -> None:
    if res != 0:
        raise RuntimeError(f"CUDA error {res}")


def _create_jit_fn(code_string: str, **kwargs: Any) -> Function:
    """As on a GPU, source is compiled at the first call: modules may define what they never call."""
    del code_string, kwargs

    def jitted(*_args: Any, **_kwargs: Any) -> Any:
        instead = "write the function in PyTorch, or let torch.compile fuse it."
        raise errors.refusal(
            "a function of torch.cuda.jiterator", f"CUDA source cannot be compiled; {instead}"
        )

    return jitted


def _create_multi_output_jit_fn(code_string: str, num_outputs: int, **kwargs: Any) -> Function:
    """As `_create_jit_fn`."""
    del num_outputs
    return _create_jit_fn(code_string, **kwargs)
