"""Other processes: those that multiprocessing starts come up with torchdevice enabled.

A forked one has everything of its parent's. One that is spawned, or forked by a server, reads a
description of the process to be; there it finds a `_ComeUpEnabled`, and reading that runs `_spawned.py`
before the program's own modules are imported.
"""

from __future__ import annotations

import dataclasses
import functools
import multiprocessing.spawn
import runpy
from pathlib import Path
from typing import Any

from torchdevice.interceptor import UndoLog
from torchdevice.router import Route

_PACKAGE = Path(__file__).resolve().parent


class _ComeUpEnabled:
    """Pickled as a call of the standard library: the child may not find torchdevice on its path yet."""

    def __init__(self, route: Route) -> None:
        self._route = route

    def __reduce__(self) -> tuple[Any, ...]:
        route = {"package": str(_PACKAGE), **dataclasses.asdict(self._route)}
        return runpy.run_path, (str(_PACKAGE / "_spawned.py"), route)


def install(log: UndoLog, route: Route) -> None:
    """Have processes that are spawned while enabled come up enabled."""
    original = multiprocessing.spawn.get_preparation_data

    @functools.wraps(original)
    def get_preparation_data(*args: Any, **kwargs: Any) -> dict[str, Any]:
        return {**original(*args, **kwargs), "torchdevice": _ComeUpEnabled(route)}

    log.replace(multiprocessing.spawn, "get_preparation_data", get_preparation_data)
