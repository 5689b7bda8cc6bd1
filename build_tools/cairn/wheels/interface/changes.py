"""What changed between two wheels: texts, kernels target by target, and public Python names.

Source: griffe's documentation, "Checking for API breakages": which changes of names break their users.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from cairn.formats.offload.kernels import Kernel
from cairn.targets import in_order
from cairn.wheels.interface.python_api import Parameter, PythonApi, PythonName


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """The items removed and the items added between two wheels.

    Attributes:
        removed: only in the first.
        added: only in the second.
    """

    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.removed or self.added)


def change(old: Iterable[str], new: Iterable[str]) -> Delta:
    """The change from one collection to another, sorted."""
    a, b = set(old), set(new)
    return Delta(removed=tuple(sorted(a - b)), added=tuple(sorted(b - a)))


# clang names what is local to a source file with a hash of that file (clang/lib/CodeGen, `-fgpu-rdc`).
_OF_FILE = re.compile(r"\.(?:static|intern|anon)\.[0-9a-f]+$|__(?:static|intern)__[0-9a-f]+$")
_MEASURES = ("vgprs", "agprs", "sgprs", "vgpr_spills", "sgpr_spills", "lds", "scratch")


class KernelChange(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel that takes other resources.

    Attributes:
        name: its name.
        measures: which, with the values before and after.
        size: bytes of its code before and after.
    """

    name: str
    measures: dict[str, tuple[int, int]]
    size: tuple[int, int]


class TargetChange(msgspec.Struct, frozen=True, kw_only=True):
    """The kernels of one target.

    Attributes:
        target: the target.
        count: how many kernels there are before and after.
        size: bytes of their code.
        spilling: how many spill registers.
        removed: names of kernels that are gone.
        added: names of new ones.
        changed: those that take other resources.
    """

    target: str
    count: tuple[int, int]
    size: tuple[int, int]
    spilling: tuple[int, int]
    removed: tuple[str, ...]
    added: tuple[str, ...]
    changed: tuple[KernelChange, ...]


def kernels(before: Iterable[Kernel], after: Iterable[Kernel]) -> tuple[TargetChange, ...]:
    """Compare the kernels of two wheels, for each target where any changed."""
    old, new = _by_target(before), _by_target(after)
    changes = []
    for target in in_order({*old, *new}):
        a, b = old.get(target, {}), new.get(target, {})
        pairs = {name: (a[name], b[name]) for name in a.keys() & b.keys() if a[name] != b[name]}
        if a.keys() == b.keys() and not pairs:
            continue
        changes.append(
            TargetChange(
                target=target,
                count=(len(a), len(b)),
                size=(_size(a.values()), _size(b.values())),
                spilling=(_spilling(a.values()), _spilling(b.values())),
                removed=tuple(sorted(a.keys() - b.keys())),
                added=tuple(sorted(b.keys() - a.keys())),
                changed=tuple(
                    KernelChange(
                        name=name,
                        measures={
                            measure: (getattr(x, measure), getattr(y, measure))
                            for measure in _MEASURES
                            if getattr(x, measure) != getattr(y, measure)
                        },
                        size=(x.size, y.size),
                    )
                    for name, (x, y) in sorted(pairs.items())
                ),
            )
        )
    return tuple(changes)


def _by_target(kernels: Iterable[Kernel]) -> dict[str, dict[str, Kernel]]:
    """The kernels by target and name; of several of one name that which takes most, in a fixed order."""
    by_target: dict[str, dict[str, Kernel]] = {}
    for kernel in sorted(kernels):
        plain = kernel._replace(name=_OF_FILE.sub("", kernel.name))
        by_target.setdefault(kernel.target, {})[plain.name] = plain
    return by_target


def _size(kernels: Iterable[Kernel]) -> int:
    return sum(kernel.size for kernel in kernels)


def _spilling(kernels: Iterable[Kernel]) -> int:
    return sum(bool(kernel.vgpr_spills or kernel.sgpr_spills) for kernel in kernels)


