"""torch.amp: which precision an operator computes in, and training with a scaled loss."""

import pytest
import torch
from torch import nn


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_products_are_in_16_bits_and_sums_are_not(device: torch.device, dtype: torch.dtype) -> None:
    layer, x = nn.Linear(32, 8).to(device), torch.linspace(-1, 1, 128, device=device).view(4, 32)
    with torch.autocast(device.type, dtype=dtype):
        found = layer(x)
        assert found.dtype == dtype
        assert torch.mm(x, x.t()).dtype == dtype
        assert nn.functional.mse_loss(found, torch.zeros_like(found)).dtype == torch.float32
        with torch.autocast(device.type, enabled=False):
            assert layer(x).dtype == torch.float32
    assert layer(x).dtype == torch.float32
    torch.testing.assert_close(found.float(), layer(x), rtol=0, atol=3e-2)


def test_a_scaled_step_is_the_plain_one_and_an_infinite_one_is_left_out(device: torch.device) -> None:
    layer = nn.Linear(4, 1).to(device)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
    scaler = torch.amp.GradScaler(device.type, init_scale=1024.0)

    def step(factor: float) -> torch.Tensor:
        before = layer.weight.detach().clone()
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = layer(torch.full((2, 4), 0.25, device=device)).float().mean() * factor
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return before - layer.weight.detach()

    # The slope of the mean output by each weight is the input, 0.25: half of it is what one step takes.
    torch.testing.assert_close(step(1.0).cpu(), torch.full((1, 4), 0.125))
    assert scaler.get_scale() == 1024
    assert step(float("inf")).tolist() == [[0.0] * 4]
    assert scaler.get_scale() == 512
