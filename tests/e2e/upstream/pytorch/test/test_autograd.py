# Owner(s): ["module: autograd"]
import torch
from torch.testing._internal.common_utils import TestCase, gradcheck, run_tests


class TestAutograd(TestCase):
    def test_a_product_has_the_gradients_of_its_factors(self):
        x, y = (torch.tensor([value], dtype=torch.double, requires_grad=True) for value in (2.0, 3.0))
        self.assertTrue(gradcheck(torch.mul, (x, y)))


if __name__ == "__main__":
    run_tests()
