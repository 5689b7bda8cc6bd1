from __future__ import annotations

from pathlib import Path

import pytest

from cairn.store.folder import LocalStore
from cairn.store.memory import MemoryStore


@pytest.fixture
def folder(released: MemoryStore, tmp_path: Path) -> LocalStore:
    """Three nights released, in a folder."""
    store = LocalStore(tmp_path / "store")
    for key, data in released.objects.items():
        store.write(key, data)
    return store
