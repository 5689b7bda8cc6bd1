"""Contract: tests that need a GPU are skipped without one, and the answers without one are honest."""

import pytest

import torch

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU is available")


def test_available_means_counted():
    assert torch.cuda.is_available() == (torch.cuda.device_count() > 0)
    assert torch.cuda.is_built() == (torch.version.hip is not None)
    assert torch.version.cuda is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is available")
def test_without_a_gpu():
    assert torch.cuda.get_arch_list() == []
    for make in (lambda: torch.tensor([1.0], device="cuda"), torch.zeros(2).cuda):
        with pytest.raises(RuntimeError, match=r"No HIP GPUs are available|not compiled with"):
            make()


@needs_gpu
def test_kernels():
    a, b = torch.tensor([-1.0, 2.0]).cuda(), torch.tensor([3.0, 4.0]).cuda()
    assert a.is_cuda
    assert (a + b).tolist() == [2, 6]
    assert (a * b).tolist() == [-3, 8]
    assert torch.full((1000,), 2.5, device="cuda").tolist() == [2.5] * 1000
    assert all(arch.startswith("gfx") for arch in torch.cuda.get_arch_list())
    with pytest.raises(RuntimeError, match="same device"):
        torch.zeros(2) + a
