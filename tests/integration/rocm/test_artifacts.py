"""A tree of artifacts, as TheRock's build leaves it, becomes packages for several families."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cairn.errors import UsageError
from cairn.rocm import install, package
from cairn.rocm.package import PackageRequest
from cairn.venv import PackageSource


@pytest.mark.slow
def test_every_family_gets_its_own_libraries(artifacts: Path, tmp_path: Path, new_environment: Path) -> None:
    dists = package.package(
        PackageRequest(artifacts=artifacts, version="7.10.0a20251124", output_dir=tmp_path / "dists")
    )
    assert [d.distribution for d in dists] == [
        "rocm-sdk-core",
        "rocm-sdk-libraries-gfx942",
        "rocm-sdk-libraries-gfx110X-all",
        "rocm-sdk-devel",
        "rocm",
    ]
    (tmp_path / "empty").mkdir()
    info = install.install(
        install.InstallRequest(
            python=new_environment,
            source=PackageSource(
                index_url=(tmp_path / "empty").as_uri(),
                find_links=(str(tmp_path / "dists"),),
                cache_dir=tmp_path / "cache",
                pre=True,
            ),
            family="gfx1103",
        )
    )
    assert info is not None
    assert (info.version, info.targets) == ("7.10.0a20251124", ("gfx1100", "gfx1101", "gfx1102", "gfx1103"))
    site = info.root.parent
    assert not (site / "_rocm_sdk_libraries_gfx942").exists()
    assert (info.root / "lib/libhiprand.so").resolve() == (
        site / "_rocm_sdk_libraries_gfx110X_all/lib/libhiprand.so.1"
    )
    assert (info.root / "lib/libamdhip64.so").resolve() == site / "_rocm_sdk_core/lib/libamdhip64.so.6"
    assert (info.bin / "hipcc").resolve() == site / "_rocm_sdk_core/lib/llvm/bin/hipcc"
    tested = subprocess.run(
        [new_environment.with_name("rocm-sdk"), "test"], capture_output=True, text=True, check=False
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_a_manifest_cannot_reach_outside_its_artifact(artifacts: Path, tmp_path: Path) -> None:
    (artifacts / "rand_lib_gfx942" / "artifact_manifest.txt").write_text("../core-hip_lib_generic\n")
    with pytest.raises(UsageError, match="outside its folder"):
        package.package(PackageRequest(artifacts=artifacts, version="7.10.0", output_dir=tmp_path / "dists"))
    assert not (tmp_path / "dists").exists()


def test_a_dry_run_names_the_files_and_writes_none(artifacts: Path, tmp_path: Path) -> None:
    request = PackageRequest(artifacts=artifacts, version="7.10.0.dev0+abc123", output_dir=tmp_path / "dists")
    names = [dist.path.name for dist in package.package(request, dry_run=True)]
    assert names[0] == "rocm_sdk_core-7.10.0.dev0+abc123-py3-none-manylinux_2_28_x86_64.whl"
    assert names[-1] == "rocm-7.10.0.dev0+abc123.tar.gz"
    assert not (tmp_path / "dists").exists()
