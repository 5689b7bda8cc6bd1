"""What changed among the public Python names of two wheels, and which of it breaks those who use them.

Source: griffe's documentation, "Checking for API breakages": what counts as one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cairn.wheels.interface.python_api import Parameter, PythonApi, PythonName

_POSITIONAL = ("positional-only", "positional or keyword")
_BY_KEYWORD = ("positional or keyword", "keyword-only")


@dataclass(frozen=True, kw_only=True)
class PythonChange:
    """The changes of the public Python names.

    Attributes:
        removed: names that are gone; what was inside of one that is gone is not named.
        perhaps: those of them whose module makes names while it is imported, so that they may be there yet.
        added: new names, likewise.
        breaking: changes of signatures and kinds that break callers, as `demo.f: parameter x is gone`.
        other: changes of signatures that break nobody: new parameters with a default, other defaults.
    """

    removed: tuple[str, ...] = ()
    perhaps: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    breaking: tuple[str, ...] = ()
    other: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.removed or self.perhaps or self.added or self.breaking or self.other)


def between(one: PythonApi, other: PythonApi) -> PythonChange:
    """Compare two wheels."""
    old, new = one.names, other.names
    gone, come = old.keys() - new.keys(), new.keys() - old.keys()
    top_gone = sorted(path for path in gone if path.rpartition(".")[0] not in gone)
    perhaps = {path for path in top_gone if path.rpartition(".")[0] in other.dynamic}
    breaking: list[str] = []
    harmless: list[str] = []
    for path in sorted(old.keys() & new.keys()):
        for breaks, text in _changes(old[path], new[path]):
            (breaking if breaks else harmless).append(f"{path}: {text}")
    return PythonChange(
        removed=tuple(path for path in top_gone if path not in perhaps),
        perhaps=tuple(sorted(perhaps)),
        added=tuple(sorted(path for path in come if path.rpartition(".")[0] not in come)),
        breaking=tuple(breaking),
        other=tuple(harmless),
    )


def _changes(old: PythonName, new: PythonName) -> Iterator[tuple[bool, str]]:
    """Each change of a name, and whether it breaks those who use it."""
    if "unknown" in (old.kind, new.kind):
        return
    if old.kind != new.kind:
        # A function that became a class, or an attribute that is a function, is called as before.
        yield old.kind in ("class", "module") or new.kind == "module", f"{old.kind} became {new.kind}"
    elif old.parameters is not None and new.parameters is not None:
        yield from _parameter_changes(old.parameters, new.parameters)


def _parameter_changes(old: tuple[Parameter, ...], new: tuple[Parameter, ...]) -> Iterator[tuple[bool, str]]:
    after = {one.name: one for one in new}
    before = {one.name for one in old}
    places = [one.name for one in new if one.kind in _POSITIONAL]
    for place, one in enumerate(each for each in old if each.kind in _POSITIONAL):
        if one.name in places and places.index(one.name) != place:
            yield True, f"parameter {one.name} moved from place {place + 1} to {places.index(one.name) + 1}"
    room = len(places) >= sum(each.kind in _POSITIONAL for each in old)
    for one in old:
        if one.name in after:
            yield from _parameter_change(one, after[one.name])
            continue
        by_keyword = one.kind in _BY_KEYWORD
        caught = any(each.kind == "variadic keyword" for each in new) if by_keyword else room
        yield not caught or "variadic" in one.kind, f"parameter {one.name} is gone"
    for one in new:
        if one.name not in before:
            required = one.default is None and "variadic" not in one.kind
            yield required, f"parameter {one.name} is new" + (" and must be given" if required else "")


def _parameter_change(old: Parameter, new: Parameter) -> Iterator[tuple[bool, str]]:
    if new.kind != old.kind:
        narrower = old.kind == "positional or keyword" or "variadic" in old.kind
        yield narrower, f"parameter {old.name} was {old.kind} and is {new.kind}"
    elif old.default is not None and new.default is None:
        yield True, f"parameter {old.name} must be given: its default {old.default} is gone"
    elif old.default != new.default:
        yield False, f"parameter {old.name}: default {old.default or 'none'} became {new.default}"
