# Owner(s): ["module: tests"]
import torch
from torch.testing._internal.common_device_type import instantiate_device_type_tests
from torch.testing._internal.common_utils import TestCase, run_tests, parametrize


class TestBinaryUfuncs(TestCase):
    @parametrize("value", range(8))
    def test_sub(self, device, value):
        x = torch.tensor(value, device=device)
        self.assertEqual((x - 1).item(), value - 1)


instantiate_device_type_tests(TestBinaryUfuncs, globals())

if __name__ == "__main__":
    run_tests()
