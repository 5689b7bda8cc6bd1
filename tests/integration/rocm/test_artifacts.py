"""A tree of artifacts, as TheRock's build leaves it, becomes packages for several families."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from cairn.errors import CairnError
from cairn.rocm import install, package, packages_toml
from cairn.rocm.fetch.unpack import UnsafeArchiveError
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
    with pytest.raises(UnsafeArchiveError, match="outside its folder"):
        package.package(PackageRequest(artifacts=artifacts, version="7.10.0", output_dir=tmp_path / "dists"))
    assert not (tmp_path / "dists").exists()


def test_a_dry_run_names_the_files_and_writes_none(artifacts: Path, tmp_path: Path) -> None:
    request = PackageRequest(artifacts=artifacts, version="7.10.0.dev0+abc123", output_dir=tmp_path / "dists")
    names = [dist.path.name for dist in package.package(request, dry_run=True)]
    assert names[0] == "rocm_sdk_core-7.10.0.dev0+abc123-py3-none-manylinux_2_28_x86_64.whl"
    assert names[-1] == "rocm-7.10.0.dev0+abc123.tar.gz"
    assert not (tmp_path / "dists").exists()


def _rewrite(old: str, new: str) -> Callable[[Path], object]:
    def change(manifest: Path) -> None:
        text = manifest.read_text()
        assert old in text
        manifest.write_text(text.replace(old, new))

    return change


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (Path.unlink, "it has no artifact_manifest.txt"),
        (lambda manifest: manifest.write_bytes(b""), "its artifact_manifest.txt is empty"),
        (lambda manifest: manifest.write_bytes(b"\xe9\n"), "is not UTF-8"),
        (lambda manifest: manifest.write_text("\n"), "is in no folder that its artifact_manifest.txt names"),
        (_rewrite("_generic/stage", "_generic/st"), "is in no folder that its artifact_manifest.txt names"),
        (
            lambda manifest: shutil.rmtree(manifest.parent / "base"),
            "has none of the folders that its manifest",
        ),
    ],
    ids=["removed", "empty", "unreadable", "blank", "cut off", "its folder removed"],
)
@pytest.mark.parametrize("name", ["core-hip_lib_generic", "core-hip_run_generic"])
def test_an_artifact_that_is_not_whole_makes_no_smaller_sdk(
    artifacts: Path, tmp_path: Path, name: str, change: Callable[[Path], object], why: str
) -> None:
    change(artifacts / name / "artifact_manifest.txt")
    request = PackageRequest(artifacts=artifacts, version="7.10.0", output_dir=tmp_path / "dists")
    if name.endswith("run_generic") and "none of the folders" in why:  # as where a build made no program
        assert package.package(request, dry_run=True)
        return
    with pytest.raises(CairnError, match=why):
        package.package(request)
    assert not (tmp_path / "dists").exists()


def test_artifacts_without_libraries_of_a_family_are_refused(artifacts: Path, tmp_path: Path) -> None:
    request = PackageRequest(
        artifacts=artifacts,
        version="7.10.0",
        targets=("gfx950",),
        family="gfx950-dcgpu",
        output_dir=tmp_path / "dists",
    )
    why = "no libraries for gfx950-dcgpu, and some for gfx942, gfx110X-all"
    with pytest.raises(CairnError, match=why):
        package.package(request)
    assert not (tmp_path / "dists").exists()
    # A packages.toml that claims none is the decision to have none.
    described = Path(packages_toml.__file__).with_name("therock.toml").read_text()
    (tmp_path / "packages.toml").write_text(described.replace("[libraries]", "[libraries]\nfiles = []"))
    named = structs.replace(request, description=tmp_path / "packages.toml")
    assert [dist.distribution for dist in package.package(named, dry_run=True)] == [
        "rocm-sdk-core",
        "rocm-sdk-devel",
        "rocm",
    ]
