"""The compatibility matrix: what becomes of each function of torch. `matrix.toml` is its data.

The patches, the catalogue and the documentation are all made from these entries. A function that no entry
names computes where its tensors are, and is native.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import inspect
import pkgutil
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from importlib import resources
from typing import Any


class Status(Enum):
    """What a call does while torchdevice is enabled."""

    NATIVE = "native"  # torch's own code, unchanged
    TRANSLATED = "translated"  # torch's own code, with another device
    EMULATED = "emulated"  # code of torchdevice; the note says what is approximated
    REFUSED = "refused"  # an error; the note says why, and what to do instead
    ABSENT = "absent"  # of another kind of device, or not in this torch


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A function, a class or a value of torch.

    Attributes:
        owner: the module or class that has it, `torch.cuda`.
        name: in its owner.
        status: what a call does.
        by: the code of ours behind it, as `module.name` below `torchdevice.emulation`. For an emulated
            one, its replacement; for a translated one, a decorator. A translated one without is wrapped by
            its signature.
        arguments: the names of the parameters that take a device, where the signature is to be asked.
        note: what is approximated, or why it is refused and what to do instead.
        also: other modules that hold the same object under the same name.
        added: a build without CUDA lacks it, and what asks `torch.cuda.is_available()` first calls it.
        in_strict: `strict` has it too; where not, its mode answers.
    """

    owner: str
    name: str
    status: Status
    by: str = ""
    arguments: tuple[str, ...] = ()
    note: str = ""
    also: tuple[str, ...] = ()
    added: bool = False
    in_strict: bool = True

    @property
    def path(self) -> str:
        """The dotted name, as users write it."""
        return f"{self.owner}.{self.name}"

    @property
    def feature(self) -> str:
        """The feature flag that it belongs to (see `features`)."""
        if self.status is Status.REFUSED:
            return "refusals"
        return self.by.partition(".")[0] or "signatures"

    @property
    def code(self) -> Any:
        """The object that `by` names.

        Raises:
            LookupError: there is none.
        """
        module, _, name = self.by.rpartition(".")
        try:
            return getattr(importlib.import_module(f"torchdevice.emulation.{module}"), name)
        except (ImportError, AttributeError) as error:
            raise LookupError(
                f"matrix.toml: {self.path}: there is no torchdevice.emulation.{self.by}"
            ) from error


def find(path: str) -> Any:
    """The object of a dotted name, or None where this torch has no such thing."""
    found: Any = importlib.import_module(path.partition(".")[0])
    for at, part in enumerate(path.split(".")[1:], start=2):
        try:
            found = getattr(found, part)
        except AttributeError:
            try:
                found = importlib.import_module(".".join(path.split(".")[:at]))
            except ImportError:
                return None
    return found


@functools.cache
def entries() -> tuple[Entry, ...]:
    """Every entry, with those that rules make for the torch that is installed.

    To be called first while torch is as it was: rules read its signatures.

    Raises:
        ValueError: two entries name one function, or an entry makes no sense.
    """
    data = _data()
    made: dict[str, Entry] = {}
    for entry in _written(data["entries"]):
        if entry.path in made:
            raise ValueError(f"matrix.toml: {entry.path} stands twice")
        made[entry.path] = entry
    for entry in _by_rule(data["rules"], set(made)):
        made[entry.path] = entry
    return tuple(made.values())


@functools.cache
def libraries() -> tuple[tuple[str, Entry], ...]:
    """The modules of other libraries, each with an entry for an object in it."""
    groups = _data()["libraries"]
    return tuple(
        (module, entry)
        for group in groups
        for module in group["modules"]
        for entry in _written([{**group, "owner": f"{module}.{group['owner']}"}])
    )


def _data() -> dict[str, Any]:
    return tomllib.loads(resources.files("torchdevice").joinpath("matrix.toml").read_text(encoding="utf-8"))


