"""`cairn rocm package --split`: the device code of the SDK's libraries in packages of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from msgspec import structs

from cairn.build import device_packages
from cairn.cli.main import main
from cairn.errors import WheelError
from cairn.rocm.package import PackageRequest
from cairn.wheels.contents import binaries
from cairn.wheels.metadata import wheel_info
from cairn.wheels.split.completeness import problems
from helpers.formats import make_bundle, make_code_object, make_elf
from helpers.hip_library import make_hip_library
from helpers.wheels import members_of

DESCRIPTION = """
schema = "cairn.rocm-packages/1"
[core]
files = ["lib/libamdhip64.so*"]
[libraries]
files = ["lib/librocblas.so*", "lib/rocblas/**", "share/miopen/**"]
[devel]
files = ["include/**"]
"""
TARGETS = ("gfx942", "gfx1100")


@pytest.fixture
def request_of_sdk(tmp_path: Path) -> PackageRequest:
    lib = tmp_path / "prefix" / "lib"
    (lib / "rocblas/library").mkdir(parents=True)
    (lib / "libamdhip64.so").write_bytes(make_elf())
    codes = {target: make_code_object(target, b"blas" * 300) for target in TARGETS}
    (lib / "librocblas.so").write_bytes(make_hip_library([make_bundle(codes)]))
    for name in (*TARGETS, "fallback"):
        (lib / f"rocblas/library/TensileLibrary_{name}.dat").write_text(name)
    database = tmp_path / "prefix/share/miopen/db"
    database.mkdir(parents=True)
    (database / "gfx942130.HIP.fdb.txt").write_text("fast")
    (tmp_path / "packages.toml").write_text(DESCRIPTION)
    return PackageRequest(
        prefix=tmp_path / "prefix",
        description=tmp_path / "packages.toml",
        version="7.14.0",
        targets=TARGETS,
        libraries_for_all=True,
        output_dir=tmp_path / "dist",
    )


def test_one_package_of_libraries_and_one_for_each_target(request_of_sdk: PackageRequest) -> None:
    made = device_packages.package_sdk(request_of_sdk)
    names = ["rocm-sdk-core", "rocm-sdk-libraries", "rocm-sdk-device-gfx942", "rocm-sdk-device-gfx1100"]
    assert [item.distribution for item in made] == [*names, "rocm-sdk-devel", "rocm"]
    assert sorted(item.path.name for item in made) == sorted(p.name for p in (made[0].path.parent).iterdir())
    host, first, second = (made[number].path for number in (1, 2, 3))
    assert binaries.targets_of(host) == ()
    assert wheel_info.read(first).requires_dist == ("rocm-sdk-libraries==7.14.0",)
    folder = "_rocm_sdk_libraries"
    assert {n for n in members_of(first) if "dist-info" not in n} == {
        f"{folder}/.kpack/rocm_sdk_libraries_gfx942.kpack",
        f"{folder}/lib/rocblas/library/TensileLibrary_gfx942.dat",
        f"{folder}/share/miopen/db/gfx942130.HIP.fdb.txt",
    }
    assert {n for n in members_of(second) if "dist-info" not in n} == {
        f"{folder}/.kpack/rocm_sdk_libraries_gfx1100.kpack",
        f"{folder}/lib/rocblas/library/TensileLibrary_gfx1100.dat",
    }
    assert f"{folder}/lib/rocblas/library/TensileLibrary_fallback.dat" in members_of(host)
    assert list(problems([host, first, second])) == []


def test_the_package_rocm_has_their_extras(request_of_sdk: PackageRequest, tmp_path: Path) -> None:
    *_, sdist = device_packages.package_sdk(request_of_sdk)
    with tarfile.open(sdist.path) as archive:
        archive.extractall(tmp_path, filter="data")
    (tree,) = tmp_path.glob("rocm-7.14.0")
    code = "from rocm_sdk import _backend; print(_backend.build_wheel('.'))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tree, capture_output=True, text=True, check=True, env={}
    )
    info = wheel_info.read(tree / done.stdout.strip())
    devices = {"device-gfx942", "device-gfx1100", "device-all"}
    assert set(info.extras) == {"devel", "libraries", "profiler", *devices}
    assert 'rocm-sdk-libraries==7.14.0; extra == "libraries"' in info.requires_dist
    wanted = 'rocm-sdk-libraries[device-gfx942]==7.14.0; extra == "device-gfx942"'
    assert wanted in info.requires_dist
    described = json.loads((tree / "rocm_sdk/_dist.json").read_text())
    assert set(described["folders"].values()) >= {"_rocm_sdk_libraries"}


def test_a_target_without_code_is_refused_and_nothing_is_left(request_of_sdk: PackageRequest) -> None:
    more = structs.replace(request_of_sdk, targets=(*TARGETS, "gfx950"))
    with pytest.raises(WheelError, match="no code for device-gfx950"):
        device_packages.package_sdk(more)
    assert not more.output_dir.exists()


def test_what_fails_leaves_an_earlier_sdk_whole(request_of_sdk: PackageRequest) -> None:
    made = device_packages.package_sdk(request_of_sdk)
    before = {item.path: item.path.read_bytes() for item in made}
    library = request_of_sdk.prefix and request_of_sdk.prefix / "lib/librocblas.so"
    assert library
    library.write_bytes(make_hip_library([make_bundle({"gfx942": make_code_object("gfx942", b"new" * 300)})]))
    with pytest.raises(WheelError, match="no code for device-gfx1100"):
        device_packages.package_sdk(request_of_sdk)
    assert {path: path.read_bytes() for path in request_of_sdk.output_dir.iterdir()} == before


@pytest.mark.parametrize(("version", "count"), [("7.14.0", 0), ("7.14.0a20261101", 0), ("7.13", 1)])
def test_the_command_splits(
    request_of_sdk: PackageRequest,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    version: str,
    count: int,
) -> None:
    words = ["--prefix", str(request_of_sdk.prefix), "--description", str(request_of_sdk.description)]
    words += ["--rocm-version", version, "--targets", ",".join(TARGETS)]
    words += ["--output-dir", str(tmp_path / "out")]
    assert main(["rocm", "package", *words, "--split"]) == 0
    assert len(list((tmp_path / "out").glob(f"rocm_sdk_device_*-{version}-py3-none-*.whl"))) == len(TARGETS)
    assert capsys.readouterr().err.count("7.14 is the first known to") == count
