from __future__ import annotations

from pathlib import Path

import pytest

from cairn.store.folder import LocalStore
from cairn.store.memory import MemoryStore
from cairn.wheels.wheelset import WheelSet
from helpers.nights import stage_nights
from helpers.release import in_folder, move

Nights = tuple[MemoryStore, dict[str, WheelSet]]


@pytest.fixture
def store() -> MemoryStore:
    """Where an index lives; `folder` where a command or a path needs it."""
    return MemoryStore()


@pytest.fixture(scope="session")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Nights:
    """Three nights in staging, which no test changes."""
    return stage_nights(tmp_path_factory.mktemp("nights"))


@pytest.fixture
def sets(staged: Nights) -> dict[str, WheelSet]:
    """The sets of the three nights by the version of torch."""
    return staged[1]


@pytest.fixture
def nights(staged: Nights) -> MemoryStore:
    """Three nights in staging, and nothing released."""
    return MemoryStore(staged[0].objects)


@pytest.fixture(scope="session")
def promoted(staged: Nights) -> MemoryStore:
    """Three nights in staging, each promoted: generation 1, 2 and 3 of the release; no test changes it."""
    store, sets = staged
    store = MemoryStore(store.objects)
    for made in sets.values():
        move(store, made)
    return store


@pytest.fixture
def released(promoted: MemoryStore) -> MemoryStore:
    """A copy of `promoted`."""
    return MemoryStore(promoted.objects)


@pytest.fixture
def folder(released: MemoryStore, tmp_path: Path) -> LocalStore:
    """Three nights released, in a folder."""
    return in_folder(released, tmp_path / "store")
