"""Each prefix of a store is lost in turn: the commands say what docs/reference/audit.md says that they do."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cairn import datafile
from cairn.cli import common_options
from cairn.errors import StoreError
from cairn.pipeline.night import plan
from cairn.release.index import keys
from cairn.release.index.snapshot import read_set
from cairn.release.pages.night_history import History, PastNight
from cairn.release.provenance import evidence
from cairn.release.provenance.attest import KeyAttester
from cairn.release.trust import root
from cairn.store.memory import MemoryStore
from helpers.night import FROZEN, leg_of, plan_of
from helpers.program import Cairn
from helpers.provenance import released
from helpers.release import move
from helpers.trail import ROOT
from helpers.trust import BUILDER, PROMOTER, TESTER, acting_as, key_file, rooted

PAGE = (ROOT / "docs" / "reference" / "audit.md").read_text("utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.partition("## What was lost")[2].partition("\n## ")[0].splitlines()
    if line.startswith("| `")
]


@dataclass(frozen=True)
class Made:
    """A store with a root, and what the machine of its promoter remembers."""

    folder: Path
    objects: dict[str, bytes]
    set_id: str


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAIRN_CACHE_DIR", str(folder / "cache"))
        patch.delenv("CAIRN_SIGN_KEY", raising=False)
        first = released(folder / "wheels", attester=KeyAttester(PROMOTER), tested_by=TESTER)
        evidence.sign_builder(
            first.store, first.made.id, evidence.of_builder(first.store, first.made), BUILDER
        )
        trusted = rooted(first.store)
        with acting_as(folder, PROMOTER):
            root.sign_all(first.store, trusted, {})
        frozen = plan_of(leg_of("cpu"))
        plan.create(first.store, frozen, FROZEN)
        first.store.write(keys.nights_key("release", "json"), datafile.dumps(history_of(frozen)).encode())
        yield Made(folder, dict(first.store.objects), first.made.id)


def history_of(frozen: plan.NightPlan) -> History:
    """What a report of a night leaves in its channel."""
    past = PastNight(
        night=frozen.night,
        stack=frozen.stack,
        line=frozen.line,
        started=frozen.frozen,
        finished=frozen.frozen,
        manifest_sha256=frozen.manifest_sha256,
        log=None,
        legs={},
    )
    return History(channel="release", nights=(past,))


def test_the_page_names_each_prefix_but_those_of_pages_for_people(made: Made) -> None:
    prefixes = tuple(row[0].strip("`") for row in ROWS)
    rest = [key.replace("staging/", "release/", 1) for key in made.objects]  # an index as `release` is
    assert {keys.kind_of(key) for key in rest if not key.startswith(prefixes)} == {"for people"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip("`"))
def test_a_lost_prefix_is_named_and_comes_back_as_the_page_says(
    cairn: Cairn, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: list[str]
) -> None:
    prefix, check, names, repair, after, _ = (cell.strip("`") for cell in row)
    shutil.copytree(made.folder / "cache", tmp_path / "cache")
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "cache"))
    store = MemoryStore(made.objects)
    monkeypatch.setattr(common_options.StoreOptions, "open_existing_store", lambda _: store)
    lost = {key: data for key, data in made.objects.items() if key.startswith(prefix)}
    assert lost
    for key in lost:
        store.delete(key)
    place = ("--store", tmp_path)
    repairs = ("index", "repair", *place, "--sign-key", key_file(tmp_path, PROMOTER))
    shown = cairn("index", "check", *place, code=int(check))
    assert check == "0" or re.search(names, shown.out), shown.out
    assert "--accept-loss" not in shown.out or prefix == "nights/"  # what was signed cannot be given up
    cairn("index", "verify", *place, code=int(check))
    shown = cairn(*repairs, code=int(repair))
    assert repair == "0" or prefix.rstrip("/") in shown.err
    cairn("index", "check", *place, code=int(after))
    for key, data in lost.items():
        store.write(key, data)
    cairn(*repairs)
    cairn("index", "check", *place)
    assert {key: data for key, data in store.objects.items() if key in lost} == lost


def test_a_signed_index_that_a_promoter_gives_up_is_missed_no_more_and_stays_closed(
    cairn: Cairn, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(made.folder / "cache", tmp_path / "cache")
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "cache"))
    store = MemoryStore({key: data for key, data in made.objects.items() if not key.startswith("release/")})
    monkeypatch.setattr(common_options.StoreOptions, "open_existing_store", lambda _: store)
    key = key_file(tmp_path, PROMOTER)
    check, signed = (
        ("index", "check", "--hashes", "--store", tmp_path),
        ("--store", tmp_path, "--sign-key", key),
    )
    assert '--accept-loss "release=REASON"' in cairn(*check, code=9).out
    cairn("index", "repair", "--accept-loss", "release=the disk died", *signed)
    for words in (("index", "repair"), ("index", "gc")):
        cairn(*words, *signed)
        cairn(*check)
    cairn("release", "yank", made.set_id, "--reason", "wrong", *signed)
    cairn("release", "yank", made.set_id, "--reason", "right", "--undo", "--who", "ann", *signed)
    cairn(*check)
    with (
        acting_as(tmp_path, PROMOTER),
        pytest.raises(StoreError, match="release is signed at generation 1, and nothing") as refused,
    ):
        move(store, read_set(store, made.set_id))
    assert "restore release from a copy" in (refused.value.tip or "")
    cairn(*check)
    for name in [name for name in made.objects if name.startswith("release/")]:
        store.write(name, made.objects[name])
    cairn("index", "repair", *signed)
    cairn(*check)
