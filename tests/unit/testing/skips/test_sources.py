"""Tests are found in the sources of PyTorch by the ids that its generators give them."""

from pathlib import Path

import pytest

from cairn.errors import UsageError
from cairn.testing.skips.sources import Sources

TESTS = """
import torch
from shared import Inherited, TestShared
from torch.testing._internal.common_utils import parametrize as parametrize_test, TestCase, subtest
from torch.testing._internal.mixins import Outer

DIMS = [0, 1.5]
with_dims = parametrize_test("dim", DIMS)

GROWN = [0]
GROWN = [*GROWN, GROWN]
setattr(*ARGUMENTS)

def with_tensors(function):
    return parametrize_test("f", [f for f in FUNCTIONS])(function)
OPS = [f(x) for x in y]

class TestPlain(TestCase, Outer.Mixin):
    def test_a(self): pass
    def helper(self): pass
    if HAS_GPU:
        def test_b(self): pass

class Template:
    def test_copied(self): pass
    @parametrize("x", (True,))
    def test_copied_with(self, x): pass

class GPUTests(TestCase):
    pass

class NotATest:
    def test_a(self): pass

class TestGeneric(Inherited):
    def test_a(self, device): pass
    @onlyCUDA
    @dtypes(torch.half, (torch.float, torch.long))
    def test_typed(self, device, dtype): pass
    @dtypesIfCUDA(torch.double)
    @dtypes(torch.half)
    def test_if_gpu(self, device, dtype): pass
    @dtypes(*all_types())
    def test_computed(self, device, dtype): pass
    @parametrize_test("x,y", [(1, torch.bool), subtest((2, None), name="named")])
    @parametrize_test("dim", DIMS)
    def test_product(self, device, x, y, dim): pass
    @ops(OPS)
    def test_op(self, device, dtype, op): pass
    @ops(OPS, dtypes=OpDTypes.none)
    def test_op_without(self, device, op): pass

class TestEmpty(TestCase):
    def test_empty(self, device): pass

class TestCPUOnly(TestCase):
    def test_a(self, device): pass

class TestParametrized(TestCase):
    @parametrize_test("f", [lambda: 1, None, TestPlain], )
    def test_counted(self, f): pass
    @parametrize_test("x", range(2), name_fn=lambda x: "even")
    def test_named(self, x): pass
    @parametrize_test(*ROW)
    def test_with_row(self, x): pass
    @parametrize_test("x", (GROWN,))
    def test_grown(self, x): pass
    @with_dims
    def test_decorated(self, dim): pass
    @with_tensors
    def test_with_tensors(self, f): pass
    @parametrize_test("x", product([1], ["a.b"]))
    def test_one_of_product(self, x): pass

@instantiate_parametrized_tests
class TestDecorated(TestCase):
    @parametrize_test("x", [-1])
    def test_x(self, x): pass

instantiate_device_type_tests(TestGeneric, globals(), except_for=None)
instantiate_device_type_tests(TestCPUOnly, globals(), only_for=("cpu",))
instantiate_device_type_tests(TestEmpty, globals(), except_for=())
for cls in (TestParametrized,):
    instantiate_parametrized_tests(cls)
copy_tests(Template, GPUTests, GPU_TYPE)

def add_tests():
    for name in NAMES:
        setattr(GPUTests, f"test_{name}", lambda self: None)
"""
OPERATORS = """
op_db = [
    OpInfo("special.i0"), UnaryUfuncInfo("add", variant_test_name="two"), OpInfo("mul", variant_test_name="")
]
"""
NAMES = "TestGenericCUDA::test_"


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    internal = tmp_path / "torch/testing/_internal"
    (internal / "opinfo/definitions").mkdir(parents=True)
    (tmp_path / "test/inductor").mkdir(parents=True)
    (tmp_path / "version.txt").write_text("2.7.0a0\n", encoding="utf-8")
    (tmp_path / "test/test_a.py").write_text(TESTS, encoding="utf-8")
    (tmp_path / "test/shared.py").write_text(
        "class Inherited(TestCase):\n    def test_from_base(self): pass\nclass TestShared(Inherited): pass\n"
    )
    (internal / "mixins.py").write_text(
        "class Outer:\n    class Mixin:\n        def test_mixed(self): pass\n"
    )
    (internal / "common_methods_invocations.py").write_text(OPERATORS, encoding="utf-8")
    (internal / "common_modules.py").write_text("ModuleInfo(torch.nn.L1Loss)\n", encoding="utf-8")
    (internal / "common_optimizers.py").touch()
    return Sources(tmp_path)


