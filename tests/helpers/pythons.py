"""Other Pythons of the machine, for tests that build for several; skipped where there are none."""

from __future__ import annotations

import functools

import pytest

from cairn import interpreters
from cairn.errors import CairnError
from cairn.interpreters import Interpreter

_OLDEST, _NEWEST = 10, 15


@functools.cache
def _found() -> tuple[Interpreter, ...]:
    found = []
    for minor in range(_OLDEST, _NEWEST):
        try:
            found.append(interpreters.find(f"3.{minor}"))
        except CairnError:
            continue
    return tuple(found)


def several(count: int) -> tuple[Interpreter, ...]:
    """Interpreters of different versions, Cairn's own first; skips the test where there are too few."""
    own = interpreters.current()
    found = (own, *(other for other in _found() if other.version != own.version))
    if len(found) < count:
        have = ", ".join(one.version for one in found)
        pytest.skip(f"needs {count} versions of Python, and this machine has {have}")
    return found[:count]
