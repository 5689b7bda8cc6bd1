"""Contract: `torch.utils`, found in the wheel."""
