"""A linked wheel built with Debian's real HIP, made fat, and imported where there is no SDK package."""

from __future__ import annotations

import json
import os
import subprocess
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from cairn.formats.offload import code_object
from cairn.wheels.contents import binaries
from cairn.wheels.fat import build
from cairn.wheels.metadata import wheel_info
from cairn.wheels.repair import repair_linked
from cairn.wheels.verify import Expectation, verify
from cairn.wheels.verify.findings import FindingCode
from helpers.wheels import pip_install

PREFIX = Path("/usr")
HIP = "libamdhip64.so.5"
TARGETS = ("gfx90a", "gfx1030")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("debian_hip"),
]

SOURCE = """
#include <hip/hip_runtime.h>
__global__ void twice(float *x) { x[threadIdx.x] *= 2; }
extern "C" int devices() {
    int count = -1;
    return hipGetDeviceCount(&count) == hipSuccess ? count : 0;
}
extern "C" void launch(float *x) { twice<<<1, 64>>>(x); }
"""
PACKAGE = """
import ctypes, pathlib
from . import _rocm_init
_rocm_init.initialize()
devices = ctypes.CDLL(str(pathlib.Path(__file__).with_name("_hip.so"))).devices
"""
LINKED = """
def initialize():
    import rocm_sdk
    rocm_sdk.initialize_process(preload_shortnames=["amd_comgr", "amdhip64"], check_version="5.2.3")
"""
PROBE = """
import importlib.util, json, demo
loaded = {line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}
print(json.dumps({
    "devices": demo.devices(),
    "sdk": importlib.util.find_spec("rocm_sdk") is not None,
    "loaded": sorted(loaded),
}))
"""


@pytest.fixture(scope="module")
def extension(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("hip")
    (folder / "hip.cpp").write_text(SOURCE)
    command = ["hipcc", "-shared", "-fPIC", "-s", "-o", "_hip.so", "hip.cpp"]
    command += [f"--offload-arch={target}" for target in TARGETS]
    # As in a build against the SDK packages, whose libraries lie beside the wheel's own package.
    command += ["-Wl,-rpath,$ORIGIN/../_rocm_sdk_core/lib"]
    env = {**os.environ, "HIP_PLATFORM": "amd"}
    subprocess.run(command, cwd=folder, env=env, check=True, capture_output=True)
    return (folder / "_hip.so").read_bytes()


def test_a_fat_wheel_needs_no_sdk(extension: bytes, pack: Callable[..., Path], tmp_path: Path) -> None:
    members = {
        "demo/__init__.py": PACKAGE.encode(),
        "demo/_rocm_init.py": LINKED.encode(),
        "demo/_hip.so": extension,
    }
    requires = ("rocm[libraries]==5.2.3", "rocm-sdk-core==5.2.3", "filelock")
    wheel = pack(members, requires=requires)
    linked = repair_linked(wheel, tmp_path / "linked", exclude=(HIP,))
    assert verify(linked, Expectation(targets=TARGETS, provided_libraries=(HIP,))) == ()
    report = build.make(build.FatRequest(wheel=linked, rocm=PREFIX, output_dir=tmp_path / "fat"))
    made = Path(report.wheel)
    assert [path.name for path in (tmp_path / "fat").iterdir()] == [made.name]
    # Debian 12 links its runtime with an executable stack, and that is said of the wheel that takes it in.
    others = [each for each in verify(made, Expectation()) if each.code != FindingCode.EXECUTABLE_STACK]
    assert others == []
    info = wheel_info.read(made)
    assert (info.version, info.requires_dist) == ("1.0+fat", ("filelock",))
    assert report.targets == TARGETS
    assert report.changed == ("demo/_hip.so",)
    carried = {part.name: part for part in report.parts}
    # What is opened by name, and what that needs in turn.
    assert {"lib/libamd_comgr.so.2", "lib/libLLVM-15.so.1", f"lib/{HIP}"} <= carried.keys()
    own = next(binary for binary in binaries.read_wheel(made) if binary.path == "demo/_hip.so")
    assert (own.rpath, own.runpath) == (("$ORIGIN/lib",), ())
    assert own.code_objects == code_object.of_elf(extension)

    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    pip_install(made, pip=("--python", python))
    probe = [str(python), "-I", "-c", PROBE]
    done = subprocess.run(probe, check=True, capture_output=True, text=True, cwd=tmp_path)
    found = json.loads(done.stdout)
    assert not found["sdk"]
    assert found["devices"] >= 0
    site = str(tmp_path / "env")
    for part in ("libamdhip64", "libamd_comgr", "libLLVM-15", "libhsa-runtime64", "libnuma", "libelf"):
        assert [path for path in found["loaded"] if part in path and path.startswith(site)], part
        assert not [path for path in found["loaded"] if part in path and not path.startswith(site)], part
