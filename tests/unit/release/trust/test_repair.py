"""`cairn index repair` puts a forged or lost `state.json` right from what was signed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from cairn.release.audit.audit import audit
from cairn.release.history.yank import yank
from cairn.release.index import keys
from cairn.release.index.generation import Pointer, encode
from cairn.release.index.reading import read_current
from cairn.release.index.snapshot import Index
from cairn.release.provenance import evidence
from cairn.release.provenance.attest import KeyAttester
from cairn.release.trust import root
from cairn.release.trust.metadata import TIMESTAMP
from cairn.store.folder import LocalStore
from cairn.store.memory import MemoryStore
from helpers.faults import EVERY_MOMENT
from helpers.moments import dying
from helpers.program import Cairn
from helpers.provenance import released
from helpers.release import in_folder
from helpers.trust import BUILDER, PROMOTER, TESTER, acting_as, key_file, rooted

STATE = keys.state_key("release")


@dataclass(kw_only=True)
class Made:
    """What a store had: signed, before its last change, after that died, and by somebody without a key."""

    folder: Path
    root: str
    before: dict[str, bytes]
    signed: dict[str, bytes]
    planted: dict[str, bytes]
    dead: list[dict[str, bytes]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAIRN_CACHE_DIR", str(folder / "cache"))
        patch.delenv("CAIRN_SIGN_KEY", raising=False)
        first = released(tmp_path_factory.mktemp("a"), attester=KeyAttester(PROMOTER), tested_by=TESTER)
        store = first.store
        evidence.sign_builder(store, first.made.id, evidence.of_builder(store, first.made), BUILDER)
        trusted = rooted(store)
        with acting_as(folder, PROMOTER):
            root.sign_all(store, trusted, {})
            before = dict(store.objects)
            shutil.copytree(folder / "cache", folder / "before")

            def work(begun: MemoryStore) -> None:
                machine = tmp_path_factory.mktemp("machine") / "cache"
                shutil.copytree(folder / "before", machine)
                patch.setenv("CAIRN_CACHE_DIR", str(machine))
                yank(begun, first.made.id, reason="it eats data")

            dead = [begun.objects for _, begun in dying(store, work)]
            work(store)
    honest = {key: data for key, data in store.objects.items() if not key.startswith("metadata/")}
    planted = MemoryStore(honest, url="memory:planted")
    released(tmp_path_factory.mktemp("b"), version="2.9.1", store=planted, attester=KeyAttester(BUILDER))
    return Made(
        folder=folder,
        root=trusted.fingerprint,
        before=before,
        signed=dict(store.objects),
        planted=planted.objects,
        dead=dead,
    )


def put(store: LocalStore, objects: dict[str, bytes], *, part: str = "") -> None:
    for key, data in objects.items():
        if part in key and not key.startswith("metadata/"):
            store.write(key, data)


FORGED: dict[str, Callable[[LocalStore, Made], None]] = {
    "a release of his own": lambda store, made: put(store, made.planted),
    "the pointer to it alone": lambda store, made: store.write(STATE, made.planted[STATE]),
    "the state before": lambda store, made: put(store, made.before, part="release/"),
    "the pointer to the state before": lambda store, made: store.write(STATE, made.before[STATE]),
    "nothing": lambda store, _: store.delete(STATE),
    "nothing, and no pages": lambda store, _: (
        [store.delete(one.key) for one in list(store.list("release/simple"))] and store.delete(STATE)
    ),
    "no JSON": lambda store, _: store.write(STATE, b"{"),
    "no UTF-8": lambda store, _: store.write(STATE, b'{"\xff": 1}'),
    "a generation that is not there": lambda store, _: store.write(
        STATE, encode(Pointer(generation=7, digest="7" * 64, rendered=7, rendered_digest="7" * 64))
    ),
    "that nothing was ever published": lambda store, _: store.write(
        STATE, encode(Pointer(generation=0, digest="0" * 64, rendered=0, rendered_digest="0" * 64))
    ),
    "pages of his own": lambda store, made: put(store, made.planted, part="release/simple"),
}


@pytest.mark.parametrize("forged", FORGED)
def test_what_was_signed_is_current_again(
    cairn: Cairn, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forged: str
) -> None:
    monkeypatch.delenv("CAIRN_SIGN_KEY", raising=False)
    shutil.copytree(made.folder / "before", tmp_path / "cache")
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CAIRN_ROOT", made.root)
    store = in_folder(MemoryStore(made.signed), tmp_path / "store")
    FORGED[forged](store, made)
    repair = ("index", "repair", "--store", tmp_path / "store")
    left = {one.key: store.read(one.key).data for one in store.list("")}
    would = cairn(*repair, "--dry-run")
    assert {one.key: store.read(one.key).data for one in store.list("")} == left
    shown = cairn(*repair)
    is_pointer = store.read(STATE).data != left.get(STATE)
    assert is_pointer == ("generation 2, which is signed, is current again" in shown.out)
    assert is_pointer == ("generation 2, which is signed, would be current again" in would.out)
    foreign = {"a release of his own"}  # whose ledger and staging nobody signs
    for key, data in made.signed.items() if forged not in foreign else ():
        assert store.read(key).data == data, key
    assert read_current(Index(store, "release")).generation.number == 2
    cairn("index", "check", "--store", tmp_path / "store", "--index", "release")
    assert "2.9.1" not in cairn("release", "log", "--store", tmp_path / "store").out


def test_a_change_that_a_promoter_promised_is_finished_and_not_taken_for_a_forgery(
    cairn: Cairn, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CAIRN_SIGN_KEY", raising=False)
    monkeypatch.setenv("CAIRN_ROOT", made.root)

    for number, dead in enumerate(made.dead if EVERY_MOMENT else made.dead[::4]):
        place = tmp_path / str(number)
        shutil.copytree(made.folder / "before", place / "cache")
        monkeypatch.setenv("CAIRN_CACHE_DIR", str(place / "cache"))
        store = in_folder(MemoryStore(dead), place / "store")
        begun = dead[TIMESTAMP] != made.before[TIMESTAMP] or dead[STATE] != made.before[STATE]
        repair = ("index", "repair", "--store", place / "store", "--sign-key", key_file(place, PROMOTER))
        cairn(*repair)
        assert Index(store, "release").load().generation.number == (2 if begun else 1)
        assert [one.said for one in audit(store).problems] == []
