"""A handful of Debian's packages, as they are on its mirrors, as an SDK."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from cairn.cli import main
from cairn.rocm import install
from cairn.venv import PackageSource

PACKAGES = (
    "libamd-comgr2", "libamdhip64-5", "libamdhip64-dev", "libhiprand1", "libhsa-runtime64-1", "libhsakmt1",
    "librocrand1", "libbsd0", "libdrm-amdgpu1", "libdrm2", "libedit2", "libelf1", "libffi8", "libicu72",
    "libllvm15", "liblzma5", "libmd0", "libnuma1", "libtinfo6", "libxml2", "libz3-4",
)  # fmt: skip
LOADED = """
import rocm_sdk
rocm_sdk.initialize_process(preload_shortnames=["amd_comgr", "amdhip64", "hiprand"], check_version="5.2.*")
lines = [line.split() for line in open("/proc/self/maps")]
print(*sorted({line[-1] for line in lines if "/lib/lib" in line[-1] and "rocm_sdk" in line[-1]}), sep="\\n")
"""

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("debian_hip")]


@pytest.fixture(scope="module")
def debs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages, from the mirror that this machine uses."""
    folder = tmp_path_factory.mktemp("debs")
    apt = shutil.which("apt-get")
    command = [apt or "apt-get", "download", *PACKAGES]
    if apt is None or subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode:
        pytest.skip("no mirror of Debian's here: apt-get update")
    return folder


def test_packages_of_debian_become_an_sdk_that_tests_itself(
    debs: Path, new_environment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "dist"
    words = ["rocm", "package", "--debs", str(debs), "--rocm-version", "5.2.3", "--targets", "gfx1030"]
    assert main.main([*words, "--output-dir", str(output), "--json"]) == 0
    core, libraries = (Path(each["path"]) for each in json.loads(capsys.readouterr().out)[:2])

    # What they are made of, and under which licence.
    info = "rocm_sdk_libraries_gfx103x_all-5.2.3.dist-info"
    with zipfile.ZipFile(libraries) as wheel:
        parts = json.loads(wheel.read(f"{info}/sboms/cairn.cdx.json"))["components"]
        assert b"Advanced Micro Devices" in wheel.read(f"{info}/licenses/librocrand1/copyright")
    sums = {part["name"]: part["hashes"][0]["content"] for part in parts}
    assert sums.keys() == {"libhiprand1", "librocrand1"}
    assert sums["librocrand1"] == hashlib.sha256(next(debs.glob("librocrand1_*")).read_bytes()).hexdigest()
    with zipfile.ZipFile(core) as wheel:
        names = [name for name in wheel.namelist() if name.startswith("_rocm_sdk_core/lib/")]
    # Debian 12 has this one in /lib.
    assert "_rocm_sdk_core/lib/libtinfo.so.6" in names
    assert all(name.endswith(("/__init__.py", ".so")) or ".so." in name for name in names)

    (tmp_path / "empty").mkdir()
    index = PackageSource(
        index_url=(tmp_path / "empty").as_uri(), find_links=(str(output),), cache_dir=tmp_path / "cache"
    )
    installed = install.install(install.InstallRequest(python=new_environment, source=index))
    assert installed is not None
    assert (installed.version, installed.targets) == ("5.2.3", ("gfx1030",))
    program = new_environment.with_name("rocm-sdk")
    tested = subprocess.run([program, "test"], capture_output=True, text=True, check=False)
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert "this SDK has no programs" in tested.stdout  # hipcc is not among the packages
    loaded = subprocess.run([new_environment, "-c", LOADED], capture_output=True, text=True, check=True)
    names = [Path(line).name for line in loaded.stdout.split()]
    assert {"libamdhip64.so.5", "libhiprand.so.1", "libLLVM-15.so.1", "libtinfo.so.6"} <= set(names)
