# Owner(s): ["module: nn"]
import torch
from torch import nn
from torch.testing._internal.common_device_type import instantiate_device_type_tests
from torch.testing._internal.common_utils import TestCase, run_tests, parametrize


class TestNN(TestCase):
    def test_parameters_are_named(self):
        names = [name for name, _ in nn.Linear(2, 3).named_parameters()]
        self.assertEqual(names, ["weight", "bias"])


class TestNNDeviceType(TestCase):
    @parametrize("size", range(1, 9))
    def test_identity_keeps_its_input(self, device, size):
        x = torch.full((2,), float(size), device=device)
        self.assertIs(nn.Identity()(x), x)


instantiate_device_type_tests(TestNNDeviceType, globals())

if __name__ == "__main__":
    run_tests()
