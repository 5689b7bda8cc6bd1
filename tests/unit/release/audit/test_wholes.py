"""What is removed as a whole is missed by name, until it is restored or somebody accepts that it is gone."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from cairn.cli import main
from cairn.errors import StoreError, UsageError
from cairn.release import gc, records, wholes
from cairn.release.audit.audit import audit
from cairn.release.history.rollback import rollback
from cairn.release.history.yank import lift, yank
from cairn.release.index import keys, restore
from cairn.release.index.generation import who
from cairn.release.index.snapshot import Index
from cairn.release.ledger import Ledger
from cairn.release.trust import root
from cairn.store.memory import MemoryStore
from cairn.wheels.wheelset import WheelSet
from helpers.gate import data_of, failed_record, record_of
from helpers.nights import everything_is_a_year_old
from helpers.release import in_folder, make_wheel, manifest_of, put
from helpers.trust import PROMOTER, acting_as, rooted

Sets = dict[str, WheelSet]


def removed(store: MemoryStore, pattern: str) -> MemoryStore:
    """A copy of a store without what matches."""
    lost = [key for key in store.objects if re.match(pattern, key)]
    assert lost, pattern
    return MemoryStore({key: data for key, data in store.objects.items() if key not in lost})


def said(store: MemoryStore) -> list[str]:
    return [problem.said for problem in audit(store, hashes=True).problems]


# Each top-level thing of a store, and what the audit says of it.
REMOVED = {
    "release/": r"the index release is gone, which was there on .*: restore it from a copy of the store, or",
    "staging/": r"the index staging is gone",
    "(release|index.html|choose.html)": r"the index release is gone",
    "release/(?!parts)": r"the index release is gone",
    "release/(state|generations)": r"the index release is gone",
    "release/state.json": r"release/state\.json was lost",
    "release/generations/": r"generations/00000003-\w+\.json is lost",
    "release/parts/": r"release/parts/\w+\.json is lost",
    "release/simple/": r"release/simple/torch/index\.json is missing",
    "files/": r"files/\w+/\w+/torch-2\.9\.0-py3-none-any\.whl is missing",
    "sets/": r"its set\.json is missing",
    "sets/.*/records/": r"records/\w+\.json is missing",
    "ledger/": r"the ledger is gone, and staging was published into: restore it",
    "ledger/entries/": r"the ledger had \d+ entries, and has 0",
    "ledger/entries/00000002": r"the ledger ends after entry 1, and there are later ones",
    "ledger/(head|entries/0000000[2-9])": r"the ledger had \d+ entries or more, and has 2",
}


@pytest.fixture
def noted(released: MemoryStore, sets: Sets) -> MemoryStore:
    """A store with a release, of which everything is noted."""
    records.add(released, data_of(record_of(sets["2.9.0"])))
    assert said(released) == []
    return released


@pytest.mark.parametrize("pattern", REMOVED)
def test_a_whole_that_was_removed_is_missed(noted: MemoryStore, pattern: str) -> None:
    store = removed(noted, pattern)
    assert re.search(REMOVED[pattern], "\n".join(said(store)))


@pytest.mark.parametrize("pattern", ["release/", "staging/", "ledger/", "(release|index.html|choose.html)"])
def test_neither_repair_nor_garbage_collection_hides_that_a_whole_is_gone(
    noted: MemoryStore, pattern: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    everything_is_a_year_old(noted)
    store = removed(noted, pattern)
    name = "ledger" if "ledger" in pattern else pattern.strip("(").partition("|")[0].strip("/")
    folder = in_folder(store, tmp_path / "store")
    before = {listed.key for listed in folder.list("")}
    place = ("--store", str(folder.path))
    for words in (("repair",), ("gc", "--older-than", "1"), ("check",)):
        assert main.main(["index", *words, *place]) == 9, words
        shown = capsys.readouterr()
        assert f"{name} is gone" in shown.out + shown.err
    assert {listed.key for listed in folder.list("")} == before
    # A person decides; the pages are then written without it.
    accept = ("repair", "--accept-loss", f"{name}=the disk died")
    assert main.main(["index", *accept, *place]) == 0
    assert main.main(["index", "repair", *place]) == 0
    assert main.main(["index", "check", *place]) == 0
    assert main.main(["index", *accept, *place]) == 2
    assert f"{name} is not missing" in capsys.readouterr().err


@pytest.mark.parametrize("rooted_store", [False, True])
@pytest.mark.parametrize("lost", ["release", "staging"])
def test_a_yank_names_an_index_that_is_gone_and_holds(
    noted: MemoryStore, sets: Sets, lost: str, tmp_path: Path, *, rooted_store: bool
) -> None:
    if rooted_store:
        trusted = rooted(noted)
        with acting_as(tmp_path, PROMOTER):
            root.sign_all(noted, trusted, {})
    left, banned = removed(noted, f"{lost}/"), sets["2.9.0"]
    with acting_as(tmp_path, PROMOTER):
        for act in (
            lambda: yank(left, banned.id, reason="wrong", dry_run=True),
            lambda: yank(left, banned.id, reason="wrong"),
            lambda: lift(left, banned.id, by="ann", reason="right"),
            lambda: yank(left, banned.id, reason="wrong"),
        ):
            with pytest.raises(StoreError, match=rf"not yet on all pages of {lost}: .*lost"):
                act()
        assert Ledger(left).ban(banned.id) is not None
        for key, data in noted.objects.items():
            if key.startswith(f"{lost}/"):
                left.write(key, data)
        yank(left, banned.id, reason="wrong")
        assert {Index(left, name).load().set(banned.id).yanked for name in ("release", "staging")} == {
            "wrong"
        }
        left = removed(left, f"{lost}/")
        restore.accept_loss(left, lost, "the disk died")
        yank(left, banned.id, reason="wrong")


def test_an_index_that_begins_again_is_missed_again(store: MemoryStore, tmp_path: Path) -> None:
    for number in range(2):
        put(store, "dev", [make_wheel(tmp_path / str(number), f"alone{number}", "1.0")])
        assert list(wholes.gone(store)) == []
        for key in [key for key in store.objects if key.startswith("dev/")]:
            store.delete(key)
        assert [name for name, _ in wholes.gone(store)] == ["dev"]
        with pytest.raises(StoreError, match="the index dev is gone"):
            gc.collect(store, older_than=gc._TEMPORARY)
        restore.accept_loss(store, "dev", f"reason {number}")
        assert list(wholes.gone(store)) == []
    with pytest.raises(UsageError, match="dev is not missing"):
        restore.accept_loss(store, "dev", "again")


def test_a_ledger_that_was_begun_again_is_no_whole_one(noted: MemoryStore, tmp_path: Path) -> None:
    store = removed(noted, "ledger/")
    put(store, "dev", [make_wheel(tmp_path, "alone", "1.0")])
    (text,) = said(store)
    assert re.match(r"the ledger begins on .*, later than the indexes, and has lost what it remembered", text)
    restore.accept_loss(store, wholes.LEDGER, "an earlier Cairn had none")
    assert said(store) == []


def test_a_root_that_is_gone_is_missed_by_who_never_saw_it(noted: MemoryStore) -> None:
    rooted(noted)
    store = removed(noted, "metadata/")
    assert any("the root of the store is gone, which was there on" in text for text in said(store))


def test_a_recipe_that_a_set_names_is_missed(noted: MemoryStore) -> None:
    digest = "ab" * 32
    noted.write(keys.set_key("0" * 64, "manifest.json"), manifest_of(recipe=digest))
    assert any(f"recipes/{digest}.json is missing, which sets/000" in text for text in said(noted))


def test_a_record_that_the_ledger_has_is_missed_where_no_index_has_its_set(
    nights: MemoryStore, sets: Sets
) -> None:
    records.add(nights, data_of(record_of(sets["2.9.0"])))
    rollback(nights, "staging", "0")
    assert said(nights) == []
    store = removed(nights, r"sets/.*/records/")
    (text,) = said(store)
    assert re.search(r"records/\w+\.json is missing, which the ledger has since", text)


def cut_back(store: MemoryStore, count: int) -> MemoryStore:
    """A copy of a store whose ledger ends after so many entries, with no lookup that tells of more."""
    late = "|".join(key for key in sorted(store.objects) if key.startswith("ledger/entries/"))
    late = "|".join(late.split("|")[count:])
    return removed(store, rf"ledger/(head|names|sets)|{late}")


# What a command notes, and what the audit says once that is cut off with the head and the lookups.
CUT_OFF: dict[str, tuple[Callable[[MemoryStore, Sets, Path], object], str]] = {
    "yank": (lambda store, sets, _: yank(store, sets["2.9.0"].id, reason="wrong"), "has lost entry"),
    "rollback": (lambda store, _, __: rollback(store, "release", "1"), "has lost entry"),
    "publish": (
        lambda store, _, folder: put(store, "dev", [make_wheel(folder, "alone", "1.0")]),
        "has lost entry",
    ),
    "begin": (lambda store, _, folder: _begin_dev(store, folder), "has lost that dev began"),
    "record": (
        lambda store, sets, _: records.add(store, data_of(record_of(sets["2.8.0"]))),
        r"records/\w+\.json is not in the ledger",
    ),
}


def _begin_dev(store: MemoryStore, folder: Path) -> None:
    """Publish into an index whose names the ledger has, so that only its beginning is new there."""
    wheel = make_wheel(folder, "alone", "1.0")
    Ledger(store).add(names={"": {wheel.name: hashlib.sha256(wheel.read_bytes()).hexdigest()}})
    put(store, "dev", [wheel])


@pytest.mark.parametrize("command", CUT_OFF)
def test_entries_that_were_cut_off_are_missed_by_what_else_they_leave(
    noted: MemoryStore, sets: Sets, command: str, tmp_path: Path
) -> None:
    before = len(list(Ledger(noted).entries())) + (command == "begin")
    act, expected = CUT_OFF[command]
    act(noted, sets, tmp_path)
    assert said(noted) == []
    store = cut_back(noted, before)
    assert re.search(expected, "\n".join(said(store)))


def test_a_yank_that_was_cut_off_the_ledger_is_undone_by_nobody(
    noted: MemoryStore, sets: Sets, tmp_path: Path
) -> None:
    before, banned = len(list(Ledger(noted).entries())), sets["2.9.0"]
    yank(noted, banned.id, reason="wrong")
    store = cut_back(noted, before)
    assert Ledger(store).ban(banned.id) is None
    folder = in_folder(store, tmp_path / "store")
    place, back = ("--store", str(folder.path)), ("release", "rollback", "--index", "release", "--to", "1")
    lines = ["repair", "repair --index release", "gc", "check"]
    for words in (*(("index", *line.split()) for line in lines), (*back, "--dry-run"), back):
        assert main.main([*words, *place]) == 9, words
    with pytest.raises(StoreError, match="has lost entry"):
        records.add(folder, data_of(failed_record(banned)))
    assert Index(folder, "release").load().set(banned.id).yanked == "wrong"
    # A person decides; what the indexes still tell is noted again.
    accept = ("index", "repair", "--accept-loss", "ledger=the disk died")
    assert main.main([*accept, *place]) == 0
    assert Ledger(folder).ban(banned.id) is not None
    assert main.main(["index", "check", *place]) == 9  # for the failed record alone
    assert [problem.said for problem in audit(folder).problems if "failed" not in problem.said] == []
    assert main.main([*back, *place]) == 0


def test_nights_that_are_gone_are_missed_until_somebody_accepts_that(noted: MemoryStore) -> None:
    past = {"night": "2026-11-01-1", "started": "2026-11-01T00:00:00Z", "manifest_sha256": "ab" * 32}
    unfrozen = past | {"night": "2026-11-02-1", "manifest_sha256": ""}
    noted.write("release/nights.json", json.dumps({"nights": [past, unfrozen]}).encode())
    (text,) = (text for text in said(noted) if "nights/" in text)
    assert text.startswith(
        "nights/2026-11-01-1/night.json is missing, which release/nights.json shows: restore"
    )
    restore.accept_loss(noted, wholes.NIGHTS, "the disk died")
    assert not [text for text in said(noted) if "nights/" in text]
    noted.write("release/nights.json", b"{")
    assert [text for text in said(noted) if text.startswith("release/nights.json cannot be read")]


def test_who_has_no_promoters_key_accepts_no_loss(noted: MemoryStore, tmp_path: Path) -> None:
    put(noted, "dev", [make_wheel(tmp_path, "alone", "1.0")])
    trusted = rooted(noted)
    with acting_as(tmp_path, PROMOTER):
        root.sign_all(noted, trusted, {})
    store = removed(noted, "dev/")
    before = said(store)
    assert "the index dev is gone" in before[0]
    with pytest.raises(UsageError, match="key"):
        restore.accept_loss(store, "dev", "nobody needs it")
    assert said(store) == before
    Ledger(store).add(events=[wholes.event_of("end", "dev", "nobody needs it")])  # as whoever can write can
    (text,) = set(said(store)) - {*before}
    begins = f"the ledger has the end of dev by {who()}, and no promoter signed it: it counts for nothing"
    assert text.startswith(begins)
    assert before[0] in said(store)
    with acting_as(tmp_path, PROMOTER):
        restore.accept_loss(store, "dev", "nobody needs it")
    assert before[0] not in said(store)
