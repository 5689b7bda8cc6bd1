"""Comparing what was computed with what was expected."""

from __future__ import annotations

from math import isclose, isnan
from typing import Any

from torch._tensor import Tensor

__all__ = ["assert_close"]


def assert_close(actual: Any, expected: Any, rtol: float = 1.3e-6, atol: float = 1e-5) -> None:
    """Raise AssertionError unless both have the same shape and values within the tolerances.

    Tensors, nested lists and numbers may be compared with each other. NaN equals NaN.
    """
    _compare(_plain(actual), _plain(expected), rtol, atol, ())


def _plain(value: Any) -> Any:
    return value.cpu().tolist() if isinstance(value, Tensor) else value


def _compare(actual: Any, expected: Any, rtol: float, atol: float, where: tuple[int, ...]) -> None:
    if isinstance(actual, list) or isinstance(expected, list):
        if not (isinstance(actual, list) and isinstance(expected, list)) or len(actual) != len(expected):
            raise AssertionError(f"shapes differ at {where}: {actual} and {expected}")
        for index, pair in enumerate(zip(actual, expected, strict=True)):
            _compare(*pair, rtol, atol, (*where, index))
        return
    if isnan(actual) and isnan(expected):
        return
    if not isclose(actual, expected, rel_tol=rtol, abs_tol=atol):
        raise AssertionError(f"values differ at {where}: {actual} and {expected}")
