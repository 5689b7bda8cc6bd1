"""`cairn trust`, and what `cairn index verify` makes of a root, as a user types them."""

from __future__ import annotations

import datetime as dt
import json
import re
import shutil
import sys
import types
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import msgspec
import pytest
from msgspec import structs
from tuf.ngclient._internal import trusted_metadata_set

from cairn import datafile
from cairn.errors import CairnError
from cairn.pipeline import install
from cairn.release.index import commit, write
from cairn.release.index.generation import PUBLISHED, FileEntry
from cairn.release.index.snapshot import Change, Index
from cairn.release.pages.targets_file import Machine, TargetsFile
from cairn.release.provenance import evidence
from cairn.release.trust import anchor, metadata, root
from cairn.release.trust.signers import PUBLIC_NAME
from cairn.store.folder import LocalStore
from helpers.program import Cairn
from helpers.provenance import RELEASER, TESTER, Released, released, signer
from helpers.release import in_folder, with_forged_page
from helpers.trust import key_file

FILE = FileEntry(filename="", sha256="a" * 64, size=1, version="", build=PUBLISHED)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Released:
    return released(tmp_path_factory.mktemp("released"))


@pytest.fixture
def place(made: Released, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with `store`, and the one key of the one person who releases into it."""
    monkeypatch.delenv("CAIRN_SIGN_KEY", raising=False)
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "cache"))
    in_folder(made.store, tmp_path / "store")
    (tmp_path / PUBLIC_NAME).write_bytes(TESTER.public.pem())
    key_file(tmp_path, RELEASER)
    return tmp_path


def test_one_person_with_one_key_signs_all_and_anybody_checks_by_the_fingerprint(
    cairn: Cairn, made: Released, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, key = place / "store", key_file(place, RELEASER)
    (store / "sets" / made.made.id / evidence.BUILDER_SIGNATURE).unlink(missing_ok=True)
    shown = cairn.json("trust", "init", "--store", store, "--root-key", key, "--tester", place / PUBLIC_NAME)
    assert shown["signed"] == [{"index": "release", "generation": 1}]
    assert shown["keys"]["promoter"] == shown["keys"]["builder"] == [RELEASER.key_id]
    assert shown["signed_as_builder"] == [made.made.id]
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(place / "elsewhere"))
    wheel = ("index", "verify", made.wheels[-1], "--root", shown["root"])
    (report,) = cairn.json(*wheel, "--store", store)
    assert (report["good"], report["warnings"]) == (True, [])
    copy, bundle = place / "copy", place / "torch.zip"
    shutil.copytree(store, copy)
    cairn(*wheel, "--store", copy, "--save-bundle", bundle)
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(place / "a third"))
    (report,) = cairn.json(*wheel, "--bundle", bundle)
    assert report["good"]

    yank = ("release", "yank", made.made.id, "--store", store, "--reason", "it eats data")
    # Which has not seen the store, and so cannot tell an old copy; it is told by a machine that has.
    assert "has not seen" in cairn(*yank, "--sign-key", key, code=2).err
    assert shown["metadata"] == "1.1"
    meet = ("trust", "show", "--store", store, "--seen")
    assert "set back: it is version 1.1, and 1.2 was seen" in cairn(*meet, "1.2", code=9).err
    assert "is no version, such as 41.17" in cairn(*meet, "x", code=2).err
    assert "has not seen" in cairn(*yank, "--sign-key", key, code=2).err
    cairn(*meet, shown["metadata"])
    cairn(*yank, "--sign-key", key)
    (report,) = cairn.json(*wheel, "--store", store)
    assert report["warnings"] == ["it was yanked: it eats data"]
    # Whoever can write there puts the old state back, and is not believed.
    shutil.copytree(copy / "release", store / "release", dirs_exist_ok=True)
    (report,) = cairn.json(*wheel, "--store", store)
    assert report["warnings"] == ["it was yanked: it eats data"]
    assert "set back" in cairn(*wheel, "--store", copy, code=9).err
    wrong = ("index", "verify", made.wheels[-1], "--root", "0" * 64, "--store", store)
    assert "has the root sha256:" in cairn(*wrong, code=9).err


@pytest.mark.parametrize(
    ("days", "says"),
    [
        (-1, ""),
        (1, ""),
        (6, ""),
        (8, "the clock of this machine says"),
        (100, "the clock of this machine says"),
    ],
)
def test_a_clock_that_is_wrong_or_a_mirror_that_is_old(
    cairn: Cairn, made: Released, place: Path, monkeypatch: pytest.MonkeyPatch, days: int, says: str
) -> None:
    """A day in either direction is nothing; after a week the line says what there is to look at."""
    store, key = place / "store", key_file(place, RELEASER)
    root = cairn.json("trust", "init", "--store", store, "--root-key", key)["root"]

    class Clock(dt.datetime):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Any:
            return dt.datetime.now(tz) + dt.timedelta(days=days)

    module = types.SimpleNamespace(datetime=Clock, timezone=dt.timezone)
    monkeypatch.setattr(trusted_metadata_set, "datetime", module)
    monkeypatch.setattr(metadata, "datetime", Clock)
    words = ("index", "verify", made.wheels[-1], "--store", store, "--root", root)
    for machine in ("one that knows it", "new"):
        monkeypatch.setenv("CAIRN_CACHE_DIR", str(place / machine))
        if says:
            line = cairn(*words, code=9).err
            assert says in line
            assert re.search(
                r"timestamp.json is expired: its timestamp counts until 2\d+-\S+Z, and the clock", line
            )
            assert "set the clock, if it is wrong; else do not install from there" in line
        else:
            assert cairn.json(*words)[0]["good"]


def test_a_page_that_was_planted_before_the_root_does_not_stay(cairn: Cairn, place: Path) -> None:
    page = next((place / "store" / "release" / "simple").glob("torch/index.html"))
    whole = page.read_bytes()
    page.write_bytes(whole.replace(b"torch-", b"forged-"))
    cairn("trust", "init", "--store", place / "store", "--root-key", key_file(place, RELEASER))
    assert page.read_bytes() == whole


@pytest.mark.parametrize("adopting", ["init", "refresh", "change"])
def test_no_line_is_copied_from_a_page_that_an_adopted_state_names(
    cairn: Cairn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, adopting: str
) -> None:
    """Whoever wrote the state has forged that page, and writes it once more after the state was adopted."""
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(write, "_is_rendered_whole", lambda _: False)
    store, new, key = LocalStore(tmp_path / "store"), signer(31), key_file(tmp_path, RELEASER)
    at = ("--store", store.path)

    def publish(number: int) -> None:
        file = structs.replace(FILE, filename=f"torch-{number}.0-py3-none-any.whl", version=f"{number}.0")
        for attempt in commit.attempts(Index(store, "release")):
            state = attempt.before.project("torch").with_files((file,))
            if attempt.commit(Change(projects={"torch": state}), "publish"):
                break

    if adopting != "init":
        cairn("trust", "init", *at, "--root-key", key)
    with anchor.acting(key=key):
        for number in (1, 2, 3):
            publish(number)
        forged = with_forged_page(store)
    if adopting == "init":
        cairn("trust", "init", *at, "--root-key", key)
    else:
        digest = Index(store, "release").load().digest
        named = ("--adopt", f"release=3-{digest}", "--sign-key", key)
        public = tmp_path / "new.pub"
        public.write_bytes(new.public.pem())
        roots = ("--root-key", key, "--add", f"promoter={public}") if adopting == "change" else ()
        cairn("trust", adopting, *at, *roots, *named)
    pages = {kind: store.read(kind).data for kind in forged}
    assert not any(b"torch-6.6-py3" in page for page in pages.values())
    for page, data in forged.items():
        store.write(page, data)
    with anchor.acting(key=key):
        publish(4)
    assert not any(b"torch-6.6-py3" in store.read(page).data for page in forged)
    assert all(b"torch-4.0-py3" in store.read(page).data for page in forged)


def test_keys_come_and_go_by_a_draft_that_each_signs_where_it_is(cairn: Cairn, place: Path) -> None:
    first, second = key_file(place, RELEASER), key_file(place, TESTER)
    at = ("--store", place / "store")
    cairn("trust", "init", *at, "--root-key", first, "--root-key", second, "--threshold", 2)
    change = ("trust", "change", *at, "--remove", f"builder={RELEASER.key_id[:8]}")
    change += ("--add", f"builder={place / PUBLIC_NAME}", "--sign-key", first)
    assert "1 more of the keys" in cairn(*change, "--root-key", first, code=2).err
    draft = ("--draft", place / "root.json")
    assert cairn.json(*change, "--root-key", first, *draft)["missing"].startswith("1 more")
    honest = (place / "root.json").read_text()
    his = root.with_key(
        msgspec.convert(json.loads(honest)["signed"], metadata.Root), "tester", signer(66).public
    )
    forged = (
        (("trust", "change", *at), honest, 2, f"it is: --add builder={TESTER.key_id[:16]} --remove builder="),
        (change, metadata.sealed(his, signer(66)).decode(), 2, f"--add tester={signer(66).key_id[:16]}"),
        (change, re.sub('"expires":"2', '"expires":"1', honest), 0, "still needs 1 more of the keys"),
    )
    for words, text, code, says in forged:
        (place / "root.json").write_text(text)
        shown = cairn(*words, "--root-key", second, *draft, code=code)
        assert says in shown.out + shown.err
        assert not (place / "store/metadata/2.root.json").exists()
    (place / "root.json").write_text(honest)
    shown = cairn.json(*change, "--root-key", second, *draft)
    assert (shown["version"], shown["keys"]["builder"]) == (2, [TESTER.key_id])
    assert "counts until" in cairn("trust", "refresh", *at, "--sign-key", first).out
    assert json.loads((place / "store/metadata/timestamp.json").read_text())["signed"]["version"] == 2
    lacks = ("trust", "change", *at, "--root-key", first, "--remove", f"tester={RELEASER.key_id}")
    assert "would have 0 keys" in cairn(*lacks, code=2).err


def test_an_installation_is_of_what_was_signed_whatever_the_server_says(
    cairn: Cairn, made: Released, place: Path
) -> None:
    store, key = place / "store", key_file(place, RELEASER)
    root = cairn.json("trust", "init", "--store", store, "--root-key", key)["root"]
    words = (
        "install",
        "--dry-run",
        "--store",
        store,
        "--gpu",
        "cpu",
        "--python",
        sys.executable,
        "--root",
        root,
    )
    assert cairn.json(*words)["root"] == root
    address = (store / "release" / "simple").as_uri() + "/"
    machine = Machine(gpus=("cpu",), python="3.11", platform="linux_x86_64")
    prepared = install.prepare(address, machine)
    with install.pages(prepared, prepared.choice.picks[0]) as url:
        folder = Path(url2pathname(urlsplit(url).path))
        page = (folder / "torch" / "index.html").read_text()
    wheel = next(one for one in made.made.wheels if one.distribution == "torch")
    assert f"{store.as_uri()}/files/{wheel.sha256[:2]}/{wheel.sha256}/{wheel.file_name}" in page
    assert f"#sha256={wheel.sha256}" in page

    # The list that nobody signs is made anew of what was, and not even read.
    listed = store / "release" / "targets.json"
    offered = datafile.loads(listed.read_bytes(), TargetsFile, name="it")
    (offer,) = offered.entry("cpu").offers
    assert prepared.choice.picks[0].offer == offer
    plain = cairn.json(*words)
    listed.unlink()
    assert cairn.json(*words) == plain
    (store / "sets" / made.made.id / "set.json").write_text("{}")
    with pytest.raises(CairnError), install.pages(prepared, prepared.choice.picks[0]):
        pass


def test_a_store_gets_its_root_before_anything_else(cairn: Cairn, place: Path) -> None:
    at = ("--store", place / "new")
    root = cairn.json("trust", "init", *at, "--root-key", key_file(place, RELEASER))["root"]
    assert "counts until" in cairn("trust", "refresh", *at, "--sign-key", key_file(place, RELEASER)).out
    assert cairn.json("trust", "show", *at)["root"] == root
    assert (
        "not the promoter's"
        in cairn("trust", "refresh", *at, "--sign-key", key_file(place, TESTER), code=2).err
    )
