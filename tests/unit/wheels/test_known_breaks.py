"""Breaks that users met, made again with small wheels: each is told from the bytes, with who breaks."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairn.wheels.consumers import judge
from cairn.wheels.verify import Expectation, Finding, shape, verify
from helpers.formats import make_bundle, make_elf
from helpers.wheels import LINUX, build_wheel

MARKERS = {"python_version": "3.11", "python_full_version": "3.11.0", "sys_platform": "linux"}
# `c10::cuda::c10_cuda_check_implementation(int, …)`, whose first parameters became unsigned.
CHECK = "_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_ib"
CHECK_NOW = "_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_jb"


def _torch(folder: Path, version: str, *symbols: str) -> Path:
    files = {
        "torch/__init__.py": b"",
        "torch/lib/libc10_hip.so": make_elf(soname="libc10_hip.so", defined=symbols),
    }
    return build_wheel(folder, name="torch", version=version, tags=LINUX, requires=(), files=files)


def _user(folder: Path, name: str, *symbols: str) -> Path:
    module = make_elf(needed=["libc10_hip.so"], symbols=symbols)
    files = {f"{name}/__init__.py": b"", f"{name}/_C.cpython-311-x86_64-linux-gnu.so": module}
    return build_wheel(folder, name=name, tags=LINUX, requires=("torch",), files=files)


def _codes(findings: tuple[Finding, ...]) -> dict[str, str]:
    return {str(one.code): f"{one.member}: {one.reason}" for one in findings}


@pytest.mark.parametrize(
    ("consumer", "before", "after", "symbols"),
    [
        # ROCm/aiter#2843 and #2875: built against one torch, and installed beside the one that vLLM requires.
        pytest.param("aiter", "2.9.0", "2.10.0", [CHECK_NOW], id="ROCm/aiter#2843"),
        pytest.param("aiter", "2.10.0", "2.9.1", [], id="ROCm/aiter#2875"),
        pytest.param("nixl", "2.12.0", "2.13.0", [CHECK_NOW], id="pytorch/pytorch#187727"),
    ],
)
def test_a_symbol_that_is_gone_is_told_with_the_consumer(
    tmp_path: Path, consumer: str, before: str, after: str, symbols: list[str]
) -> None:
    old, new = _torch(tmp_path / "old", before, CHECK), _torch(tmp_path / "new", after, *symbols)
    (one,) = judge([old], [new], [_user(tmp_path, consumer, CHECK)], markers=MARKERS).breaks
    assert str(one) == (
        f"{consumer} 1.0 wants the symbol {CHECK}: torch {before} has it, {after} has not "
        f"({consumer}/_C.cpython-311-x86_64-linux-gnu.so)"
    )


def test_a_wheel_that_wants_a_newer_libstdcpp_is_told(tmp_path: Path) -> None:
    """ROCm/aiter#2752: `GLIBCXX_3.4.32' not found, where the tag promises glibc 2.28 and what is as old."""
    module = make_elf(needed=["libstdc++.so.6"], versions={"libstdc++.so.6": ["GLIBCXX_3.4.32"]})
    files = {"aiter/__init__.py": b"", "aiter/_C.cpython-311-x86_64-linux-gnu.so": module}
    wheel = build_wheel(tmp_path, name="aiter", tags=LINUX, requires=(), files=files)
    assert "GLIBCXX_3.4.32" in _codes(verify(wheel, Expectation()))["symbols-too-new"]


def test_an_architecture_that_a_time_limit_dropped_is_told(tmp_path: Path) -> None:
    """A build that was cut off after six hours, and published with the code that it had until then."""
    bundle = make_bundle({"hipv4-amdgcn-amd-amdhsa--gfx942": make_elf(machine=224, flags=0x54C)})
    library = make_elf(soname="libtorch_hip.so", sections={".hip_fatbin": bundle})
    wheel = build_wheel(
        tmp_path, name="torch", tags=LINUX, requires=(), files={"torch/libtorch_hip.so": library}
    )
    codes = _codes(verify(wheel, Expectation(targets=("gfx942", "gfx1100"))))
    assert "gfx1100" in codes["targets-missing"]


def test_wheels_of_one_version_with_different_metadata_are_told(tmp_path: Path) -> None:
    """astral-sh/uv#10119: uv takes the METADATA of one wheel for that of all."""
    linux = build_wheel(tmp_path, name="torch", tags=LINUX, requires=("triton==3.5.0",))
    windows = build_wheel(tmp_path, name="torch", tags=["cp311-cp311-win_amd64"], requires=())
    ((_, finding),) = shape.differences([linux, windows])
    assert str(finding.code) == "shape-differs"
    assert "triton==3.5.0" in finding.reason
