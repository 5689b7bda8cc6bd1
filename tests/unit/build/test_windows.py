"""What builds on Windows are given, with the answers of Windows' own module: no build ever ran there."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairn import platforms
from cairn import stack as stacks
from cairn.build.inputs import variables
from cairn.cli.upstream import build_prod_wheels
from cairn.platforms import windows
from cairn.rocm import packages_toml
from cairn.stack import Stack

ROOT = Path(__file__).parents[3]
PYTORCH = ROOT / "external-builds" / "pytorch"
ROCM = "C:/b/venv/Lib/site-packages/_rocm_sdk_devel"
VALUES = {
    "version": "2.10.0a0+rocm7.10.0",
    "version_suffix": "+rocm7.10.0",
    "version:torch": "2.10.0a0+rocm7.10.0",
    "build_number": "1",
    "requirements": "rocm[libraries]==7.10.0",
    "targets": "gfx1151;gfx1201",
    "rocm_version": "7.10.0",
    "rocm_home": ROCM,
    "rocm_bin": f"{ROCM}/bin",
    "rocm_cmake": f"{ROCM}/lib/cmake",
    "on_or_off:flash_attention": "OFF",
}
# Upstream's build_prod_wheels.py where `is_windows`, for every project.
COMMON = {
    "CMAKE_PREFIX_PATH": f"{ROCM}/lib/cmake",
    "ROCM_HOME": ROCM,
    "ROCM_PATH": ROCM,
    "PYTORCH_ROCM_ARCH": "gfx1151;gfx1201",
    "HIP_DEVICE_LIB_PATH": f"{ROCM}/lib/llvm/amdgcn/bitcode",
    "CC": f"{ROCM}/lib/llvm/bin/clang-cl.exe",
    "CXX": f"{ROCM}/lib/llvm/bin/clang-cl.exe",
    "HIP_CLANG_PATH": f"{ROCM}/lib/llvm/bin",
    "DISTUTILS_USE_SDK": "1",
}
OWN = {
    "torch": {
        "USE_ROCM": "ON",
        "USE_CUDA": "OFF",
        "USE_MPI": "OFF",
        "USE_NUMA": "OFF",
        "USE_GLOO": "ON",
        "USE_KINETO": "OFF",
        "USE_FLASH_ATTENTION": "OFF",
        "USE_MEM_EFF_ATTENTION": "OFF",
        "BLAS": "OpenBLAS",
        "OpenBLAS_HOME": f"{ROCM}/lib/host-math",
        "OpenBLAS_LIB_NAME": "rocm-openblas",
        "PYTORCH_BUILD_VERSION": "2.10.0a0+rocm7.10.0",
        "PYTORCH_BUILD_NUMBER": "1",
        "PYTORCH_EXTRA_INSTALL_REQUIREMENTS": "rocm[libraries]==7.10.0",
    },
    "audio": {
        "USE_ROCM": "1",
        "USE_CUDA": "0",
        "USE_FFMPEG": "1",
        "USE_OPENMP": "1",
        "BUILD_SOX": "0",
        "BUILD_VERSION": "2.10.0a0+rocm7.10.0",
        "BUILD_NUMBER": "1",
        "PYTORCH_VERSION": "2.10.0a0+rocm7.10.0",
    },
    "vision": {
        "FORCE_CUDA": "1",
        "TORCHVISION_USE_NVJPEG": "0",
        "TORCHVISION_USE_VIDEO_CODEC": "0",
        "BUILD_VERSION": "2.10.0a0+rocm7.10.0",
        "VERSION_NAME": "2.10.0a0+rocm7.10.0",
        "BUILD_NUMBER": "1",
        "PYTORCH_VERSION": "2.10.0a0+rocm7.10.0",
    },
}


@pytest.fixture
def pytorch() -> Stack:
    return stacks.load(PYTORCH)


@pytest.fixture
def on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what differs between systems answered by Windows' module."""
    monkeypatch.setattr(platforms, "here", windows)


@pytest.mark.usefixtures("on_windows")
@pytest.mark.parametrize("name", sorted(OWN))
def test_the_variables_of_a_build(pytorch: Stack, name: str) -> None:
    project = next(one for one in pytorch.projects if one.name == name)
    templates = variables.template_of(pytorch, project, for_cpu=False)
    assert variables.expand_all(templates, VALUES, where=name) == COMMON | OWN[name]


@pytest.mark.usefixtures("on_windows")
def test_a_build_for_the_cpu_takes_microsofts_compiler(pytorch: Stack) -> None:
    for project in pytorch.projects:
        names = variables.template_of(pytorch, project, for_cpu=True)
        assert names["DISTUTILS_USE_SDK"] == "1"
        assert not {"CC", "CXX", "HIP_CLANG_PATH", "ROCM_HOME", "CXXFLAGS", "CPATH"} & set(names)


def test_what_is_of_windows_alone_is_not_on_linux(pytorch: Stack) -> None:
    for project in pytorch.projects:
        names = variables.template_of(pytorch, project, for_cpu=False)
        assert not {"CC", "CXX", "HIP_CLANG_PATH", "DISTUTILS_USE_SDK"} & set(names)
    torch = next(one for one in pytorch.projects if one.name == "torch")
    assert {"CPATH", "LIBRARY_PATH"} < set(variables.template_of(pytorch, torch, for_cpu=False))


def test_the_libraries_that_are_loaded_first(pytorch: Stack) -> None:
    """Upstream's two lists: Windows has no profiler, no RCCL, no hipFile and no liblzma of ROCm's."""
    assert pytorch.sdk is not None
    there, here = (set(pytorch.sdk.preloads(system)) for system in ("windows", "linux"))
    assert there < here <= packages_toml.therock().preload.keys()
    assert here - there == {
        *("amd_smi", "rocm_smi64", "rocprofiler-sdk", "rocprofiler-sdk-roctx", "roctracer64", "roctx64"),
        *("rccl", "hipfile", "rocm_sysdeps_liblzma"),
    }
    # Where nothing is said of Windows, it is as on Linux.
    assert stacks.Sdk(preload=("a",)).preloads("windows") == ("a",)


@pytest.mark.parametrize(
    ("words", "on_linux", "on_windows"),
    [
        ((), None, None),
        (("--enable-pytorch-flash-attention",), True, True),
        (("--enable-pytorch-flash-attention-windows",), None, True),
        (("--no-enable-pytorch-flash-attention-windows", "--enable-pytorch-flash-attention"), True, False),
    ],
)
def test_flash_attention(
    pytorch: Stack,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    on_linux: bool | None,  # noqa: FBT001 - of the table
    on_windows: bool | None,  # noqa: FBT001 - as above
) -> None:
    parser = build_prod_wheels.make_parser(PYTORCH / "build_prod_wheels.py", pytorch.projects)
    request = build_prod_wheels._request(parser.parse_args(["build", "--output-dir", "o", *words]))
    assert build_prod_wheels._job(request).features == (
        {} if on_linux is None else {"flash_attention": on_linux}
    )
    monkeypatch.setattr(platforms, "here", windows)
    assert build_prod_wheels._job(request).features == (
        {} if on_windows is None else {"flash_attention": on_windows}
    )
