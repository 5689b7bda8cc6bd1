"""A writer dies at any of its writes, a person then edits something: nothing is green that is not whole."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from cairn.cli import common_options
from cairn.cli.main import main
from cairn.release.audit.audit import audit
from cairn.release.history.rollback import rollback
from cairn.release.history.yank import yank
from cairn.store.memory import MemoryStore
from cairn.wheels.wheelset import WheelSet
from helpers.faults import EVERY_MOMENT
from helpers.moments import dying
from helpers.release import move

Sets = dict[str, WheelSet]

COMMANDS: dict[str, Callable[[MemoryStore, Sets], object]] = {
    "promote": lambda store, sets: move(store, sets["2.10.0"]),
    "yank": lambda store, sets: yank(store, sets["2.9.0"].id, reason="wrong results"),
    "rollback": lambda store, _: rollback(store, "release", "1"),
}

EDITS = {
    "page": r"release/simple/torch/index\.html",
    "page for programs": r"release/simple/index\.json",
    "pointer": r"release/state\.json",
    "part": r"release/parts/",
    "generation": r"release/generations/",
    "end of the ledger": r"ledger/entries/",
    "set": r"sets/\w+/set\.json",
}
"""What a person edits: the last object by name whose key is like this."""


def edited(store: MemoryStore, pattern: str, *, cut: bool) -> None:
    """Cut or remove the newest object, by its name; of the ledger, what else tells of it too."""
    key = max(key for key in store.objects if re.match(pattern, key))
    if cut:
        store.write(key, store.read(key).data[: len(store.read(key).data) // 2])
    else:
        store.delete(key)
    if pattern.startswith("ledger"):
        for lookup in [key for key in store.objects if re.match("ledger/(head|sets|names)", key)]:
            store.delete(lookup)


def offered(store: MemoryStore) -> dict[str, object]:
    """What pip is offered of torch in release, with its marks."""
    page = json.loads(store.read("release/simple/torch/index.json").data)
    return {file["filename"]: file["yanked"] for file in page["files"]}


@pytest.fixture
def before(nights: MemoryStore, sets: Sets) -> MemoryStore:
    """A store with two of its three sets in release."""
    for version in ("2.8.0", "2.9.0"):
        move(nights, sets[version])
    return nights


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_is_green_that_is_not_whole(
    before: MemoryStore, sets: Sets, command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    after = MemoryStore(before.objects)
    COMMANDS[command](after, sets)
    expected = [offered(before), offered(after)]
    assert expected[0] != expected[1]
    shown, wrong = set(), []
    for left, dead in dying(before, lambda store: COMMANDS[command](store, sets)):
        for number, (name, pattern) in enumerate(EDITS.items()):
            if not EVERY_MOMENT and (left + number) % (2 * len(EDITS)):
                continue
            store = MemoryStore(dead.objects)
            edited(store, pattern, cut=bool(left % 2))
            monkeypatch.setattr(common_options.StoreOptions, "open_existing_store", lambda _, it=store: it)
            main(["index", "repair", "--store", str(tmp_path)])
            good = audit(store, hashes=True).good
            shown.add(good)
            # A page is made again, whatever else its writer has left; of all else the store knows no better.
            if (good and offered(store) not in expected) or (name.startswith("page") and not good):
                wrong.append((left, name, good))
    assert wrong == []
    assert shown == {True, False}
