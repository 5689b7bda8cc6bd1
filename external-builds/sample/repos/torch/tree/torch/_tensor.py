"""The tensor: a shape over a buffer that the C++ library owns."""

from __future__ import annotations

from math import prod
from typing import Any

from torch import _C
from torch._device import device as Device


class Tensor:
    """An n-dimensional array of 32-bit floats, row-major, on one device."""

    def __init__(self, buffer: Any, shape: tuple[int, ...], device: Device) -> None:
        self._buffer = buffer
        self.shape = shape
        self.device = device

    def dim(self) -> int:
        return len(self.shape)

    def numel(self) -> int:
        return prod(self.shape)

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    def to(self, device: str | Device) -> Tensor:
        """This tensor on `device`: itself when it lives there already."""
        target = Device(device)
        if target.type == self.device.type:
            return self
        return Tensor(_C.to_device(self._buffer, target.code), self.shape, target)

    def cpu(self) -> Tensor:
        return self.to("cpu")

    def cuda(self) -> Tensor:
        return self.to("cuda")

    def tolist(self) -> Any:
        """The values as nested lists; a plain float for a tensor without dimensions."""
        values = _C.to_list(self._buffer)
        for size in reversed(self.shape[1:]):
            values = _rows(values, size)
        return values if self.shape else values[0]

    def item(self) -> float:
        if self.numel() != 1:
            raise RuntimeError(f"a Tensor with {self.numel()} elements is not a number")
        return float(_C.to_list(self._buffer)[0])

    def reshape(self, *shape: int) -> Tensor:
        if prod(shape) != self.numel():
            raise RuntimeError(f"shape {shape} is invalid for {self.numel()} values")
        return Tensor(self._buffer, shape, self.device)

    def relu(self) -> Tensor:
        return Tensor(_C.relu(self._buffer), self.shape, self.device)

    def sum(self) -> Tensor:
        return Tensor(_C.sum(self._buffer), (), self.device)

    def __add__(self, other: Tensor | float) -> Tensor:
        same = self._like(other)
        return Tensor(_C.add(self._buffer, same._buffer), self.shape, self.device)

    def __mul__(self, other: Tensor | float) -> Tensor:
        same = self._like(other)
        return Tensor(_C.mul(self._buffer, same._buffer), self.shape, self.device)

    __radd__ = __add__
    __rmul__ = __mul__

    def __matmul__(self, other: Tensor) -> Tensor:
        if self.dim() != 2 or other.dim() != 2 or self.shape[1] != other.shape[0]:
            raise RuntimeError(f"shapes cannot be multiplied: {self.shape} and {other.shape}")
        (m, k), n = self.shape, other.shape[1]
        buffer = _C.matmul(self._buffer, other._buffer, m, k, n)
        return Tensor(buffer, (m, n), self.device)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def __repr__(self) -> str:
        where = f", device='{self.device}'" if self.is_cuda else ""
        return f"tensor({self.tolist()}{where})"

    def _like(self, other: Tensor | float) -> Tensor:
        """`other` with this tensor's shape: a number stands for every element."""
        if not isinstance(other, Tensor):
            buffer = _C.full(self.numel(), float(other), self.device.code)
            return Tensor(buffer, self.shape, self.device)
        if other.shape != self.shape:
            raise RuntimeError(f"The size of tensor a {self.shape} must match b {other.shape}")
        return other


def _rows(values: list[Any], size: int) -> list[Any]:
    return [values[start : start + size] for start in range(0, len(values), size)]
