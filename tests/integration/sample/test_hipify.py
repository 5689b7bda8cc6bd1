"""The sample torch hipifies itself and its submodule, as upstream's does."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from cairn import process
from cairn.errors import ProcessError
from helpers.sample import build_wheel, checkout, hipify


@pytest.fixture
def tree(origins: Mapping[str, Path], tmp_path: Path) -> Path:
    return checkout(origins, "torch", tmp_path / "torch é")


def sources(tree: Path) -> dict[str, bytes]:
    kinds = {".cu", ".cuh", ".hip", ".h", ".cpp"}
    paths = [p for p in tree.rglob("*") if p.suffix in kinds and "hipify" not in p.parts]
    return {p.relative_to(tree).as_posix(): p.read_bytes() for p in paths}


def test_no_cuda_is_left(tree: Path) -> None:
    assert any(b"cuda_runtime.h" in text for text in sources(tree).values())
    hipify(tree)
    found = sources(tree)
    for call in (b"cuda_runtime.h", b"cudaMalloc", b"cudaError_t", b"c10/cuda", b"C10_CUDA"):
        assert [name for name, text in found.items() if call in text] == []
    assert [name for name in found if name.endswith(".cu")] == []
    assert "aten/src/ATen/native/hip/Pointwise.hip" in found
    assert b"<<<" in found["third_party/cudakit/src/fill.hip"]


def test_both_repositories_see_the_changes(tree: Path) -> None:
    hipify(tree)
    for folder in (tree, tree / "third_party" / "cudakit"):
        changed = process.run(
            ["git", "status", "--porcelain", "--ignore-submodules"], cwd=folder, confined=False
        ).output
        assert "fill" in changed or "native" in changed


def test_a_second_run_changes_nothing(tree: Path) -> None:
    assert "hipified 7 of" in hipify(tree)
    first = sources(tree)
    assert "already hipified" in hipify(tree)
    assert sources(tree) == first


def test_a_file_that_came_later_is_hipified(tree: Path) -> None:
    hipify(tree)
    late = tree / "aten" / "src" / "ATen" / "native" / "cuda" / "Late.cu"
    late.parent.mkdir(parents=True)
    late.write_text("#include <cuda_runtime.h>\n")
    first = sources(tree)
    hipify(tree)
    changed = {name for name, text in sources(tree).items() if first.get(name) != text}
    assert changed == {"aten/src/ATen/native/hip/Late.hip"}


def test_without_its_submodule_it_says_so(origins: Mapping[str, Path], tmp_path: Path) -> None:
    copy = tmp_path / "torch"
    process.run(["git", "clone", "--quiet", str(origins["torch"]), str(copy)], confined=False)
    with pytest.raises(ProcessError) as caught:
        hipify(copy)
    assert "submodules are missing: third_party/cudakit" in caught.value.output


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"USE_ROCM": "ON"}, "error: this tree is not hipified: run tools/amd_build/build_amd.py first"),
        ({"USE_CUDA": "ON"}, "error: this torch has no CUDA build: set USE_CUDA=0"),
    ],
)
def test_a_build_that_cannot_be_is_one_clear_line(
    tree: Path, tmp_path: Path, variables: dict[str, str], message: str
) -> None:
    with pytest.raises(ProcessError) as caught:
        build_wheel(tree, tmp_path / "out", **variables)
    assert message in caught.value.output.splitlines()
    assert "Traceback" not in caught.value.output


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"ROCM_HOME": "/nowhere"}, "error: no hipcc in /nowhere/bin"),
        ({"ROCM_HOME": "{here}", "PYTORCH_ROCM_ARCH": ";"}, "error: PYTORCH_ROCM_ARCH is empty"),
        ({"ROCM_HOME": "{here}"}, "include/hip/hip_version.h is missing"),
        ({"USE_ROCM": "0", "CXX": "/no/such-compiler"}, "error: cannot run /no/such-compiler"),
        ({"USE_ROCM": "0", "MAX_JOBS": "many"}, "error: MAX_JOBS must be a positive number, not 'many'"),
        (
            {"USE_ROCM": "0", "PYTORCH_BUILD_VERSION": "1", "PYTORCH_BUILD_NUMBER": "one"},
            "error: PYTORCH_BUILD_NUMBER must be a number, not 'one'",
        ),
        ({"USE_ROCM": "0", "CXX": "false"}, "error: false ended with exit status 1"),
    ],
)
def test_a_missing_compiler_is_one_clear_line(
    tree: Path, tmp_path: Path, variables: dict[str, str], message: str
) -> None:
    hipify(tree)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "hipcc").touch()
    given = {name: value.format(here=tmp_path) for name, value in variables.items()}
    with pytest.raises(ProcessError) as caught:
        build_wheel(tree, tmp_path / "out", **{"CXX": "true", **given})
    assert message in caught.value.output
    assert "Traceback" not in caught.value.output
    assert not list(tmp_path.rglob("*.whl"))
