"""TOML files, refused with one kind of error whatever is wrong with them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from cairn.errors import UsageError

# `a.a.a. … = 1` costs tomllib the square of its length: 3 s for 16 KB. No file has a line such as this one.
_MOST_DOTS = 2_000


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
    if any(line.count(b".") > _MOST_DOTS for line in data.splitlines()):
        raise UsageError(f"{name} is not TOML that can be read: a line has over {_MOST_DOTS} dots")
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except RecursionError as error:
        raise UsageError(f"{name} is not TOML that can be read: it is nested too deep") from error
    except ValueError as error:  # also of a number with more digits than Python converts
        raise UsageError(f"{name} is not TOML: {error}") from error
