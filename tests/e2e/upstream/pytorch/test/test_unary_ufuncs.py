# Owner(s): ["module: tests"]
import torch
from torch.testing._internal.common_device_type import instantiate_device_type_tests
from torch.testing._internal.common_utils import TestCase, run_tests, parametrize


class TestUnaryUfuncs(TestCase):
    @parametrize("value", range(8))
    def test_neg(self, device, value):
        x = torch.tensor(value, device=device)
        self.assertEqual((-x).item(), -value)


instantiate_device_type_tests(TestUnaryUfuncs, globals())

if __name__ == "__main__":
    run_tests()
