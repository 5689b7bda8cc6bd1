"""Memory figures: the bytes of live tensors, or nothing."""

from __future__ import annotations

import contextlib
import gc
import os
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from torchdevice import translation
from torchdevice.emulation import devices

_peak = 0
_fraction = 1.0


def _live() -> int:
    """The bytes of all storages on the device that computes, each counted once, that Python's tensors
    hold."""
    global _peak
    shown = translation.GPUS if translation.is_strict() else (translation.shown(0).type,)
    storages: dict[int, int] = {}
    for found in gc.get_objects():
        # The type is asked, not the object: proxies answer isinstance by running code of theirs.
        if (
            issubclass(type(found), torch.Tensor)
            and not isinstance(found, FakeTensor)
            and found.layout is torch.strided
            and found.device.type in shown
        ):
            with contextlib.suppress(NotImplementedError, RuntimeError):  # a wrapper without storage
                storage = found.untyped_storage()
                storages[storage.data_ptr()] = storage.nbytes()
    live = sum(storages.values())
    _peak = max(_peak, live)
    return live


def total() -> int:
    """The memory of the machine, or the budget in TORCHDEVICE_MEMORY, in bytes."""
    budget = os.environ.get("TORCHDEVICE_MEMORY", "")
    if budget:
        if not budget.isdecimal():
            raise ValueError(f"TORCHDEVICE_MEMORY is a number of bytes, not {budget!r}")
        return int(budget)
    return _physical("SC_PHYS_PAGES")


def _physical(pages: str) -> int:
    try:
        return os.sysconf(pages) * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError) as error:  # not a POSIX system
        raise RuntimeError("set TORCHDEVICE_MEMORY to the bytes of memory to tell of") from error


def memory_allocated(device: Any = None) -> int:
    devices.ordinal(device)
    return _live()


def max_memory_allocated(device: Any = None) -> int:
    memory_allocated(device)
    return _peak


memory_reserved = memory_cached = memory_allocated
max_memory_reserved = max_memory_cached = max_memory_allocated


def reset_peak_memory_stats(device: Any = None) -> None:
    global _peak
    devices.ordinal(device)
    _peak = 0


reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats


def reset_accumulated_memory_stats(device: Any = None) -> None:
    devices.ordinal(device)


def memory_stats(device: Any = None) -> dict[str, Any]:
    live = memory_allocated(device)
    stats: dict[str, Any] = OrderedDict(num_alloc_retries=0, num_ooms=0)
    for kind in ("allocated_bytes", "active_bytes", "reserved_bytes"):
        stats[f"{kind}.all.current"] = live
        stats[f"{kind}.all.peak"] = _peak
    return stats


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    live = memory_allocated(device)
    figures = {"all": {"current": live, "peak": _peak}}
    kinds = ("allocated_bytes", "active_bytes", "reserved_bytes")
    return {"num_alloc_retries": 0, "num_ooms": 0, **dict.fromkeys(kinds, figures)}


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    del abbreviated
    live = memory_allocated(device)
    return (
        f"torchdevice: {live:,} bytes in live tensors on {translation.translate('cuda')}, "
        f"{_peak:,} at most when asked; the rest is not tracked."
    )


def mem_get_info(device: Any = None) -> tuple[int, int]:
    devices.ordinal(device)
    if os.environ.get("TORCHDEVICE_MEMORY"):
        return max(0, total() - _live()), total()
    return _physical("SC_AVPHYS_PAGES"), total()


def device_memory_used(device: Any = None) -> int:
    free, everything = mem_get_info(device)
    return everything - free


def memory_snapshot(mempool_id: Any = None, include_traces: bool = True) -> list[Any]:
    del mempool_id, include_traces
    return []


def list_gpu_processes(device: Any = None) -> str:
    index = devices.ordinal(device)
    return f"GPU:{index}\nno processes are running: torchdevice computes on {translation.translate('cuda')}"


def host_memory_stats() -> dict[str, Any]:
    return {}


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    return {}


def reset_accumulated_host_memory_stats() -> None:
    """Nothing is counted."""


def reset_peak_host_memory_stats() -> None:
    """Nothing is counted."""


def empty_cache() -> None:
    """There is no cache."""


def current_allocated_memory() -> int:
    return _live()


driver_allocated_memory = current_allocated_memory


def recommended_max_memory() -> int:
    return total()


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    global _fraction
    devices.ordinal(device)
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    _fraction = fraction


def set_fraction(fraction: float) -> None:
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 2:  # of what Metal recommends
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~2")


def get_per_process_memory_fraction(device: Any = None) -> float:
    devices.ordinal(device)
    return _fraction


def caching_allocator_enable(value: bool = True) -> None:
    """There is no cache."""
    del value


@contextlib.contextmanager
def caching_allocator_disabled() -> Iterator[None]:
    yield


def _cuda_cudaCachingAllocator_is_enabled() -> bool:  # noqa: N802 - torch's name
    return True


def get_allocator_backend() -> str:
    return "native"
