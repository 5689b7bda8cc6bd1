"""Mutations of a set, each of which must be named with its consumer; and changes that break nobody."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from cairn.formats import cyclonedx
from cairn.formats.cyclonedx import Source
from cairn.formats.image import Symbol
from cairn.wheels.consumers import Break, Linkage, judge
from cairn.wheels.contents.binaries import Binary
from helpers.formats import make_bundle, make_code_object, make_elf
from helpers.wheels import LINUX, build_wheel

MARKERS = {"python_version": "3.11", "python_full_version": "3.11.0", "sys_platform": "linux"}
GPU = 'torchy-gpu; extra == "gpu"\nProvides-Extra: gpu'


def device_code(*targets: str) -> bytes:
    code = {f"hipv4-amdgcn-amd-amdhsa--{name}": make_code_object(name, b"code") for name in targets}
    return make_bundle(code) if code else b""


@dataclass(frozen=True, kw_only=True)
class TorchyParts:
    """What is in a wheel of the set."""

    version: str = "1.0"
    requires: Sequence[str] = ("numpy", "triton==3.5.0", GPU)
    exports: Sequence[str] = ("at_add", "at_mul", "at_extra")
    soname: str = "libtorchy.so.1"
    commit: str = "a" * 40
    targets: Sequence[str] = ("gfx942", "gfx1100")

    def build(self, folder: Path) -> Path:
        name = "torchy/lib/" + self.soname
        sections = {".hip_fatbin": device_code(*self.targets)}
        library = make_elf(soname=self.soname, defined=self.exports, sections=sections)
        sources = [Source(name="torchy", commit=self.commit)]
        bill = cyclonedx.document("torchy", self.version, sources=sources, rocm_version=None)
        files = {
            "torchy/__init__.py": b"",
            name: library,
            f"torchy-{self.version}.dist-info/{cyclonedx.NAME}": bill,
        }
        return build_wheel(
            folder, name="torchy", version=self.version, tags=LINUX, requires=self.requires, files=files
        )


OLD = TorchyParts()
NEW = TorchyParts(version="1.1", commit="b" * 40)


def consumer(folder: Path) -> Path:
    library = make_elf(
        needed=["libtorchy.so.1", "libc.so.6"],
        symbols=["at_add", "malloc", "at_mul"],
        sections={".hip_fatbin": device_code("gfx1100", "gfx1030")},
    )
    files = {"user/__init__.py": b"", "user/_C.cpython-311-x86_64-linux-gnu.so": library}
    return build_wheel(folder, name="user", tags=LINUX, requires=("torchy[gpu]<2", "triton<4"), files=files)


def breaks_of(folder: Path, new: TorchyParts) -> tuple[Break, ...]:
    wheels = [OLD.build(folder / "old")], [new.build(folder / "new")]
    return judge(*wheels, [consumer(folder / "consumer")], markers=MARKERS).breaks


@pytest.mark.parametrize(
    ("new", "kind", "name"),
    [
        pytest.param(
            dataclasses.replace(NEW, exports=("at_add", "at_extra")), "symbol", "at_mul", id="symbol removed"
        ),
        pytest.param(
            dataclasses.replace(NEW, exports=("at_add", "at_mul2")), "symbol", "at_mul", id="symbol renamed"
        ),
        pytest.param(dataclasses.replace(NEW, exports=()), "symbol", "at_add", id="every symbol removed"),
        pytest.param(
            dataclasses.replace(NEW, soname="libtorchy.so.2"), "library", "libtorchy.so.1", id="soname bumped"
        ),
        pytest.param(
            dataclasses.replace(NEW, version="2.0"), "requirement", "torchy[gpu]<2", id="version bumped"
        ),
        pytest.param(
            dataclasses.replace(NEW, version="2.0.0a1"),
            "requirement",
            "torchy[gpu]<2",
            id="pre-release of the next",
        ),
        pytest.param(
            dataclasses.replace(NEW, requires=("numpy", "triton==4.0")),
            "requirement",
            "triton<4 beside triton==4.0",
            id="pin",
        ),
        pytest.param(
            dataclasses.replace(NEW, targets=("gfx942",)),
            "target",
            "gfx1100",
            id="device code for one target",
        ),
        pytest.param(dataclasses.replace(NEW, targets=()), "target", "gfx1100", id="all device code"),
        pytest.param(
            dataclasses.replace(NEW, requires=("numpy", "triton==3.5.0")),
            "requirement",
            "torchy[gpu]",
            id="extra gone",
        ),
    ],
)
def test_a_mutation_is_named_with_its_consumer_and_the_commits(
    tmp_path: Path, new: TorchyParts, kind: str, name: str
) -> None:
    found = breaks_of(tmp_path, new)
    assert (kind, name) in {(one.kind, one.name) for one in found}
    assert {(one.consumer, one.provider, one.commits) for one in found} == {
        ("user", "torchy", ("a" * 40, "b" * 40))
    }
    assert all(f"aaaaaaaaaaaa..{'b' * 12}" in str(one) for one in found)


@pytest.mark.parametrize(
    "new",
    [
        pytest.param(NEW, id="the same under another version"),
        pytest.param(
            dataclasses.replace(NEW, targets=("gfx11-generic",)),
            id="a target by a generic one, and one of nobody",
        ),
        pytest.param(dataclasses.replace(NEW, exports=("at_add", "at_mul")), id="a symbol that nobody wants"),
    ],
)
def test_what_breaks_nobody_is_not_named(tmp_path: Path, new: TorchyParts) -> None:
    assert breaks_of(tmp_path, new) == ()


def test_a_version_of_a_symbol_must_be_there_unless_the_library_has_none() -> None:
    user = Binary(format="elf", machine="x86_64", path="u.so", size=1, needed=("libouter.so",))
    wanted = Symbol("f", "V_1", "libinner.so")

    def linkage(*exports: Symbol) -> Linkage:
        outer = Binary(
            format="elf", machine="x86_64", path="libouter.so", size=1, needed=("libinner.so", "libouter.so")
        )
        inner = Binary(format="elf", machine="x86_64", path="libinner.so", size=1, exports=frozenset(exports))
        return Linkage([outer, inner])

    assert linkage(Symbol("f", "V_1")).binding(user, wanted) is not None
    assert linkage(Symbol("f")).binding(user, wanted) is not None
    assert linkage(Symbol("f", "V_2")).binding(user, wanted) is None
    assert linkage(Symbol("f", "V_2")).binding(user, Symbol("f")) is not None
    assert linkage(Symbol("g", "V_1")).binding(user, wanted) is None
