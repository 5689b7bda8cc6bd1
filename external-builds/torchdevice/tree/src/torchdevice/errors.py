"""What is refused, and what is wrong, in the words and types that PyTorch's users already handle.

The texts of `strict` are torch's own, and a test finds their parts in torch's libraries.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch


class RefusedError(RuntimeError):
    """A call that needs a GPU and cannot be answered truthfully without one.

    A `RuntimeError`, as PyTorch's own: code that tries a fast path and falls back goes on doing so.
    """


# What torch raises for an ordinal the machine does not have, since 2.8.
_DEVICE_ERROR: type[RuntimeError] = getattr(torch, "AcceleratorError", RuntimeError)
_RULE = "torchdevice_rule"
_SAME = "Expected all tensors to be on the same device, but"


def refusal(name: str, note: str) -> RefusedError:
    """The error for a call of `name`; `note` says why, and what to do instead."""
    return RefusedError(f"{name} needs a GPU, and torchdevice does not imitate it: {note}")


def invalid_ordinal(index: int, count: int) -> RuntimeError:
    """The error for a device that is not there, in the words of the CUDA runtime."""
    return _DEVICE_ERROR(
        f"CUDA error: invalid device ordinal (device {index} of {count}; torchdevice shows as many devices "
        "as TORCHDEVICE_COUNT says)"
    )


def _mistake(make: Callable[..., Exception]) -> Callable[..., Any]:
    """Mark the errors that `strict` raises with the name of their rule, for reports to know them by."""

    @functools.wraps(make)
    def made(*args: Any) -> Exception:
        error = make(*args)
        setattr(error, _RULE, make.__name__)
        return error

    return made


def rule_of(error: BaseException) -> str | None:
    """The rule of `strict` that an error is by, as `two_devices`, or None of others."""
    rule: str | None = getattr(error, _RULE, None)
    return rule


def mistake_in(error: BaseException) -> BaseException | None:
    """The error of a rule that another one came from, or was raised while handling, or is itself."""
    seen: BaseException | None = error
    while seen is not None and rule_of(seen) is None:
        seen = seen.__cause__ or seen.__context__
    return seen


@_mistake
def two_devices(one: torch.device, other: torch.device) -> RuntimeError:
    """Operations by element: TensorIterator's."""
    return RuntimeError(f"{_SAME} found at least two devices, {one} and {other}!")


@_mistake
def different_argument(name: str, at: torch.device, others: torch.device, method: str) -> RuntimeError:
    """All other operations: the check before a kernel of CUDA."""
    return RuntimeError(
        f"{_SAME} got {name} is on {at}, different from other tensors on {others} "
        f"(when checking argument in method {method})"
    )


@_mistake
def index_elsewhere(device: torch.device) -> RuntimeError:
    """An index on a GPU that the indexed tensor is not on."""
    return RuntimeError(
        f"indices should be either on cpu or on the same device as the indexed tensor ({device})"
    )


@_mistake
def convolution(data: str, parameter: str, other: str, device: torch.device) -> RuntimeError:
    """Input and weights of a convolution."""
    mkldnn = f" or input should be a MKLDNN tensor and {parameter} is a dense tensor"
    also = mkldnn if device.type == "cpu" else ""
    return RuntimeError(f"Input type ({data}) and {parameter} type ({other}) should be the same{also}")


@_mistake
def recurrent(data: torch.device, what: str, other: torch.device) -> RuntimeError:
    """Input, weights and state of a recurrent layer."""
    return RuntimeError(
        f"Input and {what} tensors are not at the same device, found input tensor at {data} and {what} "
        f"tensor at {other}"
    )


@_mistake
def attention(query: torch.device, key: torch.device, value: torch.device) -> RuntimeError:
    """The three tensors of attention."""
    return RuntimeError(
        f"Expected query, key, and value to have the same device type, but got query.device: {query} "
        f"key.device: {key} and value.device: {value} instead."
    )


@_mistake
def quantiles(what: str) -> RuntimeError:
    """`quantile(x, q)`."""
    return RuntimeError(f"quantile() {what} tensor must be on the same device as the input tensor")


@_mistake
def take_along_dim(expected: torch.device, found: torch.device) -> RuntimeError:
    """`take_along_dim(x, indices)`."""
    checking = "(while checking arguments for torch.take_along_dim())"
    return RuntimeError(
        f"Expected tensor to have {expected.type} Device, but got tensor with {found.type} Device {checking}"
    )


