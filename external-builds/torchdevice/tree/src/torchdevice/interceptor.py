"""The interceptor: puts functions of ours in the place of torch's, and undoes it exactly."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.utils import _device

_ABSENT = object()

# Tables that torch makes once, of the functions as they are then.
_TABLES = (
    ("torch.overrides", "get_ignored_functions"),
    ("torch.overrides", "get_default_nowrap_functions"),
    ("torch.overrides", "get_testing_overrides"),
    ("torch.overrides", "_get_overridable_functions"),
    ("torch.overrides", "_get_tensor_methods"),
    ("torch._dynamo.trace_rules", "get_torch_obj_rule_map"),
    ("torch._dynamo.trace_rules", "get_tensor_method"),
)


class UndoLog:
    """What was patched, and what was there before.

    An attribute that an owner only inherited is deleted again, not set: `torch.Tensor.to` is of its base.
    """

    def __init__(self) -> None:
        self._done: list[tuple[Any, str, Any, Any]] = []
        self._scripted: list[int] = []

    def replace(self, owner: Any, name: str, new: Any) -> None:
        """Set an attribute of a module or a class, remembering what was there."""
        old = vars(owner).get(name, _ABSENT)
        setattr(owner, name, new)
        self._done.append((owner, name, old, new))

    def script_as(self, new: Any, old: Any) -> None:
        """Have `torch.jit.script` compile calls of `new` as calls of `old`, a function of C++.

        TorchScript knows those by their identity.
        """
        table = torch.jit._builtins._get_builtin_table()
        operator = table.get(id(old))
        if operator is not None:
            table[id(new)] = operator
            self._scripted.append(id(new))

    def undo(self) -> list[str]:
        """Put everything back, the last first.

        Returns:
            What other code has replaced since. That stays: it calls ours, which pass everything through.
        """
        kept = []
        while self._done:
            owner, name, old, new = self._done.pop()
            if vars(owner).get(name, _ABSENT) is not new:
                kept.append(f"{getattr(owner, '__name__', type(owner).__name__)}.{name}")
            elif old is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, old)
        while self._scripted:
            torch.jit._builtins._get_builtin_table().pop(self._scripted.pop(), None)
        return kept


def forget_tables() -> None:
    """Have torch make its tables of functions anew, now that the functions are others.

    Compiled code has the device of its time in it: that is made anew, too.
    """
    for module, name in _TABLES:
        table = getattr(sys.modules.get(module), name, None)
        if table is not None and hasattr(table, "cache_clear"):
            table.cache_clear()
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()


def make_lasting_tables() -> None:
    """Have torch make the tables that must hold its own functions, before they are replaced.

    `with torch.device(…)` compares the function that is *called* with the first, and that is always torch's.
    In the second, TorchScript looks functions up, now and later.
    """
    _device._device_constructors()
    torch.jit._builtins._get_builtin_table()
