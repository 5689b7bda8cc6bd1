"""Contract: what smoke tests and extensions use of `torch.Tensor`; a tensor is a shape over a C++ buffer."""

from __future__ import annotations

from math import prod
from typing import Any

from torch import _C

_DEVICES = {"cpu": 0, "cuda": 1}  # HIP devices are called cuda, as upstream


class Tensor:
    """An n-dimensional array of 32-bit floats, row-major, on one device."""

    def __init__(self, buffer: Any, shape: tuple[int, ...], device: str) -> None:
        self._buffer = buffer
        self.shape = shape
        self.device = device

    @property
    def is_cuda(self) -> bool:
        return self.device == "cuda"

    def to(self, device: str) -> Tensor:
        """This tensor on `device`: itself when it lives there already."""
        if device == self.device:
            return self
        return Tensor(_C.to_device(self._buffer, _code(device)), self.shape, device)

    def cpu(self) -> Tensor:
        return self.to("cpu")

    def cuda(self) -> Tensor:
        return self.to("cuda")

    def tolist(self) -> Any:
        """The values as nested lists; a plain float for a tensor without dimensions."""
        values = _C.to_list(self.cpu()._buffer)
        for size in reversed(self.shape[1:]):
            values = [values[start : start + size] for start in range(0, len(values), size)]
        return values if self.shape else values[0]

    def __add__(self, other: Tensor) -> Tensor:
        return Tensor(_C.add(self._buffer, other._buffer), self.shape, self.device)

    def __mul__(self, other: Tensor) -> Tensor:
        return Tensor(_C.mul(self._buffer, other._buffer), self.shape, self.device)


def tensor(data: Any, device: str = "cpu") -> Tensor:
    """A tensor of nested lists of numbers. Raises ValueError where rows differ in length."""
    shape: list[int] = []
    values = [data]
    while isinstance(values[0] if values else None, list):
        shape.append(len(values[0]))
        if any(len(row) != shape[-1] for row in values):
            raise ValueError(f"expected sequence of length {shape[-1]}")
        values = [item for row in values for item in row]
    return Tensor(_C.from_list(values), tuple(shape), "cpu").to(device)


def full(size: tuple[int, ...], value: float, device: str = "cpu") -> Tensor:
    return Tensor(_C.full(prod(size), float(value), _code(device)), tuple(size), device)


def zeros(*size: int, device: str = "cpu") -> Tensor:
    return full(size, 0.0, device)


def _code(device: str) -> int:
    if device not in _DEVICES:
        raise RuntimeError(f"Expected one of {', '.join(_DEVICES)} as device type, got {device!r}")
    return _DEVICES[device]
