"""Fixtures of the sample stack's smoke tests: they look at installed packages only."""

from collections.abc import Callable

import pytest
import torch

RecordDevice = Callable[[], None]


@pytest.fixture
def on_gpu(record_property: Callable[[str, object], None]) -> RecordDevice:
    """Skips without a GPU. A test calls it once its kernel's result has been compared."""
    if not torch.cuda.is_available():
        pytest.skip("no device")
    return lambda: record_property("device", "cuda:0")
