"""What hipify left: calls without a HIP, headers of CUDA."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairn.sources.hipify import report

Found = tuple[tuple[report.UnsupportedCall, ...], tuple[str, ...]]


def look(tree: Path, text: str, **changes: object) -> Found:
    (tree / "a.hip").write_text(text, encoding="utf-8")
    fields: dict[str, object] = {"written": ["a.hip"], "unread": [], "hipified": ["a.hip"], "unsupported": {}}
    return report.find_leftovers(tree, **(fields | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "call",
    [
        "cudaMalloc",
        "cublasLtMatmul",
        "cudnnCTCLoss_v8",
        "cusolverDnXsytrs",
        "cuMemAlloc",
        "cuInit",
        "nvrtcVersion",
    ],
)
def test_a_call_that_kept_its_cuda_name(tmp_path: Path, call: str) -> None:
    found = look(tmp_path, f"  x = {call} (1);\n")[0]
    assert [(c.name, c.files) for c in found] == [(call, ("a.hip",))]


@pytest.mark.parametrize(
    "text",
    [
        "hipMalloc(1);",
        "// cudaMalloc(1)\n/* cudaMalloc(\n1) */",
        "cuda::getCurrentStream();",
        "cuWelfordSum(1);",
        "a.cudaCheck(); b->cudaCheck();",
        "my_cudaMalloc(1);",
        "cudaMalloc;",
    ],
)
def test_what_is_no_call_of_cudas(tmp_path: Path, text: str) -> None:
    assert look(tmp_path, text)[0] == ()


def test_a_call_that_upstreams_table_calls_unsupported(tmp_path: Path) -> None:
    table = {"hipLaunchCooperative": "cuLaunchCooperative", "hipOther": "cuOther"}
    found = look(tmp_path, "hipLaunchCooperative(f); int hipOther = 1;", unsupported=table)
    assert [call.name for call in found[0]] == ["cuLaunchCooperative"]


@pytest.mark.parametrize(
    "header", ["<cuda_runtime.h>", '"cublas_v2.h"', "<cub/cub.cuh>", "<cuda/std/tuple.h>"]
)
def test_a_header_of_cuda(tmp_path: Path, header: str) -> None:
    assert look(tmp_path, f"#  include {header}\n")[1] == ("a.hip",)


@pytest.mark.parametrize(
    "line",
    [
        "#include <hip/hip_runtime.h>",
        "#include <ATen/cuda/CUDAContext.h>",
        "// #include <cuda.h>",
        "#include <thrust/sort.h>",
    ],
)
def test_a_header_of_others(tmp_path: Path, line: str) -> None:
    assert look(tmp_path, f"{line}\n")[1] == ()


def test_a_header_of_the_tree_itself(tmp_path: Path) -> None:
    text = '#include "cuda_helpers.h"\n'
    assert look(tmp_path, text)[1] == ("a.hip",)
    assert look(tmp_path, text, hipified=["a.hip", "ops/cuda_helpers.h"])[1] == ()


def test_a_source_that_was_never_opened_counts_by_its_headers_alone(tmp_path: Path) -> None:
    (tmp_path / "b.cu").write_bytes(b"#include <cuda.h>\nJ\xf6 cudaMalloc(1);\n")
    found = look(tmp_path, "", unread=["b.cu"])
    assert (found[1], found[0]) == (("b.cu",), ())


def test_files_that_are_gone_or_no_code(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("cudaMalloc(1)")
    assert look(tmp_path, "", written=["gone.cu", "a.py"])[0] == ()
