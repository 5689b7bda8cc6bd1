from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from cairn.store.folder import LocalStore


@pytest.fixture(scope="session")
def dists() -> ModuleType:
    """The builder of small distributions (tests are no package, so it cannot be imported by name)."""
    spec = importlib.util.spec_from_file_location("release_dists", Path(__file__).with_name("dists.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")
