from __future__ import annotations

from pathlib import Path

import pytest

from cairn.store.folder import LocalStore
from cairn.store.memory import MemoryStore
from helpers.store_contract import StoreContract


class TestMemory(StoreContract):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()


class TestFolder(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> LocalStore:
        return LocalStore(tmp_path / "store")
