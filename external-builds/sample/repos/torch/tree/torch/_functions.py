"""Making tensors, and the operators as functions."""

from __future__ import annotations

from math import prod
from typing import Any

from torch import _C
from torch._device import device as Device
from torch._tensor import Tensor


def tensor(data: Any, device: str | Device = "cpu") -> Tensor:
    """A tensor of nested lists of numbers. Raises ValueError where rows differ in length."""
    target = Device(device)
    shape = _shape_of(data)
    values: list[float] = []
    _flatten(data, shape, values)
    return Tensor(_C.from_list(values, target.code), shape, target)


def full(size: tuple[int, ...], value: float, device: str | Device = "cpu") -> Tensor:
    target = Device(device)
    return Tensor(_C.full(prod(size), float(value), target.code), tuple(size), target)


def zeros(*size: int, device: str | Device = "cpu") -> Tensor:
    return full(size, 0.0, device)


def ones(*size: int, device: str | Device = "cpu") -> Tensor:
    return full(size, 1.0, device)


def add(a: Tensor, b: Tensor | float) -> Tensor:
    return a + b


def mul(a: Tensor, b: Tensor | float) -> Tensor:
    return a * b


def relu(a: Tensor) -> Tensor:
    return a.relu()


def sum(a: Tensor) -> Tensor:
    return a.sum()


def matmul(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


def _shape_of(data: Any) -> tuple[int, ...]:
    shape: list[int] = []
    while isinstance(data, (list, tuple)):
        shape.append(len(data))
        if not data:
            break
        data = data[0]
    return tuple(shape)


def _flatten(data: Any, shape: tuple[int, ...], values: list[float]) -> None:
    if not shape:
        values.append(float(data))
        return
    if not isinstance(data, (list, tuple)) or len(data) != shape[0]:
        raise ValueError(f"expected sequence of length {shape[0]}")
    for item in data:
        _flatten(item, shape[1:], values)
