"""Keys are lost and replaced, as the how-to says: what was signed before counts on, everywhere."""

from __future__ import annotations

import contextlib
import itertools
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tuf.api.exceptions import DownloadHTTPError
from tuf.ngclient import Updater, UpdaterConfig
from tuf.ngclient.fetcher import FetcherInterface

from cairn.errors import UsageError
from cairn.pipeline import install
from cairn.release.history import yank
from cairn.release.index import keys
from cairn.release.index.generation import ProjectState
from cairn.release.index.snapshot import Change, Index
from cairn.release.ledger import Ledger
from cairn.release.pages.targets_file import Machine
from cairn.release.provenance import evidence
from cairn.release.provenance.attest import KeyAttester
from cairn.release.trust import anchor, root
from cairn.release.trust.signers import PRIVATE_NAME, PUBLIC_NAME, Signer
from cairn.store.folder import LocalStore
from cairn.store.memory import MemoryStore
from helpers.moments import dying
from helpers.program import Cairn
from helpers.provenance import Released, released, signer
from helpers.release import commit, in_folder
from helpers.trail import ROOT
from helpers.trust import (
    BUILDER,
    OFFLINE,
    PROMOTER,
    TESTER,
    TIMEKEEPER,
    acting_as,
    looked_at,
    rooted,
    somebody_new,
)

PAGE = (ROOT / "docs" / "how-to" / "replace-a-key.md").read_text("utf-8")
SHOW, RENEWED, LOST_BUILDER, STOLEN_BUILDER, TIMESTAMP, LOST_PROMOTER, SHARE = re.findall(
    r"```bash\n(.*?)```", PAGE, re.DOTALL
)
PEOPLE: dict[str, Signer] = {
    **dict(zip(("ann", "bob", "carol"), OFFLINE, strict=True)),
    "promoter": PROMOTER,
    "timestamp": TIMEKEEPER,
    "builder": BUILDER,
    "tester": TESTER,
}
WHEEL = "torch-2.9.0-py3-none-any.whl"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Released:
    made = released(tmp_path_factory.mktemp("released"), attester=KeyAttester(PROMOTER), tested_by=TESTER)
    statement = evidence.of_builder(made.store, made.made)
    evidence.sign_builder(made.store, made.made.id, statement, BUILDER)
    return made


class Place:
    """The folder that the page is typed in, with the machines that know its store."""

    def __init__(self, cairn: Cairn, made: Released, folder: Path) -> None:
        self.cairn, self.made, self.folder = cairn, made, folder
        in_folder(made.store, folder / "store")
        for name, key in PEOPLE.items():
            (folder / name).mkdir()
            (folder / name / PUBLIC_NAME).write_bytes(key.public.pem())
            (folder / name / PRIVATE_NAME).write_bytes(key.pem())
            (folder / name / PRIVATE_NAME).chmod(0o600)
        roles = [(f"--{role}", f"{role}/{PUBLIC_NAME}") for role in [*PEOPLE][3:]]
        offline = [("--root-key", f"{name}/{PRIVATE_NAME}") for name in [*PEOPLE][:3]]
        sign = ("--sign-key", f"promoter/{PRIVATE_NAME}", "--threshold", "2", "--store", "store")
        words = [word for pair in (*roles, *offline) for word in pair]
        with self.on("releaser"):
            self.root = cairn.json("trust", "init", *words, *sign)["root"]

    @contextlib.contextmanager
    def on(self, machine: str) -> Iterator[None]:
        """What this machine remembers counts until the block ends."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CAIRN_CACHE_DIR", str(self.folder / "machines" / machine))
            yield

    def type(self, *blocks: str) -> None:
        """Type what the page says, on the machine of whoever releases."""
        with self.on("releaser"):
            for line in "".join(blocks).splitlines():
                program, *words = shlex.split(line)
                assert program == "cairn"
                if "--adopt" in words:  # which the page has the reader look up
                    words = [*words[: words.index("--adopt")], *self.adopted(words[: words.index("--adopt")])]
                self.cairn(*words)

    def adopted(self, words: list[str]) -> list[str]:
        """What the command asks for that is given none of the names."""
        before = sorted((self.folder / "store").rglob("*"))
        says = self.cairn(*words, code=2).err
        assert "no promoter of today has signed" in says
        assert sorted((self.folder / "store").rglob("*")) == before
        return re.findall(r"--adopt|\w+=\d+-[0-9a-f]{32}", says.partition("what to do")[2])

    def verify(self, machine: str, code: int = 0) -> Any:
        words = ("index", "verify", self.made.wheels[-1], "--store", "store", "--root", self.root)
        with self.on(machine):
            (report,) = self.cairn.json(*words, code=code)
        return report

    def link(self, report: Any, name: str) -> Any:
        return next(one for one in report["links"] if one["name"] == name)


@pytest.fixture
def place(cairn: Cairn, made: Released, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CAIRN_SIGN_KEY", raising=False)
    return Place(cairn, made, tmp_path)


class _Files(FetcherInterface):
    """python-tuf's own client, over a folder."""

    def _fetch(self, url: str) -> Iterator[bytes]:
        path = Path("store", url)
        if not path.is_file():
            raise DownloadHTTPError(url, 404)
        yield path.read_bytes()


