from __future__ import annotations

import pytest

from cairn.store.memory import MemoryStore


@pytest.fixture
def store() -> MemoryStore:
    """Where an index lives; `folder_store` where a command or a path needs it."""
    return MemoryStore()
