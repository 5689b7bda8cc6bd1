# Owner(s): ["module: cuda"]
import unittest

import torch
from torch.testing._internal.common_utils import TEST_CUDA, TestCase, run_tests


@unittest.skipIf(not TEST_CUDA, "CUDA not available, skipping tests")
class TestCuda(TestCase):
    def test_a_device_is_counted(self):
        self.assertGreater(torch.cuda.device_count(), 0)


if __name__ == "__main__":
    run_tests()
