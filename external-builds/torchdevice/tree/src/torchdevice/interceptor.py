"""The interceptor: puts functions of ours in the place of torch's, and undoes it exactly."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
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
        self._importing: Any = None
        self._last: list[Callable[[], None]] = []

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

    def when_imported(self, actions: dict[str, Callable[[], None]]) -> None:
        """Have an action run for each of these modules: now where it is there, else once it is imported."""
        self._importing = _Importing(actions)
        for name, action in actions.items():
            if name in sys.modules:
                action()
        sys.meta_path.insert(0, self._importing)

    def at_the_end(self, action: Callable[[], None]) -> None:
        """Have an action run when everything is put back."""
        self._last.append(action)

    def undo(self) -> list[str]:
        """Put everything back, the last first.

        Returns:
            What other code has replaced since. That stays: it calls ours, which pass everything through.
        """
        kept = []
        if self._importing in sys.meta_path:
            sys.meta_path.remove(self._importing)
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
        while self._last:
            self._last.pop()()
        return kept


class _Importing:
    """A finder of modules that has something done to some of them, when they have run."""

    def __init__(self, actions: dict[str, Callable[[], None]]) -> None:
        self._actions = actions

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        action = self._actions.get(name)
        if action is None:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                if self in sys.meta_path:
                    action()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


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