def of_python_tuf(place: Place, machine: str) -> Any:
    """The wheel's target, as the client in docs/reference/trust.md has it."""
    folder = place.folder / "tuf" / machine
    folder.mkdir(parents=True, exist_ok=True)
    updater = Updater(
        str(folder),
        "metadata/",
        fetcher=_Files(),
        config=UpdaterConfig(prefix_targets_with_hash=False),
        bootstrap=(place.folder / "store" / "metadata" / "1.root.json").read_bytes(),
    )
    return updater.get_targetinfo(f"release/{WHEEL}")


def test_every_key_of_the_page_is_replaced_and_wheels_signed_before_still_verify(place: Place) -> None:
    """Two keys lost and rotated, and two more; for machines of before and of after, and for python-tuf."""
    before = place.verify("old")
    assert (before["good"], before["warnings"]) == (True, [])
    target = of_python_tuf(place, "old")
    place.type(SHOW, RENEWED, LOST_BUILDER, LOST_BUILDER.replace("builder", "tester"))
    assert place.verify("old")["good"]
    place.type(TIMESTAMP)
    assert place.verify("old")["good"]
    place.type(LOST_PROMOTER)
    assert place.verify("old")["good"]
    place.type(SHARE)
    for machine in ("old", "new"):
        assert place.verify(machine) == before
        assert of_python_tuf(place, machine) == target
    with place.on("releaser"):
        shown = place.cairn.json("trust", "show", "--store", "store")
        audited = place.cairn("index", "check", "--store", "store", "--index", "release", "--hashes")
    assert shown["version"] == 7
    lost = {PEOPLE[name].key_id for name in ("builder", "tester", "timestamp", "promoter", "carol")}
    assert not lost & {one for ids in shown["keys"].values() for one in ids}
    assert "not trusted" not in audited.err
    with place.on("a third"), anchor.acting(root=place.root):
        address = f"{(place.folder / 'store' / 'release' / 'simple').as_uri()}/"
        prepared = install.prepare(address, Machine(gpus=("cpu",), python="3.11", platform="linux_x86_64"))
        assert prepared.signed is not None
        with install.pages(prepared, prepared.choice.picks[0]):
            pass


def test_the_last_signature_on_a_draft_is_typed_again_and_changes_nothing(place: Place) -> None:
    place.type(SHARE)
    with place.on("releaser"):
        before = place.cairn.json("trust", "show", "--store", "store")
    place.type(SHARE.strip().splitlines()[-1])
    with place.on("releaser"):
        assert place.cairn.json("trust", "show", "--store", "store") == before


def test_a_lost_key_signs_nothing_new_that_counts(place: Place) -> None:
    place.type(LOST_BUILDER, LOST_PROMOTER)
    store = LocalStore(place.folder / "store")
    old, again = f"promoter/{PRIVATE_NAME}", ("--store", "store", "--reason", "x")
    with place.on("releaser"):
        yank = ("release", "yank", place.made.made.id, *again, "--sign-key", old)
        assert "not the promoter's" in place.cairn(*yank, code=2).err
    # Whoever has both former keys and the bucket exchanges what they signed: another statement about the same
    # wheels does not count, since the promoter of today has signed for the first by its digest.
    key = keys.set_key(place.made.made.id, "builder.json")
    forged = store.read(key).data.replace(b'"builder":{"id":"', b'"builder":{"id":"https://ci.example/')
    assert forged != store.read(key).data
    evidence.sign_builder(store, place.made.made.id, forged, BUILDER)
    report = place.verify("old", code=9)
    assert "not trusted" in place.link(report, "builder")["text"]
    assert place.link(report, "provenance")["state"] == "good"


