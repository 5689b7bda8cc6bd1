from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cairn.store.folder import LocalStore
from cairn.store.memory import MemoryStore
from cairn.store.protocol import keep_young


@pytest.mark.parametrize(("hours", "renewed"), [(1, False), (13, True)])
def test_what_is_about_to_be_named_is_made_young(tmp_path: Path, hours: int, *, renewed: bool) -> None:
    then = datetime.now(UTC) - timedelta(hours=hours)
    folder, memory = LocalStore(tmp_path), MemoryStore({"a": b"1"})
    folder.write("a", b"1")
    os.utime(tmp_path / "a", (then.timestamp(), then.timestamp()))
    memory.modified["a"] = then
    for store in (folder, memory):
        keep_young(store, "a")
        keep_young(store, "b")
        found = store.stat("a")
        assert found is not None
        assert (found.modified - then > timedelta(minutes=30)) == renewed
        assert store.read("a").data == b"1"
        assert not store.exists("b")
