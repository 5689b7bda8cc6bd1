"""Every request of every change breaks in every way: nothing is lost or mixed, and one try more ends it."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from cairn.release.history.rollback import rollback
from cairn.release.index.commit import recover
from cairn.release.index.snapshot import Index
from cairn.release.publish.files import publish
from cairn.store.folder import LocalStore
from cairn.store.memory import MemoryStore
from cairn.store.protocol import Store
from cairn.wheels.wheelset import WheelSet
from helpers.faults import DIFFERENT, Fault, every_request
from helpers.release import audit, contents, make_set, make_wheel, move, stage_set

pytestmark = pytest.mark.slow

OLD, NEW = "2.8.0", "2.9.0"


@dataclass(frozen=True)
class Change:
    """A change of an index.

    Attributes:
        before: makes a new store just before it.
        act: makes it.
        index: which it changes.
        versions: of each project, before and after.
    """

    before: Callable[[], Store]
    act: Callable[[Store], object]
    index: str
    versions: tuple[set[str], set[str]]


def wheels_of(folder: Path, version: str) -> list[Path]:
    return [
        make_wheel(folder / version, "triton", version),
        make_wheel(folder / version, "torch", version, requires=[f"triton=={version}"]),
    ]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("wheels")


@pytest.fixture(scope="session")
def stores(folder: Path) -> tuple[MemoryStore, MemoryStore, MemoryStore, WheelSet]:
    """With a set staged; with it released and another staged; with both released; and the other one."""
    store = MemoryStore()

    def staged(version: str) -> WheelSet:
        wheels = wheels_of(folder, version)
        return stage_set(store, "staging", make_set(wheels), wheels)

    first = staged(OLD)
    one = MemoryStore(store.objects)
    move(store, first)
    second = staged(NEW)
    two = MemoryStore(store.objects)
    move(store, second)
    return one, two, store, second


@pytest.fixture
def change(what: str, folder: Path, stores: tuple[MemoryStore, MemoryStore, MemoryStore, WheelSet]) -> Change:
    one, two, three, second = stores
    new = wheels_of(folder, NEW)
    act: dict[str, Callable[[Store], object]] = {
        "publish": lambda there: publish(there, "staging", new),
        "stage": lambda there: stage_set(there, "staging", make_set(new), new),
        "promote": lambda there: move(there, second),
        "rollback": lambda there: rollback(there, "release", "1"),
    }
    before = {"promote": two, "rollback": three}.get(what, one)
    return Change(
        before=lambda: MemoryStore(before.objects),
        act=act[what],
        index="release" if what in ("promote", "rollback") else "staging",
        versions=({OLD, NEW}, {OLD}) if what == "rollback" else ({OLD}, {OLD, NEW}),
    )


def versions(store: Store, index: str) -> set[str]:
    """Those of every project, which are the same for each unless something was mixed."""
    there = Index(store, index).load()
    found = {frozenset(file.version for file in project.files) for project in there.projects()}
    assert len(found) == 1
    return set(*found)


def chain(store: Store, index: str) -> list[str]:
    """The digest of each generation, newest first, as each says of the one before it."""
    there = Index(store, index)
    return [digest for digest, _ in there.chain(there.load())]


def check(change: Change, store: Store, before: list[str]) -> None:
    """What holds after a fault, and after one try more."""
    assert versions(store, change.index) in change.versions
    recover(Index(store, change.index))
    assert audit(store, change.index, hashes=True) == ()
    change.act(store)
    assert versions(store, change.index) == change.versions[1]
    after = chain(store, change.index)
    assert after[1:] == before
    assert audit(store, change.index, hashes=True) == ()


@pytest.mark.parametrize("fault", DIFFERENT, ids=lambda fault: fault.name)
@pytest.mark.parametrize("what", ["publish", "promote", "rollback"])
def test_in_memory(change: Change, fault: Fault) -> None:
    before = chain(change.before(), change.index)
    tried = [check(change, store, before) for store in every_request([fault], change.before, change.act)]
    assert len(tried) >= 4


@pytest.mark.parametrize("what", ["stage"])
def test_staging_in_memory(change: Change) -> None:
    """Fewer faults: a set is resolved by uv, which takes its time."""
    before = chain(change.before(), change.index)
    faults = (Fault.LOST, Fault.REFUSED)
    tried = [check(change, store, before) for store in every_request(faults, change.before, change.act)]
    assert len(tried) >= 15


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.REFUSED], ids=lambda fault: fault.name)
@pytest.mark.parametrize("what", ["publish", "promote", "rollback"])
def test_in_a_folder(change: Change, fault: Fault, tmp_path: Path) -> None:
    """Those faults that leave something done, or not, against what was said."""
    made = LocalStore(tmp_path / "before")
    for key, data in contents(change.before()).items():
        made.write(key, data)
    numbers = itertools.count()

    def fresh() -> LocalStore:
        return LocalStore(shutil.copytree(made.path, tmp_path / f"store{next(numbers)}"))

    before = chain(made, change.index)
    tried = [check(change, store, before) for store in every_request([fault], fresh, change.act)]
    assert len(tried) >= 4