@pytest.mark.parametrize(
    ("pattern", "tests"),
    [
        ("TestPlain::*", ["TestPlain::test_a", "TestPlain::test_b", "TestPlain::test_mixed"]),
        ("*::test_a", ["TestPlain::test_a"]),  # without the device there is none of the generic class
        ("NotATest::*", []),
        ("TestShared::*", ["TestShared::test_from_base"]),
        ("GPUTests::*", ["GPUTests::test_copied_cuda", "GPUTests::test_copied_with_x_True_cuda"]),
        ("*::test_a_cuda", [f"{NAMES}a_cuda"]),
        ("TestGenericCUDA::test_from_base", [f"{NAMES}from_base"]),
        ("*::test_typed_*", [f"{NAMES}typed_cuda_float16", f"{NAMES}typed_cuda_float32_int64"]),
        ("*::test_if_gpu_*", [f"{NAMES}if_gpu_cuda_float64"]),
        ("*::test_computed_cuda_int8", [f"{NAMES}computed_cuda_int8"]),
        ("*::test_computed_cuda", []),
        ("*::test_product_*_1_5_cuda", [f"{NAMES}product_{x}_dim_1_5_cuda" for x in ("x_1_bool", "named")]),
        ("*::test_op_special_i0_cuda_float32", [f"{NAMES}op_special_i0_cuda_float32"]),
        ("*::test_op_add_two_cuda_float32", [f"{NAMES}op_add_two_cuda_float32"]),
        ("*::test_op_nn_L1Loss_cuda_float32", [f"{NAMES}op_nn_L1Loss_cuda_float32"]),
        ("*::test_op_sub_cuda_float32", []),
        ("*::test_op_without_mul_cuda", [f"{NAMES}op_without_mul_cuda"]),
        ("TestParametrized::test_counted_*", [f"TestParametrized::test_counted_f{n}" for n in range(3)]),
        ("TestParametrized::test_named_even", ["TestParametrized::test_named_even"]),
        ("*::test_one_of_product_*", ["TestParametrized::test_one_of_product_x0"]),
        ("*::test_decorated_dim_1_5", ["TestParametrized::test_decorated_dim_1_5"]),
        ("*::test_with_tensors", []),
        ("*::test_with_row", []),
        ("*::test_grown", []),
        ("*::test_empty_cuda", ["TestEmptyCUDA::test_empty_cuda"]),
        ("*::test_with_tensors_base", ["TestParametrized::test_with_tensors_base"]),
        ("*::test_x_*", ["TestDecorated::test_x_x_-1"]),
    ],
)  # fmt: skip
def test_ids_are_those_of_the_generators(sources: Sources, pattern: str, tests: list[str]) -> None:
    assert sources.find(f"test_a.py::{pattern}")[0] == tuple(f"test_a.py::{test}" for test in tests)


def test_what_is_computed_is_told_and_what_is_absent_is_not_found(tmp_path: Path, sources: Sources) -> None:
    assert sources.find("test_a.py::*::test_op_*") == (
        (),
        (
            "test_a.py::TestGenericCUDA::test_op",
            "test_a.py::TestGenericCUDA::test_op_without",
            "test_a.py::GPUTests",
        ),
    )
    assert sources.find("test_a.py::TestPlain::test_gone") == ((), ())
    assert sources.find("test_a.py::*::test_gone") == ((), ("test_a.py::GPUTests",))
    assert sources.find("test_a.py")[0] == ("test_a.py",)
    (tmp_path / "test/inductor/test_c.py").write_text("class TestC:\n    def test_c(self): pass\n")
    for of in ("TestC", "*"):
        assert sources.find(f"inductor/*::{of}::test_c")[0] == ("inductor/test_c.py::TestC::test_c",)
    assert sources.find("inductor/test_b.py") == sources.find("inductor/test_b.py::*::test_a") == ((), ())


def test_what_is_no_tree_of_pytorch_is_refused(tmp_path: Path, sources: Sources) -> None:
    (tmp_path / "test/test_b.py").write_text("class", encoding="utf-8")
    with pytest.raises(UsageError, match=r"test_b\.py cannot be read as Python"):
        sources.find("test_b.py::*::test_a")
    with pytest.raises(UsageError, match=r"cannot read .*version\.txt"):
        Sources(tmp_path / "test")
