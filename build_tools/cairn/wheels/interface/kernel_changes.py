"""What changed among the kernels of two wheels, target by target."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from cairn.formats.offload.kernels import Kernel
from cairn.targets import in_order

# clang names what is local to a source file with a hash of that file (clang/lib/CodeGen, `-fgpu-rdc`).
_OF_FILE = re.compile(r"\.(?:static|intern|anon)\.[0-9a-f]+$|__(?:static|intern)__[0-9a-f]+$")
_MEASURES = ("vgprs", "agprs", "sgprs", "vgpr_spills", "sgpr_spills", "lds", "scratch")


@dataclass(frozen=True, kw_only=True)
class KernelChange:
    """A kernel that takes other resources.

    Attributes:
        name: its name.
        measures: which, with the values before and after.
        size: bytes of its code before and after.
    """

    name: str
    measures: dict[str, tuple[int, int]]
    size: tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class TargetChange:
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


def between(one: Iterable[Kernel], other: Iterable[Kernel]) -> tuple[TargetChange, ...]:
    """What changed, for each target where anything did."""
    old, new = _by_target(one), _by_target(other)
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
