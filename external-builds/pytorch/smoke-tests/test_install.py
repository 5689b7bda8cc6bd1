"""What the installed PyTorch says of itself and of this machine."""

import importlib.util
import os
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
import torch


def test_the_module_and_its_metadata_agree() -> None:
    module, wheel = torch.__version__, metadata.version("torch")
    if torch.version.hip is None and "+" not in wheel:
        # PyPI takes no local versions, and so the metadata alone leaves it out.
        module = module.partition("+")[0]
    assert module == wheel


def test_a_gpu_is_available_only_where_there_is_one(*, translated: bool) -> None:
    if translated:
        pytest.skip("TorchDevice stands in for the GPU")
    assert torch.cuda.is_available() == (torch.cuda.device_count() > 0)
    drivers = (Path("/dev/kfd"), Path("/dev/nvidiactl"))
    if os.name == "posix" and not any(driver.exists() for driver in drivers):
        assert torch.cuda.is_available() is False


def test_a_build_for_rocm_has_code_for_the_gpu(
    record_property: Callable[[str, object], None], *, translated: bool
) -> None:
    if torch.version.hip is None:
        pytest.skip("this torch is not built for ROCm")
    if translated or not torch.cuda.is_available():
        pytest.skip("no device")
    here = torch.cuda.get_device_properties(0).gcnArchName.partition(":")[0]
    assert here in {name.partition(":")[0] for name in torch.cuda.get_arch_list()}
    record_property("device", here)


def test_the_triton_of_a_build_for_rocm_compiles_for_amd() -> None:
    if torch.version.hip is None:
        pytest.skip("this torch is not built for ROCm")
    if not any(text.startswith("triton") for text in metadata.requires("torch") or []):
        pytest.skip("this torch requires no triton")
    assert importlib.util.find_spec("triton.backends.amd"), "triton is built without its AMD backend"


def test_a_build_for_rocm_names_the_installed_sdk() -> None:
    if torch.version.hip is None:
        pytest.skip("this torch is not built for ROCm")
    try:
        rocm = metadata.version("rocm")
    except metadata.PackageNotFoundError:
        pytest.skip("the ROCm SDK packages are not installed: a fat wheel, or a ROCm of the system")
    assert any(
        f"rocm[libraries]=={rocm}" in text.replace(" ", "") for text in metadata.requires("torch") or []
    )


def test_torch_computes_with_as_many_threads_as_it_is_told() -> None:
    before = torch.get_num_threads()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if cores >= 4 and not os.environ.keys() & {"OMP_NUM_THREADS", "MKL_NUM_THREADS"}:
        assert before > 1, "this torch was built without threads"
    try:
        torch.set_num_threads(2)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_what_these_tests_compare_with_sees_a_difference() -> None:
    with pytest.raises(AssertionError):
        torch.testing.assert_close(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.001]))
