"""Tensors on a GPU, and honest answers where there is none."""

import pytest

import torch
from torch.testing import assert_close

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU is available")
needs_no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is available")


class TestAnswers:
    def test_available_means_counted(self):
        assert torch.cuda.is_available() == (torch.cuda.device_count() > 0)

    def test_built_means_versioned(self):
        assert torch.cuda.is_built() == (torch.version.hip is not None)
        assert torch.version.cuda is None

    @needs_no_gpu
    def test_without_a_gpu(self):
        assert torch.cuda.get_arch_list() == []
        with pytest.raises(RuntimeError, match=r"No HIP GPUs are available|not compiled with"):
            torch.tensor([1.0], device="cuda")
        with pytest.raises(RuntimeError, match=r"No HIP GPUs are available|not compiled with"):
            torch.zeros(2).cuda()


@needs_gpu
class TestKernels:
    def test_arch_list(self):
        assert all(arch.startswith("gfx") for arch in torch.cuda.get_arch_list())
        assert torch.cuda.get_arch_list()

    def test_round_trip(self):
        made = torch.tensor([1.0, 2.0], device="cuda")
        assert made.is_cuda
        assert made.cpu().tolist() == [1, 2]

    def test_fill(self):
        assert torch.full((1000,), 2.5, device="cuda").tolist() == [2.5] * 1000

    def test_pointwise(self):
        a, b = torch.tensor([-1.0, 2.0]).cuda(), torch.tensor([3.0, 4.0]).cuda()
        assert (a + b).tolist() == [2, 6]
        assert (a * b).tolist() == [-3, 8]
        assert a.relu().tolist() == [0, 2]

    def test_sum(self):
        values = [0.25 * i for i in range(1000)]
        assert_close(torch.tensor(values).cuda().sum(), sum(values))

    def test_matmul(self):
        a = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).cuda()
        assert (a @ a).tolist() == [[7, 10], [15, 22]]

    def test_devices_do_not_mix(self):
        with pytest.raises(RuntimeError, match="same device"):
            torch.zeros(2) + torch.zeros(2, device="cuda")
