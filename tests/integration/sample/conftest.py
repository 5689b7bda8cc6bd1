"""The sample's repositories, and its wheels: built once for all tests of this folder."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from cairn.sources.origins.materialize import TreeOrigin, materialize
from helpers.rocm import prefix_for
from helpers.sample import NAMES, SAMPLE, Built, build_all


@pytest.fixture(scope="session")
def origins(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    declared = [TreeOrigin(name=name, path=SAMPLE / "repos" / name) for name in NAMES]
    return materialize(declared, tmp_path_factory.mktemp("origins"))


@pytest.fixture(scope="session")
def embedded_rocm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ROCm prefix that is made of ziglang alone."""
    return prefix_for(tmp_path_factory.mktemp("rocm") / "prefix")


BY_DEBIAN = pytest.param("debian", marks=pytest.mark.by_hand)  # e2e/test_debian.py builds the same


@pytest.fixture(scope="session", params=["embedded", BY_DEBIAN, "cpu", "cpu-without-python-headers"])
def built(
    request: pytest.FixtureRequest, origins: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Built:
    """The four wheels: with each ROCm that may be here, and without any by the machine's own g++."""
    variables = _cpu_variables(request.param) if "cpu" in request.param else _rocm_variables(request)
    suffix = "+cpu" if "cpu" in request.param else "+rocm7.10.0"
    return build_all(origins, tmp_path_factory.mktemp(f"built for {request.param}"), variables, suffix)


def _rocm_variables(request: pytest.FixtureRequest) -> Mapping[str, str]:
    chosen = {"USE_ROCM": "ON", "FORCE_CUDA": "1"}
    if request.param == "embedded":
        prefix = request.getfixturevalue("embedded_rocm")
        return chosen | {"ROCM_HOME": str(prefix), "PYTORCH_ROCM_ARCH": "gfx942;gfx1100"}
    if not (Path("/usr/bin/hipcc").exists() and Path("/usr/include/hip/hip_version.h").exists()):
        pytest.skip("Debian's packages hipcc and libamdhip64-dev are not installed")
    if not shutil.which("g++"):
        pytest.skip("g++, which real HIP takes for code of the CPU, is not installed")
    return chosen | {"ROCM_HOME": "/usr", "PYTORCH_ROCM_ARCH": "gfx90a;gfx1030"}


def _cpu_variables(kind: str) -> Mapping[str, str]:
    if not shutil.which("g++"):
        pytest.skip("g++ is not installed")
    flags = {"CXXFLAGS": "-DTORCH_OWN_PYTHON_ABI -DTRITON_OWN_PYTHON_ABI"} if "without" in kind else {}
    return {"CXX": "g++", "USE_ROCM": "0", "FORCE_CUDA": "0", **flags}
