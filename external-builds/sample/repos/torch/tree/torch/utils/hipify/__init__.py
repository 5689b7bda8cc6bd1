"""Contract: `torch.utils.hipify`, found in the wheel."""