def _written(groups: list[dict[str, Any]]) -> Iterator[Entry]:
    for group in groups:
        by = group.get("by", "")
        for name in group["names"]:
            entry = Entry(
                owner=group["owner"],
                name=name,
                status=Status(group["status"]),
                by=f"{by}.{name}" if by and "." not in by else by,
                arguments=tuple(group.get("arguments", ())),
                note=group.get("note", ""),
                also=tuple(group.get("also", ())),
                added=group.get("added", False),
                in_strict=group.get("in_strict", True),
            )
            if entry.status is Status.EMULATED and not entry.by:
                raise ValueError(f"matrix.toml: {entry.path} is emulated by nothing")
            if entry.status is Status.TRANSLATED and not (entry.by or entry.arguments):
                raise ValueError(f"matrix.toml: {entry.path} is translated by nothing")
            if entry.status is Status.REFUSED and not entry.note:
                raise ValueError(f"matrix.toml: {entry.path} is refused without a reason")
            yield entry


def _by_rule(rules: list[dict[str, Any]], written: set[str]) -> Iterator[Entry]:
    from torchdevice import translation

    for rule in rules:
        owner = rule["owner"]
        found = find(owner)
        for name in dir(found) if found is not None else ():
            function = inspect.getattr_static(found, name)
            if name.startswith("_") or not callable(function) or isinstance(function, type):
                continue
            names = tuple(rule["arguments"])
            if f"{owner}.{name}" not in written and translation.find_arguments(
                function, schema(function), names
            ):
                yield Entry(
                    owner=owner,
                    name=name,
                    status=Status.TRANSLATED,
                    arguments=names,
                    also=tuple(rule.get("also", ())),
                    in_strict=rule.get("in_strict", True),
                )


def catalogue() -> Iterator[Entry]:
    """Every public function and class of the torch that is installed, by name, with what becomes of it.

    All that `torch.overrides` can intercept is there, and all that the public modules offer. What neither an
    entry nor a rule names is native, or of another kind of device.
    """
    named = {entry.path: entry for entry in entries()}
    for entry in entries():
        for alias in entry.also:
            named.setdefault(f"{alias}.{entry.name}", dataclasses.replace(entry, owner=alias, also=()))
    foreign = _data()["foreign"]
    for path in sorted({*named, *_overridable(), *_public()}):
        owner, _, name = path.rpartition(".")
        other = next((f for f in foreign if any(path.startswith(f"{o}.") for o in f["owners"])), None)
        if path in named:
            absent = not named[path].added and find(path) is None
            yield dataclasses.replace(named[path], status=Status.ABSENT) if absent else named[path]
        elif other:
            yield Entry(owner=owner, name=name, status=Status.ABSENT, note=other["note"])
        else:
            yield Entry(owner=owner, name=name, status=Status.NATIVE)


def _overridable() -> Iterator[str]:
    import torch

    for namespace, functions in torch.overrides.get_overridable_functions().items():
        for function in functions:
            path = torch.overrides.resolve_name(function) or f"{namespace.__name__}.{function.__name__}"
            # Getters of properties, `Tensor.grad.__get__`, are no names of functions.
            if path.startswith("torch.") and not path.endswith("__"):
                yield path


def _public() -> Iterator[str]:
    import torch

    for info in pkgutil.iter_modules(torch.__path__, "torch."):
        # An import may bring what is not installed, or the end of the process (`torch.__main__`).
        if not info.name.rpartition(".")[2].startswith("_"):
            with contextlib.suppress(ImportError):
                importlib.import_module(info.name)
    for module_name, module in sorted(sys.modules.items()):
        parts = module_name.split(".")
        if parts[0] != "torch" or any(part.startswith("_") for part in parts):
            continue
        # What a room of torch offers is what stands there; deeper down, only what it says it offers.
        offered = vars(module) if len(parts) == 2 else vars(module).get("__all__", ())
        for name in list(offered):
            if not name.startswith("_") and callable(vars(module).get(name)):
                yield f"{module_name}.{name}"


def schema(function: Any) -> str:
    """The name under which torch registered what a function of C++ does: `torch.fft.fftfreq` is
    `fft_fftfreq`."""
    return f"aten::{getattr(function, '__name__', '')}"
