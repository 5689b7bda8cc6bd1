"""The compatibility matrix: what becomes of each function of torch. `matrix.toml` is its data.

The patches, the catalogue and the documentation are all made from these entries. A function that no entry
names computes where its tensors are, and is native.
"""

from __future__ import annotations

import functools
import importlib
import inspect
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
    """

    owner: str
    name: str
    status: Status
    by: str = ""
    arguments: tuple[str, ...] = ()
    note: str = ""
    also: tuple[str, ...] = ()
    added: bool = False

    @property
    def path(self) -> str:
        """The dotted name, as users write it."""
        return f"{self.owner}.{self.name}"

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
    found: Any = importlib.import_module("torch")
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
    data = tomllib.loads(resources.files("torchdevice").joinpath("matrix.toml").read_text(encoding="utf-8"))
    made: dict[str, Entry] = {}
    for entry in _written(data["entries"]):
        if entry.path in made:
            raise ValueError(f"matrix.toml: {entry.path} stands twice")
        made[entry.path] = entry
    for entry in _by_rule(data["rules"], set(made)):
        made[entry.path] = entry
    return tuple(made.values())


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
            )
            if entry.status is Status.EMULATED and not entry.by:
                raise ValueError(f"matrix.toml: {entry.path} is emulated by nothing")
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
                also = tuple(rule.get("also", ()))
                yield Entry(owner=owner, name=name, status=Status.TRANSLATED, arguments=names, also=also)


def schema(function: Any) -> str:
    """The name under which torch registered what a function of C++ does: `torch.fft.fftfreq` is
    `fft_fftfreq`."""
    return f"aten::{getattr(function, '__name__', '')}"
