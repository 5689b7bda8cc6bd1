"""torch.accelerator: torch's own code, over answers in the place of C++'s."""

from __future__ import annotations

from typing import Any

import torch

from torchdevice import translation
from torchdevice.emulation import devices, memory, streams

_accelerator_getDeviceIndex = devices.current_device  # noqa: N816 - torch's names
_accelerator_setDeviceIndex = devices.set_device  # noqa: N816
_accelerator_exchangeDevice = devices._exchange_device  # noqa: N816
_accelerator_maybeExchangeDevice = devices._maybe_exchange_device  # noqa: N816
_accelerator_getStream = streams.current_stream  # noqa: N816
_accelerator_synchronizeDevice = streams.synchronize  # noqa: N816
_accelerator_emptyCache = _accelerator_emptyHostCache = memory.empty_cache  # noqa: N816
_accelerator_isAllocatorInitialized = devices.is_initialized  # noqa: N816
_accelerator_getDeviceStats = memory.memory_stats_as_nested_dict  # noqa: N816
_accelerator_resetAccumulatedStats = memory.reset_accumulated_memory_stats  # noqa: N816
_accelerator_resetPeakStats = memory.reset_peak_memory_stats  # noqa: N816
_accelerator_getMemoryInfo = memory.mem_get_info  # noqa: N816


def _accelerator_getAccelerator() -> torch.device:  # noqa: N802 - torch's name
    """A device without an ordinal, as torch gives it."""
    return translation.named_device(translation.shown(0).type)


_get_accelerator = _accelerator_getAccelerator


def _accelerator_setStream(stream: Any) -> None:  # noqa: N802 - torch's name
    devices.set_device(stream.device_index)
    streams.set_stream(stream)


def get_device_capability(device: Any = None, /) -> dict[str, Any]:
    devices.ordinal(device)
    return {"supported_dtypes": {kind for kind in vars(torch).values() if isinstance(kind, torch.dtype)}}


def _get_device_index(device: Any, optional: bool = False) -> int:
    return devices._get_device_index(device, optional)
