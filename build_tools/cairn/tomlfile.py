"""TOML files, refused with one kind of error whatever is wrong with them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from cairn.errors import UsageError


def read(path: Path, *, tip: str | None = None) -> dict[str, Any]:
    """A TOML file.

    Args:
        path: the file.
        tip: what to do where there is none.

    Raises:
        UsageError: it cannot be read, is not UTF-8, or is not TOML.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", tip=tip) from error
    return loads(data, name=str(path))


def loads(data: bytes, *, name: str) -> dict[str, Any]:
    """TOML out of bytes; `name` stands for the file in errors.

    Raises:
        UsageError: it is not UTF-8, or not TOML.
    """
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except RecursionError as error:
        raise UsageError(f"{name} is not TOML that can be read: it is nested too deep") from error
    except ValueError as error:  # also of a number with more digits than Python converts
        raise UsageError(f"{name} is not TOML: {error}") from error
