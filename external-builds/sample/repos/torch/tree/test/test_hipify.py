"""Contract: `torch.utils.hipify` inside the wheel, which siblings hipify themselves with."""

import pytest

from torch.utils.hipify.hipify_python import hip_path, hip_text, hipify

SOURCE = """#include <cuda_runtime.h>
#include "native/cuda/CUDAThing.h"
cudaError_t f(void** p) { return cudaMalloc(p, 4); }  // my_cudaMalloc and cudaMallocs are others
"""


def test_text():
    assert hip_text(SOURCE) == (
        "#include <hip/hip_runtime.h>\n"
        '#include "native/hip/HIPThing.h"\n'
        "hipError_t f(void** p) { return hipMalloc(p, 4); }  // my_cudaMalloc and cudaMallocs are others\n"
    )


def test_text_twice_is_the_same():
    assert hip_text(hip_text(SOURCE)) == hip_text(SOURCE)


@pytest.mark.parametrize(
    ("before", "after"),
    [("a/cuda/B.cu", "a/hip/B.hip"), ("a/cuda/CUDAB.h", "a/hip/HIPB.h"), ("cudakit/x.cuh", "cudakit/x.cuh")],
)
def test_path(before, after, tmp_path):
    assert hip_path((tmp_path / before).relative_to(tmp_path)).as_posix() == after


def test_a_tree_is_rewritten_in_place(tmp_path):
    kernel, plain = tmp_path / "cuda" / "k.cu", tmp_path / "plain.cpp"
    kernel.parent.mkdir()
    kernel.write_text(SOURCE)
    plain.write_text("int x;\n")
    results = hipify(str(tmp_path))
    assert not kernel.parent.exists()
    assert (tmp_path / "hip" / "k.hip").read_text() == hip_text(SOURCE)
    assert results[str(plain)].hipified_path is None


def test_an_extension_keeps_its_sources(tmp_path):
    kernel, header = tmp_path / "cuda" / "k.cu", tmp_path / "cuda" / "k.h"
    kernel.parent.mkdir()
    kernel.write_text(SOURCE)
    header.write_text("int x;\n")
    (tmp_path / "other.cu").write_text(SOURCE)
    results = hipify(str(tmp_path), includes=["*/cuda/*"], is_pytorch_extension=True)
    assert kernel.read_text() == SOURCE
    assert results[str(kernel)].hipified_path == str(tmp_path / "hip" / "k.hip")
    assert (tmp_path / "hip" / "k.h").read_text() == "int x;\n"
    assert not (tmp_path / "other.hip").exists()