# Of functions that compare the devices of their tensors themselves: the first, another, and which it is.
COMPARED = {
    "_weight_norm": "weight_norm: expected v_in and g_in to be on the same device, but v_in is on {0} and "
    "g_in is on {1}",
    "block_diag": "torch.block_diag: input tensors must all be on the same device.",
    "cdist": "X1 and X2 must have the same device type. X1: {0.type} X2: {1.type}",
    "cholesky_solve": "Expected b and A to be on the same device, but found b on {0} and A on {1} instead.",
    "gradient": "torch.gradient expected each tensor to be on the same device, but got devices {0} and {1}!",
    "grid_sampler": "grid_sampler(): expected input and grid to be on same device, but input is on {0} and "
    "grid is on {1}",
    "istft": "istft input and window must be on the same device but got self on {0} and window on {1}",
    "linalg_multi_dot": "multi_dot(): all tensors must be on the same device but tensor 0 is on {0} and "
    "tensor {2} on {1}",
    "masked_fill": "expected self and mask to be on the same device, but got mask on {1} and self on {0}",
    "meshgrid": "meshgrid expects all tensors to have the same device",
    "stft": "stft input and window must be on the same device but got self on {0} and window on {1}",
}
COMPARED["masked_fill_"] = COMPARED["masked_fill"]


@_mistake
def compared(function: str, one: torch.device, other: torch.device, index: int) -> RuntimeError:
    """A function that compares devices by itself, before any kernel does."""
    return RuntimeError(COMPARED[function].format(one, other, index))


@_mistake
def wrong_generator(expected: torch.device, found: torch.device) -> RuntimeError:
    """A generator of another kind of device."""
    return RuntimeError(f"Expected a '{expected.type}' device type for generator but found '{found.type}'")


@_mistake
def not_numpy(device: torch.device) -> TypeError:
    """A tensor that NumPy cannot see."""
    return TypeError(
        f"can't convert {device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host "
        "memory first."
    )


@_mistake
def not_pinned(type_name: str) -> RuntimeError:
    """Memory of a GPU is not to be pinned."""
    return RuntimeError(f"cannot pin '{type_name}' only dense CPU tensors can be pinned")


@_mistake
def not_pinnable() -> RuntimeError:
    """`torch.ones(2, device="cuda", pin_memory=True)`."""
    return RuntimeError("Only dense CPU tensors can be pinned")


@_mistake
def not_cuda() -> RuntimeError:
    """`x.cuda("cpu")`."""
    return RuntimeError("Invalid device, must be cuda device")


@_mistake
def invalid_gradient(index: int, expected: torch.device, found: torch.device, node: str = "") -> RuntimeError:
    """A gradient that is not where its tensor is: given to `backward`, or returned by a node of the graph."""
    returned = f"Function {node} returned an " if node else ""
    return RuntimeError(
        f"{returned}invalid gradient at index {index} - expected device {expected} but got {found}"
    )


@_mistake
def hook_moved(name: str, before: str, after: str) -> RuntimeError:
    """A hook that gives back a gradient of another kind of device; `CUDAFloatType` is what C++ calls it."""
    return RuntimeError(f"hook '{name}' has changed the type of value (was {before} got {after})")


@_mistake
def gradient_elsewhere(gradient: torch.device, tensor: torch.device) -> RuntimeError:
    """`x.grad = …` of another device."""
    if gradient.type == tensor.type:
        return RuntimeError(
            f"attempting to assign a gradient located on device with index '{gradient.index}' to a tensor "
            f"located on device with index '{tensor.index}'"
        )
    return RuntimeError(
        f"attempting to assign a gradient with device type '{gradient.type}' to a tensor with device type "
        f"'{tensor.type}'. Please ensure that the gradient and the tensor are on the same device"
    )


@_mistake
def lengths_on_gpu(device: torch.device, kind: str) -> RuntimeError:
    """`pack_padded_sequence(x, lengths)` with lengths that are not on the CPU."""
    return RuntimeError(
        f"'lengths' argument should be a 1D CPU int64 tensor, but got 1D {device} {kind} tensor"
    )


@_mistake
def sections_on_gpu(device: torch.device) -> RuntimeError:
    """`tensor_split(x, sections)` with sections that are not on the CPU."""
    return RuntimeError(
        f"tensor_split expected tensor_indices_or_sections to be on cpu, but it's on {device}"
    )
