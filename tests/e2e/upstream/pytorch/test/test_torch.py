# Owner(s): ["module: tests"]
import torch
from torch.testing._internal.common_device_type import instantiate_device_type_tests
from torch.testing._internal.common_utils import TestCase, run_tests, parametrize


class TestTorch(TestCase):
    def test_version_is_of_the_sources(self):
        self.assertTrue(torch.__version__.startswith("2.13.0"))


class TestTorchDeviceType(TestCase):
    @parametrize("value", range(8))
    def test_item_gives_the_number_back(self, device, value):
        self.assertEqual(torch.tensor(value, device=device).item(), value)


instantiate_device_type_tests(TestTorchDeviceType, globals())

if __name__ == "__main__":
    run_tests()
