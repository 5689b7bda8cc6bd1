from __future__ import annotations

import pytest

from cairn.store.memory import MemoryStore


@pytest.fixture
def store(nights: MemoryStore) -> MemoryStore:
    """Three nights in staging, and nothing released."""
    return nights
