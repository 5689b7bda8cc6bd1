"""Debian's ROCm as SDK packages: real hipcc, real runtime, real headers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from cairn.rocm import install, package
from cairn.venv import PackageSource
from helpers.rocm import targets_in

DESCRIPTION = Path(__file__).parents[3] / "external-builds" / "sample" / "rocm" / "debian" / "packages.toml"
TARGETS = ("gfx90a", "gfx1030")
NO_DEVICE = 100  # hipErrorNoDevice
LOADED = """
import ctypes, sys, rocm_sdk
rocm_sdk.initialize_process(preload_shortnames=["amd_comgr", "amdhip64"], check_version="5.2.*")
print(ctypes.CDLL(sys.argv[1]).launch())
print({line.split()[-1] for line in open("/proc/self/maps") if "libamdhip64" in line})
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("debian_hip"),
]


@pytest.fixture(scope="module")
def debian_dists(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("debian")
    request = package.PackageRequest(
        prefix=Path("/usr"), description=DESCRIPTION, version="5.2.3", targets=TARGETS, output_dir=folder
    )
    package.package(request)
    return folder


def test_debians_rocm_installs_tests_itself_and_compiles(
    debian_dists: Path,
    new_environment: Path,
    kernels: Path,
    tmp_path: Path,
) -> None:
    (tmp_path / "empty").mkdir()
    libraries = ("libraries",) if any(debian_dists.glob("rocm_sdk_libraries_*")) else ()
    info = install.install(
        install.InstallRequest(
            python=new_environment,
            source=PackageSource(index_url=(tmp_path / "empty").as_uri(), find_links=(str(debian_dists),)),
            extras=("devel", *libraries),
        )
    )
    assert info is not None
    assert info.version == "5.2.3"
    assert str((info.root / "lib" / "libamdhip64.so").readlink()).endswith(
        "_rocm_sdk_core/lib/libamdhip64.so.5"
    )
    tested = subprocess.run(
        [new_environment.with_name("rocm-sdk"), "test"], capture_output=True, text=True, check=False
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr

    # As a build sees it: ROCM_PATH is the SDK, and Debian's hipcc must find its own parts all the same.
    env = os.environ | {"ROCM_PATH": str(info.root), "ROCM_HOME": str(info.root)}
    made = tmp_path / "native.so"
    archs = [f"--offload-arch={target}" for target in TARGETS]
    command = [info.bin / "hipcc", "-shared", "-fPIC", "-O2", *archs, kernels, "-o", made]
    compiled = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert compiled.returncode == 0, compiled.stderr
    assert targets_in(made) == sorted(TARGETS)
    ran = subprocess.run([new_environment, "-c", LOADED, made], check=True, capture_output=True, text=True)
    site = info.root.parent
    assert ran.stdout == f"{NO_DEVICE}\n{{'{site}/_rocm_sdk_core/lib/libamdhip64.so.5'}}\n"


def test_every_wheel_says_that_it_is_not_portable(debian_dists: Path) -> None:
    tags = {path.name.split("-", 2)[2] for path in debian_dists.glob("*.whl")}
    assert tags == {"py3-none-linux_x86_64.whl"}
