"""Extension modules are for the Python, the ABI and the platform that the tag names."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairn.wheels.verify import Expectation, verify
from helpers.formats import make_dll, make_elf, make_macho
from helpers.wheels import MakeWheel, altered

LINUX, MUSL = "manylinux_2_28_x86_64", "musllinux_1_2_x86_64"
GNU = "x86_64-linux-gnu"
MACHINES = {"aarch64": 183, "i686": 3, "ppc64le": 21}


def found(wheel: Path) -> list[str | None]:
    assert all(finding.code == "module-abi" for finding in verify(wheel, Expectation()))
    return [finding.member for finding in verify(wheel, Expectation())]


@pytest.mark.parametrize(
    ("tag", "module", "fine"),
    [
        (f"cp312-cp312-{LINUX}", f"cpython-312-{GNU}.so", True),
        (f"cp311-cp311-{LINUX}", f"cpython-312-{GNU}.so", False),
        (f"cp311-none-{LINUX}", f"cpython-311-{GNU}.so", True),
        (f"cp311-none-{LINUX}", f"cpython-312-{GNU}.so", False),
        (f"cp311-cp311-{LINUX}", "abi3.so", True),
        (f"cp311-cp311-{LINUX}", "so", True),
        (f"cp39-abi3-{LINUX}", "abi3.so", True),
        (f"cp39-abi3-{LINUX}", f"cpython-39-{GNU}.so", False),
        (f"py3-none-{LINUX}", f"cpython-312-{GNU}.so", False),
        (f"py3-none-{LINUX}", "abi3.so", True),
        (f"cp313-cp313t-{LINUX}", f"cpython-313t-{GNU}.so", True),
        (f"cp313-cp313t-{LINUX}", f"cpython-313-{GNU}.so", False),
        (f"cp313-cp313t-{LINUX}", "abi3.so", False),
        (f"cp313-cp313-{LINUX}", f"cpython-313t-{GNU}.so", False),
        (f"cp37-cp37m-{LINUX}", f"cpython-37m-{GNU}.so", True),
        (f"cp37-cp37m-{LINUX}", f"cpython-38-{GNU}.so", False),
        (f"pp310-pypy310_pp73-{LINUX}", f"pypy310-pp73-{GNU}.so", True),
        (f"pp311-pypy311_pp73-{LINUX}", f"pypy310-pp73-{GNU}.so", False),
        (f"pp310-pypy310_pp73-{LINUX}", f"cpython-310-{GNU}.so", False),
        (f"cp310-cp310-{LINUX}", f"pypy310-pp73-{GNU}.so", False),
        (f"cp312-cp312-{LINUX}", "cpython-312-x86_64-linux-musl.so", False),
        (f"cp312-cp312-{MUSL}", "cpython-312-x86_64-linux-musl.so", True),
        (f"cp312-cp312-{MUSL}", f"cpython-312-{GNU}.so", False),
        (f"cp310-cp310-{MUSL}", f"cpython-310-{GNU}.so", True),
        (f"cp312-cp312-{LINUX}", "cpython-312-darwin.so", False),
        (f"cp312-cp312-{LINUX}", "cpython-312-aarch64-linux-gnu.so", False),
        ("cp312-cp312-manylinux_2_28_aarch64", "cpython-312-aarch64-linux-gnu.so", True),
        ("cp312-cp312-manylinux_2_28_i686", "cpython-312-i386-linux-gnu.so", True),
        ("pp311-pypy311_pp73-manylinux_2_28_i686", "pypy311-pp73-x86-linux-gnu.so", True),
        ("pp311-pypy311_pp73-musllinux_1_2_i686", "pypy311-pp73-x86-linux-gnu.so", True),
        (f"pp311-pypy311_pp73-{LINUX}", "pypy311-pp73-x86-linux-gnu.so", False),
        ("pp311-pypy311_pp73-manylinux_2_28_ppc64le", "pypy311-pp73-ppc_64-linux-gnu.so", True),
        (f"cp312-cp312-{LINUX}", f"cpython-312d-{GNU}.so", False),  # Python's debug build alone opens it
        (f"cp313-cp313t-{LINUX}", f"cpython-313td-{GNU}.so", False),
    ],
)
def test_names_of_modules(make_wheel: MakeWheel, tag: str, module: str, *, fine: bool) -> None:
    machine = next((number for name, number in MACHINES.items() if tag.endswith(name)), 62)
    binary = make_elf(machine=machine, defined=("PyInit_m",))
    wheel = make_wheel(tags=(tag,), pure=False, files={f"demo/m.{module}": binary})
    old = "demo-1.0.dist-info/METADATA"
    altered(wheel, {old: lambda data: data.replace(b">=3.9", b">=3.7")}, record=True)
    assert found(wheel) == ([] if fine else [f"demo/m.{module}"])


@pytest.mark.parametrize(
    ("tag", "module", "fine"),
    [
        ("cp312-cp312-win_amd64", "cp312-win_amd64.pyd", True),
        ("cp311-cp311-win_amd64", "cp312-win_amd64.pyd", False),
        ("cp312-cp312-win_amd64", "cp312-win32.pyd", False),
        ("cp313-cp313t-win_amd64", "cp313t-win_amd64.pyd", True),
        ("cp313-cp313t-win_amd64", "cp313-win_amd64.pyd", False),
        ("cp39-abi3-win_amd64", "cp312-win_amd64.pyd", False),
        ("pp310-pypy310_pp73-win_amd64", "pypy310-pp73-win_amd64.pyd", True),
        ("pp310-pypy310_pp73-win_amd64", "cp310-win_amd64.pyd", False),
        ("cp312-cp312-win_amd64", "pyd", True),
    ],
)
def test_names_of_modules_on_windows(make_wheel: MakeWheel, tag: str, module: str, *, fine: bool) -> None:
    wheel = make_wheel(tags=(tag,), pure=False, files={f"demo/m.{module}": make_dll(exports=("PyInit_m",))})
    assert found(wheel) == ([] if fine else [f"demo/m.{module}"])


@pytest.mark.parametrize(
    ("platform", "module", "fine"),
    [
        ("macosx_11_0_arm64", "cpython-312-darwin.so", True),
        ("macosx_11_0_arm64", "cpython-311-darwin.so", False),
        ("macosx_11_0_arm64", f"cpython-312-{GNU}.so", False),
        ("ios_13_0_arm64_iphoneos", "cpython-312-iphoneos.so", True),
        ("android_21_x86_64", "cpython-312-x86_64-linux-android.so", True),
    ],
)
def test_names_of_modules_elsewhere(make_wheel: MakeWheel, platform: str, module: str, *, fine: bool) -> None:
    on_apple = not platform.startswith("android")
    symbols = ("PyInit_m",)
    module_file = make_macho(defined=symbols) if on_apple else make_elf(defined=symbols)
    files = {f"demo/m.{module}": module_file}
    wheel = make_wheel(tags=(f"cp312-cp312-{platform}",), pure=False, files=files)
    assert found(wheel) == ([] if fine else [f"demo/m.{module}"])


@pytest.mark.parametrize(
    ("tag", "dll", "fine"),
    [
        ("cp312-cp312-win_amd64", "python312.dll", True),
        ("cp311-cp311-win_amd64", "python312.dll", False),
        ("cp39-abi3-win_amd64", "python3.dll", True),
        ("cp39-abi3-win_amd64", "python311.dll", False),
        ("cp39-abi3-win_amd64", "python39.dll", False),
        ("cp313-cp313t-win_amd64", "python313t.dll", True),
        ("cp313-cp313-win_amd64", "python313t.dll", False),
    ],
)
def test_what_a_module_is_linked_with(make_wheel: MakeWheel, tag: str, dll: str, *, fine: bool) -> None:
    wheel = make_wheel(tags=(tag,), pure=False, files={"demo/m.pyd": make_dll((dll,), exports=("PyInit_m",))})
    assert found(wheel) == ([] if fine else ["demo/m.pyd"])


def test_modules_for_several_pythons(make_wheel: MakeWheel) -> None:
    def stale(*tags: str, names: tuple[str, ...]) -> list[str | None]:
        files = {f"demo/m.{name}": make_elf(defined=("PyInit_m",)) for name in names}
        return found(make_wheel(tags=tags, pure=False, files=files))

    two = (f"cpython-311-{GNU}.so", f"cpython-312-{GNU}.so")
    assert stale(f"py3-none-{LINUX}", names=two) == []
    pairs = [f"{python}-{abi}-{LINUX}" for python in ("cp311", "cp312") for abi in ("cp311", "cp312")]
    assert stale(*pairs, names=two) == []
    assert stale(f"cp312-cp312-{LINUX}", names=two) == [f"demo/m.cpython-311-{GNU}.so"]
    assert stale(f"py3-none-{LINUX}", names=(two[0], "so")) == []
