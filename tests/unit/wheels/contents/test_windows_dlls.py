from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cairn.formats.zip.reader import Archive
from cairn.wheels.contents import binaries, system_libraries
from cairn.wheels.verify import Expectation, verify
from helpers.formats import make_bundle, make_code_object, make_dll
from helpers.wheels import MakeWheel

INIT = ("PyInit__C",)


def windows_wheel(make_wheel: MakeWheel, files: Mapping[str, bytes]) -> Path:
    return make_wheel(tags=("cp311-cp311-win_amd64",), requires=(), files=files)


def test_device_code_of_dlls(make_wheel: MakeWheel) -> None:
    code = make_bundle({t: make_code_object(t, b"code") for t in ("gfx1100", "gfx1101")})
    dll = make_dll(("KERNEL32.dll",), exports=INIT, sections={".hip_fat": code + bytes(64)})
    wheel = windows_wheel(make_wheel, {"demo/_C.pyd": dll})
    with Archive.open(wheel) as archive:
        (library,) = binaries.read_archive(archive)
    assert library.targets == ("gfx1100", "gfx1101")
    assert verify(wheel, Expectation(targets=("gfx1100", "gfx1101"), require_device_code=True)) == ()
    found = {(f.code, f.member) for f in verify(wheel, Expectation(targets=("gfx1100", "gfx942")))}
    assert found == {("targets-missing", "demo/_C.pyd"), ("targets-unexpected", "demo/_C.pyd")}
    without = windows_wheel(make_wheel, {"demo/_C.pyd": make_dll(exports=INIT)})
    found = {
        (f.code, f.member)
        for f in verify(without, Expectation(targets=("gfx942",), require_device_code=True))
    }
    assert found == {("no-device-code", None)}
    broken = windows_wheel(make_wheel, {"demo/_C.pyd": make_dll(sections={".hip_fat": b"x" * 99})})
    assert [f.code for f in verify(broken, Expectation())] == ["binary-malformed"]


def test_needs_are_told_whatever_their_case(make_wheel: MakeWheel) -> None:
    dll = make_dll(
        ("Other.DLL", "python311.dll", "api-ms-win-crt-heap-l1-1-0.dll"), ("Later.dll",), exports=INIT
    )
    wheel = windows_wheel(make_wheel, {"demo/_C.pyd": dll, "demo/other.dll": make_dll(("KERNEL32.dll",))})
    (finding,) = verify(wheel, Expectation())
    assert (finding.code, finding.member) == ("needed", "demo/_C.pyd")
    assert "later.dll" in finding.reason
    assert verify(wheel, Expectation(provided_libraries=("LATER*.dll",))) == ()
    apart = windows_wheel(
        make_wheel, {"demo/_C.pyd": make_dll(("x.dll",), exports=INIT), "demo/lib/x.dll": make_dll()}
    )
    assert [finding.code for finding in verify(apart, Expectation())] == ["dll-folder"]


def test_what_every_windows_has() -> None:
    for name in (
        "KERNEL32.dll",
        "ws2_32.dll",
        "api-ms-win-core-path-l1-1-0.dll",
        "python3.dll",
        "VCRUNTIME140.dll",
    ):
        assert system_libraries.on_windows(name, "win_amd64"), name
    for name in ("amdhip64_7.dll", "msvcp140.dll", "rocblas.dll", "kernel32.so"):
        assert not system_libraries.on_windows(name, "win_amd64"), name
