"""What builds on Windows are given, with the answers of Windows' own module: no build ever ran there."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairn import platforms
from cairn import stack as stacks
from cairn.build import job
from cairn.build.inputs import variables
from cairn.cli.upstream import build_prod_wheels
from cairn.platforms import windows
from cairn.rocm import packages_toml
from cairn.sources.checkout_stack import origin_of
from cairn.sources.pins import choose_source
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
    "download:llvm-windows": "C:/b/llvm-0a1b2c3d-windows-x64",
    "jobs": "4",
}


@pytest.fixture
def pytorch() -> Stack:
    return stacks.load(PYTORCH)


@pytest.fixture
def on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what differs between systems answered by Windows' module."""
    monkeypatch.setattr(platforms, "here", windows)


@pytest.mark.usefixtures("on_windows")
@pytest.mark.parametrize(
    ("name", "compiler"), [("torch", f"{ROCM}/lib/llvm/bin/clang-cl.exe"), ("triton", "cl")]
)
def test_every_variable_has_a_value(pytorch: Stack, name: str, compiler: str) -> None:
    """docs/reference/windows-variables.md compares all of them with upstream's."""
    templates = variables.template_of(pytorch, pytorch.project(name), for_cpu=False)
    values = variables.expand_all(templates, VALUES, where=name)
    assert (values["CC"], values["HIP_CLANG_PATH"]) == (compiler, f"{ROCM}/lib/llvm/bin")


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


def test_triton_comes_from_its_fork_for_windows_at_its_pin(
    pytorch: Stack, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pins = tmp_path / ".ci" / "docker" / "ci_commit_pins"
    pins.mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    (pins / "triton.txt").write_text(f"{'a' * 40}\n")

    def source(stack: Stack) -> tuple[str, str]:
        triton = stack.for_line("release/2.10").project("triton")
        chosen = choose_source(triton, default_origin=origin_of(triton), torch_dir=tmp_path)
        return chosen.origin, chosen.hashtag

    assert source(pytorch) == ("https://github.com/ROCm/triton.git", "a" * 40)
    monkeypatch.setattr(platforms, "here", windows)
    fork = "https://github.com/triton-lang/triton-windows.git"
    assert source(pytorch) == (fork, "6fe895f6b494b2ffc688e1e552dc2d4a8b5ae3b3")


def test_flash_attention_is_off_where_aotriton_does_not_work(
    pytorch: Stack, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pinned = tmp_path / "cmake" / "External" / "aotriton.cmake"
    pinned.parent.mkdir(parents=True)

    def is_on(commit: str, *projects: str, targets: tuple[str, ...] = ("gfx1201",)) -> bool:
        pinned.write_text(f'set(__AOTRITON_CI_COMMIT "{commit}")\n')
        return "flash_attention" in job.features(pytorch, targets, dict.fromkeys(projects, tmp_path), {})

    broken, good = "c11b5b88" + "0" * 32, "1" * 40
    assert is_on(broken, "torch", "triton")
    assert not is_on(good, "torch")
    monkeypatch.setattr(platforms, "here", windows)
    assert not is_on(broken, "torch", "triton")
    assert is_on(good, "torch")
    assert not is_on(good, "torch", targets=("gfx1030",))


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
