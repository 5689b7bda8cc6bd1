"""A miniature ROCm, its packages, an index that serves them and an environment that has them."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cairn.rocm import install, package
from cairn.venv import PackageSource
from helpers import zig
from helpers.rocm import KERNEL, VERSION, build_prefix, make_environment, prefix_for, request_for
from helpers.serving import serving
from helpers.trail import shared_cache


@pytest.fixture(autouse=True, scope="session")
def _own_pip_configuration() -> Iterator[None]:
    """Only what a test asks for: no index of the machine's own."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [n for n in os.environ if n.startswith(("PIP_", "ROCM_", "HIP_"))]:
            patch.delenv(name)
        patch.setenv("PIP_CONFIG_FILE", os.devnull)
        # The tools of the SDK run under the first python3 on PATH.
        patch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        yield


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    """A source file with kernels that every HIP compiles; its function `launch` gives a hipError_t."""
    path = tmp_path / "k.hip"
    path.write_text(KERNEL)
    return path


@pytest.fixture(scope="session")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An installed prefix of the miniature ROCm."""
    return prefix_for(tmp_path_factory.mktemp("rocm") / "prefix")


@pytest.fixture(scope="session")
def artifacts_once(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The miniature ROCm, cut into artifacts; `dev` holds links whose files are in `lib`."""
    root = tmp_path_factory.mktemp("cut") / "artifacts"
    shares = {
        "core-hip_lib_generic": ("lib/libamdhip64.so.6",),
        "core-hip_dev_generic": ("include/hip", "lib/cmake", "lib/libamdhip64.so"),
        "core-hip_run_generic": ("bin/hipcc", "bin/hipconfig"),
        "amd-llvm_run_generic": ("lib/llvm",),
        "rand_lib_gfx942": ("lib/libhiprand.so.1",),
        "rand_lib_gfx110X-all": ("lib/libhiprand.so.1",),
        "rand_dev_generic": ("include/hiprand", "lib/libhiprand.so"),
    }
    for name, paths in shares.items():
        base = f"base/{name}/stage"
        for path in paths:
            source, target = prefix / path, root / name / base / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, symlinks=True)
            else:
                shutil.copy(source, target, follow_symlinks=False)
        (root / name / "artifact_manifest.txt").write_text(f"{base}\nbase/not-built/stage\n\n")
    return root


@pytest.fixture
def artifacts(artifacts_once: Path, tmp_path: Path) -> Path:
    """A copy of the artifacts, which a test may change."""
    return Path(shutil.copytree(artifacts_once, tmp_path / "artifacts", symlinks=True))


@pytest.fixture(scope="session")
def dists(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the packages."""
    folder = tmp_path_factory.mktemp("dists")
    package.package(request_for(prefix, folder))
    return folder


@pytest.fixture
def dists_made_again(tmp_path: Path) -> Path:
    """The packages again, from a prefix that was built again, elsewhere."""
    again = build_prefix(tmp_path / "elsewhere" / "prefix")
    package.package(request_for(again, tmp_path / "dists"))
    return tmp_path / "dists"


@pytest.fixture(scope="session")
def index_url(dists: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A package index with the SDK and what it requires, and nothing else."""
    root = tmp_path_factory.mktemp("index")
    compiler = zig.small_wheel(shared_cache())
    for path in (*dists.iterdir(), compiler):
        name = path.name.partition(f"-{VERSION}" if path != compiler else "-")[0]
        folder = root / "simple" / name.replace("_", "-")
        folder.mkdir(parents=True)
        (folder / path.name).symlink_to(path)
    with serving(root) as url:
        yield f"{url}/simple/"


@pytest.fixture
def new_environment(tmp_path: Path) -> Path:
    """The interpreter of a fresh environment with nothing in it."""
    return make_environment(tmp_path / "venv")


@pytest.fixture(scope="session")
def environment(index_url: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the whole SDK, installed from the index alone."""
    python = make_environment(tmp_path_factory.mktemp("environment") / "venv")
    install.install(
        install.InstallRequest(python=python, source=PackageSource(index_url=index_url), version=VERSION)
    )
    return python


@pytest.fixture(scope="session")
def small_environment(index_url: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the SDK's runtime alone."""
    python = make_environment(tmp_path_factory.mktemp("small") / "venv")
    install.install(
        install.InstallRequest(python=python, source=PackageSource(index_url=index_url), extras=())
    )
    return python
