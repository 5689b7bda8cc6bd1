"""Mutations of a wheel, each of which is told by name."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from cairn.wheels.interface.difference import Delta, between, diff
from cairn.wheels.interface.model import FileState
from cairn.wheels.interface.read import read_interface
from cairn.wheels.interface.sections import demangled, sections
from helpers.formats import make_bundle, make_code_object, make_elf
from helpers.wheels import LINUX, MakeWheel

ADD = {".name": "_Z3addPf", ".vgpr_count": 8, ".sgpr_count": 10}
MUL = {".name": "_Z3mulPf", ".vgpr_count": 4}
MODULE = "def solve(a, b=1, *, fast=False): ...\nclass Model:\n    def run(self, x): ...\nSIZE = 1\n"


def library(
    *,
    exports: tuple[str, ...] = ("_Z5solvei", "old_name"),
    schema: str = "demo::solve(Tensor a, int b=1) -> Tensor",
    kernels: Mapping[str, list[dict[str, object]]] | None = None,
    needed: str = "libamdhip64.so.6",
    versions: tuple[str, ...] = ("GLIBC_2.17",),
    compiler: str = "GCC: (GNU) 13.3.1",
) -> bytes:
    kernels = kernels if kernels is not None else {"gfx942": [ADD, MUL], "gfx1100": [ADD, MUL]}
    codes = {target: make_code_object(target, b"code", of) for target, of in kernels.items()}
    return make_elf(
        needed=(needed,),
        versions={"libc.so.6": versions},
        defined=exports,
        sections={
            ".rodata": f"x\0{schema}\0y".encode(),
            ".comment": compiler.encode() + b"\0",
            ".hip_fatbin": make_bundle(codes),
        },
    )


def wheel(
    make_wheel: MakeWheel,
    version: str,
    module: str = MODULE,
    requires: tuple[str, ...] = ("numpy>=2",),
    place: str = "demo/lib/libdemo.so",
    **of_library: object,
) -> Path:
    files = {"demo/__init__.py": module.encode(), place: library(**of_library), "demo/data.bin": b"1" * 99}  # type: ignore[arg-type]
    return make_wheel(version=version, tags=LINUX, files=files, requires=requires)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"exports": ("old_name",)}, "- exported symbol solve(int)"),
        ({"exports": ("_Z5solvei", "new_name")}, "- exported symbol old_name"),
        ({"exports": ("_Z5solvel", "old_name")}, "+ exported symbol solve(long)"),
        (
            {"schema": "demo::other(Tensor a) -> Tensor"},
            "- operator demo::solve(Tensor a, int b=1) -> Tensor",
        ),
        ({"schema": "demo::solve(Tensor a) -> Tensor"}, "+ operator demo::solve(Tensor a) -> Tensor"),
        ({"kernels": {"gfx942": [ADD, MUL], "gfx1100": [ADD]}}, "- gfx1100 kernel mul(float*)"),
        ({"kernels": {"gfx942": [ADD, MUL]}}, "- target gfx1100"),
        (
            {
                "kernels": {
                    "gfx942": [ADD | {".vgpr_count": 16, ".vgpr_spill_count": 3}, MUL],
                    "gfx1100": [ADD, MUL],
                }
            },
            "~ gfx942 kernel add(float*): vgprs 8 -> 16, vgpr spills 0 -> 3",
        ),
        ({"needed": "libamdhip64.so.7"}, "+ demo/lib/libdemo.so: needed libamdhip64.so.7"),
        ({"versions": ("GLIBC_2.34",)}, "+ demo/lib/libdemo.so: version needs libc.so.6: GLIBC_2.34"),
        ({"compiler": "GCC: (GNU) 14.2.0"}, "+ compiler GCC: (GNU) 14.2.0"),
        ({"requires": ("numpy>=1",)}, "- requires numpy>=2"),
        ({"place": "demo/libdemo.so"}, "> file demo/lib/libdemo.so -> demo/libdemo.so"),
        ({"module": MODULE.replace("def solve", "def solved")}, "- Python name demo.solve"),
        ({"module": MODULE.replace("def run(", "def _run(")}, "- Python name demo.Model.run"),
        (
            {"module": MODULE.replace(", fast=False", "").replace(", *", "")},
            "~ Python signature demo.solve: parameter fast is gone",
        ),
        (
            {"module": MODULE.replace("b=1", "b")},
            "~ Python signature demo.solve: parameter b must be given: its default 1 is gone",
        ),
        (
            {"module": MODULE.replace("run(self, x)", "run(self, x, y)")},
            "~ Python signature demo.Model.run: parameter y is new and must be given",
        ),
        (
            {"module": MODULE.replace("class Model:", "Model = 1\nclass _Other:")},
            "~ Python signature demo.Model: class became attribute",
        ),
    ],
)
def test_each_mutation_is_told(make_wheel: MakeWheel, change: dict[str, object], expected: str) -> None:
    before, after = wheel(make_wheel, "1.0"), wheel(make_wheel, "1.1", **change)  # type: ignore[arg-type]
    assert expected in told(before, after)


def test_what_breaks_nobody_is_no_breakage(make_wheel: MakeWheel) -> None:
    module = MODULE.replace("fast=False", "fast=True, deep=1") + "def more(): ...\n"
    found = diff(wheel(make_wheel, "1.0"), wheel(make_wheel, "1.1", module))
    assert found.python is not None
    assert (found.python.removed, found.python.breaking) == ((), ())
    assert found.python.added == ("demo.more",)
    assert found.python.other == (
        "demo.solve: parameter fast: default False became True",
        "demo.solve: parameter deep is new",
    )
    assert not found.exports
    assert not found.operators
    assert found.kernels == ()


def test_what_the_standard_library_brings_along_is_no_export(make_wheel: MakeWheel) -> None:
    """As of sentencepiece 0.2.0, which has libstdc++ in it: 40 lines that hid the others."""
    names = ("_ZGTtNKSt11logic_error4whatEv", "_ZGVNSt7__cxx118numpunctIcE2idE", "_ZNSt11logic_errorC1EPKc")
    one, other = wheel(make_wheel, "1.0", exports=("own", *names)), wheel(make_wheel, "1.1", exports=("own",))
    found = diff(one, other)
    assert (found.exports.removed, found.exports.added) == ((), ())


def test_other_spellings_are_no_difference(make_wheel: MakeWheel) -> None:
    """As of a wheel that an older backend made: PEP 508 allows them all."""
    old = ("Odd.Name (>=1,<3) ; extra == 'a_b'", "more[x_y,b] >= 2.0", "no requirement!", "demo==1.0")
    new = ('odd-name<3,>=1; extra == "a-b"', "more[b,x-y]>=2.0", "no requirement!", "demo==1.1")
    found = diff(wheel(make_wheel, "1.0", requires=old), wheel(make_wheel, "1.1", requires=new))
    assert (found.requirements.removed, found.requirements.added) == ((), ())
    changed = diff(wheel(make_wheel, "1.0", requires=old), wheel(make_wheel, "1.1", requires=new[1:]))
    assert changed.requirements.removed == old[:1]


def test_requirements_that_only_packaging_reads_are_compared_as_they_stand(make_wheel: MakeWheel) -> None:
    """It parses them, and fails when they are used, or calls itself: see `cairn.requirements`."""
    deep = f"demo; {'(' * 3000}python_version > '3'{')' * 3000}"
    old, new = (deep, "more>=" + "9" * 5000), (deep, "more>=" + "8" * 5000)
    found = diff(wheel(make_wheel, "1.0", requires=old), wheel(make_wheel, "1.1", requires=new))
    assert (found.requirements.removed, found.requirements.added) == (old[1:], new[1:])


@pytest.mark.parametrize(
    ("before", "after"),
    [("040039e1", "a34b3233"), ("040039e1-24d445f2", "a34b3233-9fc2dc19")],  # the latter repaired twice
)
def test_grafted_libraries_are_the_same_under_another_hash(
    make_wheel: MakeWheel, before: str, after: str
) -> None:
    wheels = [
        make_wheel(
            version=version,
            tags=LINUX,
            files={
                "demo/_C.so": make_elf(needed=(f"libgomp-{digest}.so.1",)),
                f"demo.libs/libgomp-{digest}.so.1": make_elf(
                    soname=f"libgomp-{digest}.so.1", defined=exports
                ),
            },
        )
        for version, digest, exports in (("1.0", before, ("a", "b")), ("1.1", after, ("b",)))
    ]
    found = diff(*wheels)
    (change,) = found.libraries
    assert (change.member, change.exports.removed) == (f"demo.libs/libgomp-{after}.so.1", ("a",))
    assert not found.files


@pytest.mark.parametrize("name", ["LICENSE", "LICENSE-{}"])
def test_many_files_of_one_content_that_moved_cost_as_much_as_they_are(
    make_wheel: MakeWheel, name: str
) -> None:
    one = read_interface(make_wheel(), python=False)
    content = FileState(size=9, crc=1, executable=False, stamp=0)
    old, new = (
        dataclasses.replace(one, files={f"demo/{place}/{n}/{name.format(n)}": content for n in range(20_000)})
        for place in ("a", "b")
    )
    began = time.process_time()
    found = between(old, new)
    assert time.process_time() - began < 3  # 10 s where each is compared with each
    assert found.renamed[f"demo/a/77/{name.format(77)}"].endswith(f"/{name.format(77)}")
    assert (len(found.renamed), found.files) == (20_000, Delta())


def told(before: Path, after: Path) -> list[str]:
    return [
        " ".join(part for part in (line.sign, section.kind, line.text) if part)
        for section in sections(diff(before, after))
        for line in section.lines
    ]


def test_symbols_are_written_as_in_source_files() -> None:
    assert demangled("_ZN2at6TensorD1Ev@V_1") == "at::Tensor::~Tensor()@V_1"
    assert demangled("plain") == "plain"
    assert demangled("_Zbroken") == "_Zbroken"
