from __future__ import annotations

import threading
from pathlib import Path

import pytest

from cairn.errors import StoreError
from cairn.store.folder import LocalStore
from cairn.store.memory import MemoryStore
from cairn.store.protocol import OnBytes, Store, no_progress
from cairn.store.transfer import Progress, as_files, put_files
from helpers.release import contents, keys_of


@pytest.fixture(params=["folder", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return LocalStore(tmp_path / "store") if request.param == "folder" else MemoryStore()


@pytest.fixture
def sources(tmp_path: Path) -> dict[str, Path]:
    found = {}
    for number in range(6):
        path = tmp_path / f"file{number}"
        path.write_bytes(bytes([number]) * 1000)
        found[f"files/{number}"] = path
    return found


def test_what_is_there_is_not_sent_again(store: Store, sources: dict[str, Path]) -> None:
    store.write("files/1", sources["files/1"].read_bytes())
    store.write("files/2", bytes(1000))  # as long, and something else
    said: list[Progress] = []
    sent = put_files(store, sources, on_progress=said.append)
    assert sent == ("files/0", "files/2", "files/3", "files/4", "files/5")
    assert contents(store) == {key: path.read_bytes() for key, path in sources.items()}
    assert (said[-1].done, said[-1].files, said[-1].size, said[-1].of_size) == (6, 6, 6000, 6000)
    assert put_files(store, sources) == ()


def test_objects_are_handed_out_as_files_together(store: Store, sources: dict[str, Path]) -> None:
    put_files(store, sources)
    with as_files(store, ["files/3", "files/4"]) as paths:
        assert {key: path.read_bytes() for key, path in paths.items()} == {
            "files/3": bytes([3]) * 1000,
            "files/4": bytes([4]) * 1000,
        }
    with pytest.raises(StoreError, match="lacks 2 object"), as_files(store, ["files/3", "none", "no"]):
        pass


def test_files_travel_side_by_side(sources: dict[str, Path]) -> None:
    together = threading.Barrier(4, timeout=20)

    class Slow(MemoryStore):
        def put_file(
            self, key: str, source: Path, *, sha256: str | None = None, on_bytes: OnBytes = no_progress
        ) -> bool:
            if key < "files/4":
                together.wait()  # breaks unless four are under way at once
            return super().put_file(key, source, sha256=sha256, on_bytes=on_bytes)

    store = Slow()
    put_files(store, sources)
    assert len(keys_of(store)) == 6


def test_progress_is_said_in_one_line() -> None:
    said = Progress(done=3, files=12, size=1_200_000_000, of_size=3_400_000_000, seconds=10.0)
    assert str(said) == "3 of 12 files, 1.2 GB of 3.4 GB, 120.0 MB/s"
