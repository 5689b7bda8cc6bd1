"""What is refused, in the words and types that PyTorch's users already handle."""

from __future__ import annotations

import torch


class RefusedError(RuntimeError):
    """A call that needs a GPU and cannot be answered truthfully without one.

    A `RuntimeError`, as PyTorch's own: code that tries a fast path and falls back goes on doing so.
    """


# What torch raises for an ordinal the machine does not have, since 2.8.
_DEVICE_ERROR: type[RuntimeError] = getattr(torch, "AcceleratorError", RuntimeError)


def refusal(name: str, note: str) -> RefusedError:
    """The error for a call of `name`; `note` says why, and what to do instead."""
    return RefusedError(f"{name} needs a GPU, and torchdevice does not imitate it: {note}")


def invalid_ordinal(index: int, count: int) -> RuntimeError:
    """The error for a device that is not there, in the words of the CUDA runtime."""
    return _DEVICE_ERROR(
        f"CUDA error: invalid device ordinal (device {index} of {count}; torchdevice shows as many devices "
        "as TORCHDEVICE_COUNT says)"
    )
