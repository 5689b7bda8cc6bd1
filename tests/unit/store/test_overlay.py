from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cairn.errors import StoreError
from cairn.store.memory import MemoryStore, OverlayStore
from cairn.store.protocol import MissingKeyError, Stray


def over() -> OverlayStore:
    below = MemoryStore(
        {"release/simple/a/index.html": b"old", "files/1": b"bytes", "staging/state.json": b"{}"}
    )
    return OverlayStore(
        below, {"release/simple/a/index.html": b"new", "release/simple/b/index.html": b"more"}
    )


def test_what_lies_over_it_is_seen_instead() -> None:
    store = over()
    assert store.read("release/simple/a/index.html").data == b"new"
    assert store.open("release/simple/a/index.html", start=1).read() == b"ew"
    assert store.open("files/1").read() == b"bytes"
    with store.as_file("release/simple/b/index.html") as path:
        assert path.read_bytes() == b"more"
    info = store.stat("release/simple/a/index.html")
    assert info is not None
    assert info.size == 3
    assert not store.exists("files/2")
    with pytest.raises(MissingKeyError):
        store.read("files/2")


def test_both_are_listed_each_key_once() -> None:
    store = over()
    assert [(found.key, found.size) for found in store.list("release/")] == [
        ("release/simple/a/index.html", 3),
        ("release/simple/b/index.html", 4),
    ]
    assert list(store.folders("")) == ["files", "release", "staging"]
    assert store.url == store.below.url
    assert list(store.strays()) == []


STRAY = Stray(name="x", kind="foreign", size=0, modified=datetime.now(UTC))


@pytest.mark.parametrize(
    "act",
    [
        lambda store: store.write("files/1", b""),
        lambda store: store.write_if("files/2", b"", etag=None),
        lambda store: store.put_file("files/2", Path(__file__)),
        lambda store: store.delete("files/1"),
        lambda store: store.renew("files/1"),
        lambda store: store.discard(STRAY),
    ],
)
def test_nothing_of_it_changes(act: Callable[[OverlayStore], object]) -> None:
    store = over()
    with pytest.raises(StoreError, match="as it will be"):
        act(store)
    assert store.read("files/1").data == b"bytes"