_POSITIONAL = ("positional-only", "positional or keyword")
_BY_KEYWORD = ("positional or keyword", "keyword-only")
_VARIADIC = ("variadic positional", "variadic keyword")


class PythonChange(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of the public Python names.

    Attributes:
        removed: names that are gone; what was inside of one that is gone is not named.
        perhaps: those of them that may be there yet: their module makes names while it is imported, or their
            class has a base of another project, or cannot be read any more.
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


def python(before: PythonApi, after: PythonApi) -> PythonChange:
    """Compare the public Python names of two wheels."""
    old, new = before.names, after.names
    gone = {path for path in old.keys() - new.keys() if not _inherited(path, new)}
    come = {path for path in new.keys() - old.keys() if not _inherited(path, old)}
    top_gone = sorted(path for path in gone if path.rpartition(".")[0] not in gone)
    owners = {path: path.rpartition(".")[0] for path in top_gone}
    is_open = after.dynamic | {
        path for path, value in new.items() if value.has_foreign_base or value.kind == "unknown"
    }
    perhaps = {path for path, owner in owners.items() if owner in is_open}
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


def _inherited(path: str, names: Mapping[str, PythonName]) -> bool:
    """Whether it is of a class that has it from a base."""
    owner, _, name = path.rpartition(".")
    return owner in names and name in names[owner].inherited


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
    """The changes of a signature; it breaks callers if Python refuses a call that it took before."""
    kinds, old_kinds = {param.kind for param in new}, {param.kind for param in old}
    after, before = (
        {param.name: param for param in side if param.kind not in _VARIADIC} for side in (new, old)
    )
    places, old_places = ([param for param in side if param.kind in _POSITIONAL] for side in (new, old))
    for place, param in enumerate(old_places):
        match = after.get(param.name)
        if match in places and (moved := places.index(match)) != place:
            yield True, f"parameter {param.name} moved from place {place + 1} to {moved + 1}"
    for place, param in enumerate(old):
        if param.kind not in _VARIADIC:
            has_place = place < len(places) or _VARIADIC[0] in kinds
            yield from _parameter_change(
                param,
                after.get(param.name),
                has_place=has_place,
                takes_any=_VARIADIC[1] in kinds,
            )
        elif param.kind not in kinds:
            yield True, f"parameter {param.name} is gone"
    # What could only be given by its place is given to whatever has that place, by any name.
    given = [param.kind == _POSITIONAL[0] and param.default is None for param in old_places]
    for place, param in enumerate(new):
        if param.kind in old_kinds if param.kind in _VARIADIC else param.name in before:
            continue
        is_given = param.kind in _POSITIONAL and any(given[place : place + 1])
        required = param.default is None and param.kind not in _VARIADIC and not is_given
        yield required, f"parameter {param.name} is new" + (" and must be given" if required else "")


def _parameter_change(
    old: Parameter, new: Parameter | None, *, has_place: bool, takes_any: bool
) -> Iterator[tuple[bool, str]]:
    """The changes of a parameter; `new` is None where it is gone.

    `has_place` says whether something has its place now, and `takes_any` whether any keyword is taken.
    """
    by_name = takes_any or (new is not None and new.kind in _BY_KEYWORD)
    if new is not None and new.default is None:  # nothing else may take what this one must be given
        has_place, by_name = new.kind in _POSITIONAL, new.kind in _BY_KEYWORD
    breaks = (old.kind in _POSITIONAL and not has_place) or (old.kind in _BY_KEYWORD and not by_name)
    if new is None:
        yield breaks, f"parameter {old.name} is gone"
        return
    if new.kind != old.kind:
        yield breaks, f"parameter {old.name} was {old.kind} and is {new.kind}"
    if old.default is not None and new.default is None:
        yield True, f"parameter {old.name} must be given: its default {old.default} is gone"
    elif old.default != new.default:
        yield False, f"parameter {old.name}: default {old.default or 'none'} became {new.default}"
