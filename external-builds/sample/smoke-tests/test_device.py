"""What torch says of the machine's GPUs is true."""

import os
from pathlib import Path

import pytest
import torch

KFD = Path("/dev/kfd")


def test_available_means_counted() -> None:
    assert torch.cuda.is_available() == (torch.cuda.device_count() > 0)


@pytest.mark.skipif(os.name != "posix", reason="only Linux shows AMD GPUs as a device file")
def test_no_driver_means_no_gpu() -> None:
    if not KFD.exists():
        assert torch.cuda.is_available() is False


def test_without_a_gpu_the_error_says_so() -> None:
    if torch.cuda.is_available():
        pytest.skip("a GPU is available")
    reason = "No HIP GPUs are available" if torch.cuda.is_built() else "not compiled with"
    with pytest.raises(RuntimeError, match=reason):
        torch.zeros(1, device="cuda")
    assert torch.cuda.get_arch_list() == []


def test_the_wheel_names_its_targets() -> None:
    flags = torch._C._cuda_getArchFlags()  # noqa: SLF001 - upstream has no public name for it
    assert torch.cuda.is_built() == bool(flags)
    assert all(target.startswith("gfx") for target in (flags or "").split())
