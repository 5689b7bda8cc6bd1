"""Monitoring: what a program asks of CUDA, counted. `torchdevice report` shows it.

Off unless the feature `monitor` is on: a count costs more than many of the functions. Fallbacks are counted
always.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import threading
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing import util
from pathlib import Path
from typing import Any

from torchdevice.translation import Function

SCHEMA = "torchdevice.report/1"
_PACKAGE = str(Path(__file__).parent)


@dataclass
class _Counts:
    lock: Any = field(default_factory=threading.Lock)
    calls: Counter[str] = field(default_factory=Counter)
    places: dict[str, str] = field(default_factory=dict)
    fallbacks: Counter[str] = field(default_factory=Counter)
    folder: Path | None = None


_counts = _Counts()


def counted(path: str, function: Function) -> Function:
    """`function`, which counts its calls under a name and keeps the line that called it first."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with _counts.lock:
            _counts.calls[path] += 1
            if path not in _counts.places:
                _counts.places[path] = _caller()
        return function(*args, **kwargs)

    return wrapper


def fell_back(what: str) -> bool:
    """Count a fallback.

    Returns:
        Whether it is the first of its kind.
    """
    with _counts.lock:
        _counts.fallbacks[what] += 1
        return _counts.fallbacks[what] == 1


def _caller() -> str:
    """The first line outside this package."""
    frame = sys._getframe(2)
    while frame.f_back and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def report() -> dict[str, Any]:
    """What was counted in this process so far."""
    with _counts.lock:
        return {
            "schema": SCHEMA,
            "process": os.getpid(),
            "calls": dict(_counts.calls.most_common()),
            "first_called": dict(_counts.places),
            "fallbacks": dict(_counts.fallbacks.most_common()),
        }


def reset() -> None:
    """Count from the beginning."""
    with _counts.lock:
        for counts in (_counts.calls, _counts.places, _counts.fallbacks):
            counts.clear()


def write_at_end(folder: Path) -> None:
    """Have this process, and those of multiprocessing, write a report into a folder at the end.

    Processes of multiprocessing end without `atexit`, but with its own finalizers.
    """

    def write() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{os.getpid()}.json").write_text(json.dumps(report(), indent=1), encoding="utf-8")

    def again(_key: object) -> None:
        reset()
        util.Finalize(None, write, exitpriority=0)

    if _counts.folder is None:
        util.Finalize(None, write, exitpriority=0)
        util.register_after_fork(_counts, again)
    _counts.folder = folder
