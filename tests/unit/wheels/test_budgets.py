"""Budgets of a wheel: what it is over is named with the number."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from cairn.formats.image import Symbol
from cairn.formats.offload.code_object import CodeObject
from cairn.formats.offload.kernels import Kernel
from cairn.stack import Budget
from cairn.wheels import budgets
from cairn.wheels.interface.model import Interface, Library
from cairn.wheels.interface.read import read_interface
from helpers.wheels import build_wheel

EXPORTS = ("_ZN3c106TensorC1Ev", "_ZNK2at6Tensor3addEv", "_ZTVN3c105ErrorE", "_ZN8internal1fEv", "PyInit_x")
KERNELS = (("gemm", "gfx942", 3), ("gemm", "gfx1100", 0), ("roll", "gfx942", 0))


def _code(target: str) -> CodeObject:
    fields = dict.fromkeys(CodeObject.__struct_fields__, 0)
    return CodeObject(**{**fields, "target": target})


def wheel(
    folder: Path,
    *,
    exports: tuple[str, ...] = EXPORTS,
    kernels: tuple[tuple[str, str, int], ...] = KERNELS,
    requires: tuple[str, ...] = ("triton==3.5.0", "filelock"),
) -> Interface:
    read = read_interface(build_wheel(folder, requires=requires), python=False)
    library = Library(
        format="elf",
        machine="x86_64",
        path="demo/lib.so",
        size=1,
        exports=frozenset(map(Symbol, exports)),
        code_objects=tuple(_code(target) for target in dict.fromkeys(target for _, target, _ in kernels)),
        kernels=tuple(Kernel(name, target, vgpr_spills=spills) for name, target, spills in kernels),
    )
    return dataclasses.replace(read, libraries=(library,))


@pytest.mark.parametrize(
    ("budget", "change", "said"),
    [
        (Budget(spills=2), {}, "3 registers spilled, 1 over the budget of 2"),
        (
            Budget(kernels_lost=0),
            {"kernels": KERNELS[:2]},
            "1 kernels lost since 1.0, where the budget is 0: roll for gfx942",
        ),
        (Budget(kernels_lost=0), {"kernels": (*KERNELS[1:], ("gem", "gfx942", 0))}, "gemm for gfx942"),
        (
            Budget(targets_lost=0),
            {"kernels": (KERNELS[0], KERNELS[2])},
            "1 targets lost since 1.0, where the budget is 0: gfx1100",
        ),
        (
            Budget(symbols_lost=1),
            {"exports": EXPORTS[2:]},
            "2 symbols lost since 1.0, where the budget is 1: _ZN3c106TensorC1Ev, _ZNK2at6Tensor3addEv",
        ),
        (
            Budget(symbols_lost=1, namespaces=("c10",)),
            {"exports": ()},
            "2 symbols lost since 1.0, where the budget is 1: _ZN3c106TensorC1Ev, _ZTVN3c105ErrorE",
        ),
        (Budget(symbols_lost=0, namespaces=("at::Tensor",)), {"exports": ()}, "_ZNK2at6Tensor3addEv"),
        (
            Budget(new_requirements=0),
            {"requires": ("triton==3.5.0", "filelock", "jinja2")},
            "1 requirements new since 1.0, where the budget is 0: jinja2",
        ),
        (
            Budget(loosened_requirements=0),
            {"requires": ("triton>=3.5", "filelock")},
            "1 requirements that were exact in 1.0, where the budget is 0: triton",
        ),
        (Budget(wheel_size=10), {}, "over the budget of 10"),
        (Budget(installed_size=10), {}, "over the budget of 10"),
    ],
)
def test_what_is_over_is_named_with_the_number(
    tmp_path: Path, budget: Budget, change: dict[str, object], said: str
) -> None:
    old, new = wheel(tmp_path / "old"), wheel(tmp_path / "new", **change)  # type: ignore[arg-type]
    ((name, text),) = budgets.over(budget, old, new)
    assert said in text
    assert getattr(budget, name) is not None


def test_what_is_within_is_not_named(tmp_path: Path) -> None:
    every = {
        name: 0
        for name in Budget.__struct_fields__
        if name not in ("wheel_size", "installed_size", "namespaces")
    }
    old = wheel(tmp_path / "old")
    new = wheel(tmp_path / "new", exports=(*EXPORTS, "more"), requires=("triton==3.6.0",))
    # A kernel of a target that is gone is not counted twice.
    within = Budget(**{**every, "spills": 3})
    assert list(budgets.over(within, old, new)) == []
    fewer = wheel(tmp_path / "fewer", kernels=(KERNELS[0], KERNELS[2]))
    assert [name for name, _ in budgets.over(within, old, fewer)] == ["targets_lost"]
    assert [name for name, _ in budgets.over(Budget(targets_lost=0, spills=2), None, new)] == ["spills"]