def test_what_a_stolen_key_built_is_banned_and_nobody_vouches_for_it_late(place: Place) -> None:
    place.type(STOLEN_BUILDER, LOST_BUILDER)
    report = place.verify("new", code=9)
    assert "it was yanked: the builder's key was stolen" in report["warnings"]
    assert "not trusted" in place.link(report, "builder")["text"]
    adopt = ("trust", "refresh", "--store", "store", "--sign-key", f"promoter/{PRIVATE_NAME}")
    with place.on("releaser"):
        late = place.cairn.json(*adopt, "--adopt", "release=any", "--builder-key", f"builder2/{PRIVATE_NAME}")
        assert late["signed_as_builder"] == []
        assert "from no index relaese" in place.cairn(*adopt, "--adopt", "relaese=1-a", code=2).err
    assert place.link(place.verify("new", code=9), "builder")["state"] == "broken"
    # A rebuild has shown that it is honest: the ban is lifted, and it counts as it did.
    lift = ("release", "yank", "--undo", "--who", "ann", "--reason", "rebuilt", place.made.made.id)
    with place.on("releaser"):
        place.cairn(*lift, "--store", "store", "--sign-key", f"promoter/{PRIVATE_NAME}")
    assert place.verify("new")["good"]


def test_what_a_former_promoter_decided_is_not_signed_anew_unless_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Released
) -> None:
    """A stolen key has lifted a yank; the generation is named, and the lift is not."""
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "writer"))
    store, new = MemoryStore(made.store.objects), signer(31)
    trusted = rooted(store)
    with acting_as(tmp_path, PROMOTER):
        root.sign_all(store, trusted, {})
        yank.yank(store, made.made.id, reason="it eats data")
        honest = tuple(Ledger(store).events())
        yank.lift(store, made.made.id, by="mallory", reason="it does not")
    changed = root.without_key(
        root.with_key(trusted.root, "promoter", new.public), "promoter", PROMOTER.key_id
    )
    named = looked_at(store, structs.replace(trusted, root=changed))
    before = dict(store.objects)
    for short in ({}, {"release": named["release"]}, {**named, "ledger": f"{len(honest)}-{'0' * 12}"}):
        with (
            acting_as(tmp_path, new),
            pytest.raises(UsageError, match=r"the lift of .* by mallory: it does not"),
        ):
            root.require_ready(store, trusted, changed, short)
    for wrong in ("", named["release"][:6], f"1-{'0' * 64}"):
        with acting_as(tmp_path, new), pytest.raises(UsageError, match=f"release {named['release'][:14]}"):
            root.require_ready(store, trusted, changed, {**named, "release": wrong})
    assert store.objects == before
    with acting_as(tmp_path, new):
        root.require_ready(store, trusted, changed, named)


def test_a_change_of_the_promoter_that_dies_is_finished_by_adopting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "writer"))
    store, new = MemoryStore(), signer(31)
    trusted = rooted(store)
    with acting_as(tmp_path, PROMOTER):
        root.sign_all(store, trusted, {})
        commit(
            Index(store, "release"),
            "publish",
            lambda _: Change(projects={"other": ProjectState(name="other", files=())}),
        )
    changed = root.without_key(
        root.with_key(trusted.root, "promoter", new.public), "promoter", PROMOTER.key_id
    )
    data = root.following(changed, OFFLINE[:2])

    named = looked_at(store, structs.replace(trusted, root=changed))
    assert named.keys() == {"release"}

    machines = itertools.count()

    def elsewhere(name: str) -> None:
        shutil.copytree(tmp_path / "writer", tmp_path / name)
        monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / name))

    def change(one: MemoryStore) -> None:
        elsewhere(f"writer{next(machines)}")
        with acting_as(tmp_path, new):
            root.sign_again(one, root.publish(one, data), trusted.root, named)

    for moment, dead in dying(store, change):
        elsewhere(f"next{moment}")
        with acting_as(tmp_path, new):
            root.sign_all(dead, root.publish(dead, data), named)
        client = somebody_new(dead, trusted, tmp_path / f"client{moment}", monkeypatch)
        assert client.target(f"release/{WHEEL}") is None  # it is read to the end, and there is none
