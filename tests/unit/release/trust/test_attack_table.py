"""The table of docs/reference/trust.md: who holds what, what he tries, and what two machines see then.

One machine has seen the store before and remembers it; the other is new and has the root's fingerprint. Both
verify the wheel that was released and then yanked, or the wheel that the attacker would like them to take; or
they install.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest
from msgspec import structs

from cairn import datafile
from cairn.build.cache import WheelCache
from cairn.build.cache.entry import Vouch, entry_key
from cairn.errors import CairnError
from cairn.pipeline import install
from cairn.pipeline.night import handover, plan, signed
from cairn.pipeline.night.freeze import freeze
from cairn.pipeline.night.needs import FreezeRequest
from cairn.release import records
from cairn.release.history.yank import lift, yank
from cairn.release.index import keys
from cairn.release.index.generation import (
    MIRRORED,
    PUBLISHED,
    FileEntry,
    Pointer,
    ProjectState,
    digest_of,
    encode,
)
from cairn.release.index.snapshot import Change, Index
from cairn.release.ledger import Ledger
from cairn.release.ledger_entries import Event
from cairn.release.pages.targets_file import Machine
from cairn.release.promote import Promotion, RefusedError, promote
from cairn.release.provenance import chain, dsse, evidence
from cairn.release.provenance.attest import KeyAttester
from cairn.release.publish import distribution, mirror_lock, stage
from cairn.release.publish.files import publish_dists
from cairn.release.publish.mirror_lock import LockedFile, MirrorLock
from cairn.release.trust import anchor, metadata, root
from cairn.release.trust.client import SignedStore
from cairn.release.trust.metadata import TIMESTAMP, key_of, sealed
from cairn.release.trust.online import Promoter
from cairn.release.trust.signers import Signer, Trust
from cairn.stack import Sdk, Stack
from cairn.store.memory import MemoryStore
from cairn.wheels.wheelset import BUILDER_FILE, WheelSet
from helpers.gate import AWAY, data_of, record_of, stack_of
from helpers.night import FROZEN, leg_of, plan_of
from helpers.provenance import Released, released, signer
from helpers.release import commit, in_folder, make_set, make_wheel, manifest_of, statement_of
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
    stamp,
    trust_of_roles,
)

SIGNED, OLD, HIS = "what was signed", "the state before the yank", "the attacker's wheel"
MALLORY = signer(66)


@dataclass(kw_only=True)
class Scene:
    """A store whose set was released and then yanked, as an attacker finds it.

    Attributes:
        before: the objects that he copied before the yank.
        victim: the set that a user verifies the torch wheel of; an attack may put its own in place.
    """

    folder: Path
    store: MemoryStore
    before: dict[str, bytes]
    made: Released
    root: str
    victim: WheelSet

    def put_back(self, part: str = "") -> None:
        """Write what the keys with this in them had before the yank."""
        for key, data in self.before.items():
            if part in key:
                self.store.write(key, data)

    def change(self, key: str, old: bytes, new: bytes) -> None:
        data = self.store.read(key).data
        assert old in data
        self.store.write(key, data.replace(old, new))

    def released_by_him(self) -> Released:
        """Release wheels of his own, with a promoter's key and whatever else he has."""
        wheels = self.folder / "evil"
        wheels.mkdir()
        with acting_as(self.folder, PROMOTER):
            made = released(
                wheels, version="2.9.6", store=self.store, attester=KeyAttester(PROMOTER), tested_by=TESTER
            )
        self.victim = made.made
        return made

    def sees(self, machine: str) -> str:
        """What a machine says of the wheel."""
        wheel = next(one for one in self.victim.wheels if one.distribution == "torch")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CAIRN_CACHE_DIR", str(self.folder / machine))
            try:
                with anchor.acting(root=self.root):
                    trusted = anchor.anchor(self.store)
                assert trusted is not None
                report = chain.check(
                    SignedStore(self.store, trusted),
                    "release",
                    file_name=wheel.file_name,
                    sha256=wheel.sha256,
                    trust=trusted.root.trust(),
                )
            except CairnError as error:
                return f"error: {error}"
        if report.broken:
            return f"error: {report.broken[0].name}: {report.broken[0].text}"
        if self.victim.id != self.made.made.id:
            return HIS
        return SIGNED if report.warnings == ["it was yanked: it eats data"] else OLD


@dataclass(kw_only=True)
class Shelf(Scene):
    """A store from which two machines install: `victim` is the newest set of `release` that is not yanked.

    Attributes:
        others: sets that the same promoter has signed, by what is wrong with them for who wants `release`.
    """

    others: dict[str, WheelSet]

    def sees(self, machine: str) -> str:
        """What a machine installs for the CPU."""
        place = in_folder(self.store, self.folder / f"served to {machine}")
        for_cpu = Machine(gpus=("cpu",), python="3.11", platform="linux_x86_64")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CAIRN_CACHE_DIR", str(self.folder / machine))
            try:
                with anchor.acting(root=self.root):
                    made = install.prepare(keys.index_url(place.url, "release"), for_cpu)
                    (pick,) = made.choice.picks
                    with install.pages(made, pick) as url:
                        page = Path(url2pathname(urlsplit(url).path), "torch", "index.html").read_text()
            except CairnError as error:
                return f"error: {error}"
        of_set = next(one for one in self.victim.wheels if one.distribution == "torch")
        as_signed = (pick.untested, pick.offer.versions["torch"]) == (None, of_set.version)
        return SIGNED if as_signed and f"#sha256={of_set.sha256}" in page else HIS

    def offer(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Change what targets.json offers first for the CPU."""
        plain = json.loads(self.store.read("release/targets.json").data)
        (offers,) = (entry["offers"] for entry in plain["targets"] if entry["target"] == "cpu")
        change(offers[0])
        self.store.write("release/targets.json", json.dumps(plain).encode())


@pytest.fixture(scope="module")
def shelved(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    folder, store = tmp_path_factory.mktemp("shelf"), MemoryStore()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAIRN_CACHE_DIR", str(folder / "writer"))
        patch.delenv("CAIRN_SIGN_KEY", raising=False)
        trusted = rooted(store)
        made = {}
        with acting_as(folder, PROMOTER):
            for version, target in (("2.9.0", "release"), ("2.9.1", "release"), ("2.9.2", "release"),
                                    ("2.9.3", "nightly")):  # fmt: skip
                wheels = tmp_path_factory.mktemp("wheels")
                one = released(
                    wheels,
                    version=version,
                    store=store,
                    attester=KeyAttester(PROMOTER),
                    tested_by=TESTER,
                    target=target,
                )
                statement = evidence.of_builder(store, one.made)
                evidence.sign_builder(store, one.made.id, statement, BUILDER)
                made[version] = one
            before = dict(store.objects)
            yank(store, made["2.9.2"].made.id, reason="it eats data")
    others = {"older": made["2.9.0"], "yanked": made["2.9.2"], "of another channel": made["2.9.3"]}
    shelf = Shelf(
        folder=folder,
        store=store,
        before=before,
        made=made["2.9.1"],
        root=trusted.fingerprint,
        victim=made["2.9.1"].made,
        others={name: one.made for name, one in others.items()},
    )
    assert shelf.sees("old") == SIGNED
    return shelf


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    folder = tmp_path_factory.mktemp("scene")
    made = released(tmp_path_factory.mktemp("wheels"), attester=KeyAttester(PROMOTER), tested_by=TESTER)
    store = made.store
    evidence.sign_builder(store, made.made.id, evidence.of_builder(store, made.made), BUILDER)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAIRN_CACHE_DIR", str(folder / "writer"))
        patch.delenv("CAIRN_SIGN_KEY", raising=False)
        trusted = rooted(store)
        with acting_as(folder, PROMOTER):
            root.sign_all(store, trusted, {})
            before = dict(store.objects)
            yank(store, made.made.id, reason="it eats data")
    scene = Scene(
        folder=folder, store=store, before=before, made=made, root=trusted.fingerprint, victim=made.made
    )
    assert scene.sees("old") == SIGNED
    return scene


@pytest.fixture
def scene(
    first: Scene, shelved: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one: Attack
) -> Scene:
    first = shelved if one.installs else first
    shutil.copytree(first.folder, tmp_path, dirs_exist_ok=True)
    shutil.copytree(tmp_path / "writer", tmp_path / "attacker")  # who has seen what a promoter has
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "attacker"))
    monkeypatch.delenv("CAIRN_SIGN_KEY", raising=False)
    return dataclasses.replace(first, folder=tmp_path, store=MemoryStore(first.store.objects))


@dataclass(frozen=True, kw_only=True)
class Attack:
    """A line of the table."""

    holder: str
    tries: str
    old: str
    new: str
    does: Callable[[Any], None]
    installs: bool


ATTACKS: list[Attack] = []


def attack(
    holder: str, tries: str, *, old: str, new: str | None = None, installs: bool = False
) -> Callable[[Callable[[Any], None]], None]:
    """Note a line; `new` is as `old` where it is not given."""

    def note(does: Callable[[Any], None]) -> None:
        ATTACKS.append(
            Attack(holder=holder, tries=tries, old=old, new=new or old, does=does, installs=installs)
        )

    return note


BUCKET = "write access to the bucket"


@attack(BUCKET, "takes the timestamp away", old="error: metadata/timestamp.json")
def _(scene: Scene) -> None:
    scene.store.delete(TIMESTAMP)


@attack(BUCKET, "takes all of metadata/ away", old="error: ", new="error: is not signed any more")
def _(scene: Scene) -> None:
    for key in [key for key in scene.store.objects if key.startswith("metadata/")]:
        scene.store.delete(key)


@attack(BUCKET, "puts another root in place", old=SIGNED, new="error: has the root")
def _(scene: Scene) -> None:
    scene.store.write(key_of("root", 1), root.first([MALLORY], {}, 1))


@attack(BUCKET, "puts a next root of his own there", old="error: is signed by 0")
def _(scene: Scene) -> None:
    scene.store.write(key_of("root", 2), root.following(_root(scene), [MALLORY]))


@attack(BUCKET, "puts the whole store back, within a week", old="error: set back", new=OLD)
def _(scene: Scene) -> None:
    scene.put_back()


@attack(BUCKET, "puts the whole store back, a week old or older", old="error: set back", new="error: expired")
def _(scene: Scene) -> None:
    # A copy of which the timestamp has expired by now; the honest one was signed so.
    stamp(scene.store, [TIMEKEEPER], snapshot=1, expires="2026-01-01T00:00:00Z")
    late = scene.store.read(TIMESTAMP).data
    scene.put_back()
    old = metadata.opened(late, metadata.Timestamp, {}, name="it", threshold=0)
    scene.store.write(TIMESTAMP, sealed(structs.replace(old, version=1), TIMEKEEPER))


@attack(BUCKET, "puts pages and generations back, not the metadata", old=SIGNED)
def _(scene: Scene) -> None:
    scene.put_back("release/")


@attack(BUCKET, "puts the ledger back, or adds a lift to it", old=SIGNED)
def _(scene: Scene) -> None:
    scene.put_back("ledger/")


@attack(BUCKET, "mixes an old list of files into the new state", old=SIGNED, new="error: ")
def _(scene: Scene) -> None:
    _copy_over(scene, ".release.bin-")


@attack(BUCKET, "mixes an old snapshot into the new state", old=SIGNED, new="error: ")
def _(scene: Scene) -> None:
    _copy_over(scene, ".snapshot.json")


@attack(BUCKET, "mixes an old state of the index into the new one", old=SIGNED, new="error: ")
def _(scene: Scene) -> None:
    _copy_over(scene, ".release.json")


@attack(BUCKET, "gives another role's metadata for that of the index", old=SIGNED, new="error: ")
def _(scene: Scene) -> None:
    meta = _snapshot(scene).meta
    ledger = scene.store.read(key_of("ledger", meta["ledger.json"].version)).data
    scene.store.write(key_of("release", meta["release.json"].version), ledger)


@attack(BUCKET, "raises the version of the timestamp, unsigned", old="error: ")
def _(scene: Scene) -> None:
    old = _timestamp(scene)
    scene.store.write(TIMESTAMP, sealed(structs.replace(old, version=10**9), MALLORY))


@attack(BUCKET, "makes the timestamp endless", old="error: cannot be read")
def _(scene: Scene) -> None:
    scene.store.write(TIMESTAMP, b'{"signatures":[' + b" " * 10**6)


@attack(BUCKET, "makes a list of files larger than any", old=SIGNED, new="error: exceeding")
def _(scene: Scene) -> None:
    for key in [key for key in scene.store.objects if ".release.bin-" in key]:
        scene.store.write(key, scene.store.read(key).data + b" " * 10**7)


@attack(BUCKET, "has state.json name a generation of his own", old=SIGNED)
def _(scene: Scene) -> None:
    current = Index(scene.store, "release").load()
    forged = structs.replace(current.generation, number=9, parent=current.digest, who="mallory")
    digest = digest_of(encode(forged))
    scene.store.write(keys.generation_key("release", 9, digest), encode(forged))
    pointer = Pointer(generation=9, digest=digest, rendered=9, rendered_digest=digest)
    scene.store.write("release/state.json", encode(pointer))


@attack(BUCKET, "has state.json be that of another index", old=SIGNED)
def _(scene: Scene) -> None:
    scene.store.write("release/state.json", scene.store.read("staging/state.json").data)


@attack(BUCKET, "changes a page of simple/", old=SIGNED)
def _(scene: Scene) -> None:
    wheel = next(one for one in scene.victim.wheels if one.distribution == "torch")
    scene.change(keys.simple_prefix("release") + "torch/index.html", wheel.sha256.encode(), b"0" * 64)


@attack(BUCKET, "offers a wheel of his own on all pages and in a generation", old="error: does not offer")
def _(scene: Scene) -> None:
    _with_wheels_of(scene, MALLORY)


@attack(BUCKET, "changes the bytes of a .provenance", old="error: was changed")
def _(scene: Scene) -> None:
    scene.change(scene.made.provenance_key(), b'"payload"', b'"payload" ')


@attack(BUCKET, "signs the builder's statement himself", old="error: is not trusted")
def _(scene: Scene) -> None:
    statement = evidence.of_builder(scene.store, scene.victim)
    evidence.sign_builder(scene.store, scene.victim.id, statement, MALLORY)


@attack(BUCKET, "takes the builder's signature away", old="error: is not signed")
def _(scene: Scene) -> None:
    scene.store.delete(keys.set_key(scene.victim.id, evidence.BUILDER_SIGNATURE))


@attack(BUCKET, "takes away the builder's signature of the set as it was sealed", old="error: is not signed")
def _(scene: Scene) -> None:
    scene.store.delete(keys.set_key(scene.victim.id, evidence.SET_SIGNATURE))


@attack(BUCKET, "changes set.json, or the manifest", old="error: was changed")
def _(scene: Scene) -> None:
    scene.change(keys.set_key(scene.victim.id, "set.json"), b'"sample"', b'"simple"')


@attack(BUCKET, "takes a test record away", old="error: holds no")
def _(scene: Scene) -> None:
    scene.store.delete(keys.set_key(scene.victim.id, f"records/{scene.made.listed.records[0]}.json"))


@attack(BUCKET, "exchanges a test record for one of another set", old="error: was changed")
def _(scene: Scene) -> None:
    key = keys.set_key(scene.victim.id, f"records/{scene.made.listed.records[0]}.json")
    scene.store.write(key, data_of(structs.replace(record_of(scene.victim), set_id="0" * 64)))


@attack(BUCKET, "gives the builder's signature of something else", old="error: is not what its signature is")
def _(scene: Scene) -> None:
    statement = evidence.of_builder(scene.store, scene.victim).replace(b"sample", b"simple")
    envelope = dsse.sign(statement, dsse.IN_TOTO, BUILDER)
    key = keys.set_key(scene.victim.id, evidence.BUILDER_SIGNATURE)
    scene.store.write(key, datafile.dumps(envelope).encode())


@attack(BUCKET, "gives the builder's statement and signature of another set", old="error: builder: ")
def _(scene: Scene) -> None:
    other = _elsewhere(scene)
    for name in (BUILDER_FILE, evidence.BUILDER_SIGNATURE):
        data = other.store.read(keys.set_key(other.made.id, name)).data
        scene.store.write(keys.set_key(scene.victim.id, name), data)


@attack(BUCKET, "gives the metadata of another store that has the same keys", old="error: another store")
def _(scene: Scene) -> None:
    other = _elsewhere(scene)
    for key, data in other.store.objects.items():
        if key not in (key_of("root", 1), "metadata/root.json"):
            scene.store.write(key, data)
    scene.victim = other.made


@attack(
    BUCKET,
    "mixes lists of another store that has the same keys into the state",
    old=SIGNED,
    new="error: another store",
)
def _(scene: Scene) -> None:
    other = _elsewhere(scene).store
    for key in [key for key in other.objects if ".release." in key and key in scene.store.objects]:
        scene.store.write(key, other.objects[key])


@attack(BUCKET, "gives the ledger of another store", old=SIGNED)
def _(scene: Scene) -> None:
    for key, data in _elsewhere(scene).store.objects.items():
        if key.startswith("ledger/"):
            scene.store.write(key, data)
    with pytest.raises(CairnError, match="cut back or changed"):
        _released_again(scene, "writer")


@attack(BUCKET, "offers his wheel under the name in other case, or in letters that look alike", old="error: ")
def _(scene: Scene) -> None:
    for name in ("torch", "Torch", "t\N{CYRILLIC SMALL LETTER O}rch"):
        wheels = [
            structs.replace(one, file_name=one.file_name.replace("torch", name))
            for one in scene.made.made.wheels
        ]
        scene.victim = structs.replace(scene.made.made, wheels=tuple(wheels))
        assert scene.sees("new").startswith("error: ") == (name != "torch")


@attack(BUCKET, "gives the timestamp two bodies, his own behind what was signed", old="error: ")
def _(scene: Scene) -> None:
    data = scene.store.read(TIMESTAMP).data
    his = metadata.canonical(structs.replace(_timestamp(scene), version=10**9))
    scene.store.write(TIMESTAMP, data[:-1] + b',"signed":' + his + b"}")


@attack(
    BUCKET,
    "puts it back; a promoter's machine that saw it later signs nothing",
    old="error: set back",
    new=OLD,
)
def _(scene: Scene) -> None:
    scene.put_back()
    with pytest.raises(CairnError, match="set back"):
        _released_again(scene, "writer")


@attack(
    BUCKET,
    "puts it back; a promoter's machine that never saw the store signs nothing",
    old="error: set back",
    new=OLD,
)
def _(scene: Scene) -> None:
    scene.put_back()
    for act in (_released_again, _refreshed):
        with pytest.raises(CairnError, match="has not seen"):
            act(scene, "fresh")


@attack(
    BUCKET,
    "puts it back; one that asks where all of them remember signs nothing",
    old="error: set back",
    new=OLD,
)
def _(scene: Scene) -> None:
    remembered = scene.folder / "memory"  # a bucket that he cannot write to
    shutil.copytree(scene.folder / "writer" / "trust", remembered)
    scene.put_back()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(anchor.MEMORY, str(remembered))
        for act in (_released_again, _refreshed):
            with pytest.raises(CairnError, match="set back"):
                act(scene, "fresh")


@attack(BUCKET, "puts a file into staging that the next set takes as if it were ROCm's", old=SIGNED)
def _(scene: Scene) -> None:
    with Next(scene, "rocm-sdk-core", planted=True, locked=False) as new:
        new.is_refused("is not of the ROCm SDK that the builder says it used")


@attack(
    BUCKET, "puts a dependency into staging that the next set takes, and the stack has a lock", old=SIGNED
)
def _(scene: Scene) -> None:
    with Next(scene, "numpy", planted=True) as new:
        new.is_refused("is not in the lock of the mirror")


@attack(
    BUCKET, "puts a dependency into staging that the next set takes, and the stack has no lock", old=SIGNED
)
def _(scene: Scene) -> None:
    with Next(scene, "numpy", planted=True, locked=False) as new:
        new.is_refused("is not in a lock, and the stack has none: cairn index mirror lock")


@attack(BUCKET, "puts a dependency into staging that a set takes which is published by hand", old=SIGNED)
def _(scene: Scene) -> None:
    for project, locked in (("numpy", True), ("rocm-sdk-core", False)):
        with (
            Next(scene, project, planted=True, locked=locked) as new,
            pytest.raises(CairnError, match="what nobody vouches for") as refused,
        ):
            new.staged(None)
        assert new.needed.name in str(refused.value)


@attack(
    BUCKET, "puts his ROCm SDK where it is installed from, and the lock of the stack has an SDK", old=SIGNED
)
def _(scene: Scene) -> None:
    with Next(scene, "rocm-sdk-core", planted=True) as new:
        sha256 = hashlib.sha256(new.needed.read_bytes()).hexdigest()
        new.built_with = {new.needed.name: sha256}  # as its builder, who knows no better, says
        new.is_refused("which it was built with, is not in the lock's [sdk]")


@attack(
    BUCKET, "puts his ROCm SDK where it is installed from, and the lock of the stack has none", old=SIGNED
)
def _(scene: Scene) -> None:
    with Next(scene, "rocm-sdk-core", planted=True, locked=False) as new:
        new.stack = structs.replace(new.stack, sdk=Sdk())  # it comes from an index
        sha256 = hashlib.sha256(new.needed.read_bytes()).hexdigest()
        new.built_with = {new.needed.name: sha256}
        new.is_refused("which it was built with, is not in the lock's [sdk]: cairn index mirror lock")
        legs = (leg_of("gfx94X-dcgpu"),)
        request = FreezeRequest(
            night="7", stack=new.stack, legs=legs, work_dir=scene.folder / "work", release="release", like=""
        )
        with pytest.raises(CairnError, match=r"the ROCm SDK of builds is reviewed, and .* has no \[sdk\]"):
            freeze(scene.store, request)


@attack(BUCKET, "puts his wheel into the cache that a night's builds take wheels from", old=SIGNED)
def _(scene: Scene) -> None:
    honest, his = (make_wheel(scene.folder / name, "torch", "2.9.8", content=name) for name in ("we", "he"))
    root = trust_of_roles()
    key, other = "1" * 64, "2" * 64

    def machine(name: str, vouch: Vouch | None) -> WheelCache:
        # As `build.job.resolve` has it: what some builders alone have signed has a folder of its own.
        folder = scene.folder / name / (f"wheels-{vouch.name}" if vouch else "wheels")
        return WheelCache(folder, shared=scene.store, vouch=vouch)

    ours = signed.vouch(root, BUILDER)
    machine("our other build", ours).put(other, honest, seconds=1)
    elsewhere = json.loads(scene.store.read(entry_key(other)).data)
    machine("he", signed.vouch(Trust(builders={MALLORY.key_id: MALLORY.public}), MALLORY)).put(
        key, his, seconds=1
    )
    by_him = json.loads(scene.store.read(entry_key(key)).data)
    unsigned = {name: value for name, value in by_him.items() if name != "signed"}
    for number, one in enumerate((by_him, unsigned, {**by_him, "signed": elsewhere["signed"]})):
        scene.store.write(entry_key(key), json.dumps(one).encode())
        taken = machine(f"{number}", None).get(key)
        assert taken is not None  # where there is no root
        assert taken.wheel.read_bytes() == his.read_bytes()
        builder = machine(f"{number}", ours)  # the same machine, later
        assert builder.get(key) is None
        assert builder.put(key, honest, seconds=1).wheel.read_bytes() == honest.read_bytes()
        taken = machine(f"{number} next", ours).get(key)
        assert taken is not None
        assert taken.wheel.read_bytes() == honest.read_bytes()
        put_back = {**json.loads(scene.store.read(entry_key(key)).data), "sha256": by_him["sha256"]}
        scene.store.write(entry_key(key), json.dumps(put_back).encode())
        assert machine(f"{number} last", ours).get(key) is None


@attack(BUCKET, "puts what he has compiled into the bucket, for a night's sccache to take", old=SIGNED)
def _(scene: Scene) -> None:
    store = MemoryStore(scene.store.objects, url="s3://wheels/pytorch")
    night = plan_of(leg_of("gfx94X-dcgpu"))
    plan.create(store, night, FROZEN)
    run = plan.NightRun(store=store, plan=night, stack=stack_of(scene.victim))
    conf = scene.folder / "sccache.toml"
    conf.write_text('[cache.s3]\nbucket = "wheels"\n')
    for name, value in (("SCCACHE_BUCKET", "wheels"), ("SCCACHE_CONF", str(conf))):
        with pytest.MonkeyPatch.context() as patch, anchor.acting(root=scene.root):
            handover.fetch(run, scene.folder / "night")
            patch.setenv(name, value)
            with pytest.raises(CairnError, match="sccache would keep what is compiled in wheels, where the"):
                handover.fetch(run, scene.folder / "night")


@attack(BUCKET, "changes what a night has frozen, to have it build his commits", old=SIGNED)
def _(scene: Scene) -> None:
    night = plan_of(leg_of("gfx94X-dcgpu"))
    plan.create(scene.store, night, FROZEN)
    his = structs.replace(FROZEN, line="his")
    forged = structs.replace(night, manifest_sha256=his.digest())
    scene.store.write("nights/7/manifest.json", his.canonical())
    assert (
        plan.find(scene.store, night.sealed_id) == night
    )  # a manifest that the plan does not name is refused
    with pytest.raises(CairnError, match=r"manifest\.json was changed"):
        plan.manifest_of(scene.store, night)
    scene.store.write("nights/7/night.json", datafile.dumps(forged).encode())
    with pytest.raises(CairnError, match=r"night\.json was changed since it was frozen"):
        plan.read(scene.store, night.sealed_id)


@attack(BUCKET, "freezes a night of his commits before the honest one, under its name", old=SIGNED)
def _(scene: Scene) -> None:
    legs = (leg_of("gfx94X-dcgpu"),)
    honest = structs.replace(plan_of(*legs), night="6")
    plan.create(scene.store, honest, FROZEN)
    his = structs.replace(FROZEN, toolchain={"image": "his"})
    of_his = structs.replace(plan_of(*legs), manifest_sha256=his.digest())
    plan.create(scene.store, of_his, his)
    stack = stack_of(make_set([make_wheel(scene.folder / "night", "torch", "2.9.0")]))
    # By its id alone, a night counts that is the very one to freeze, and no other.
    asked = FreezeRequest(
        night="7",
        stack=stack,
        legs=legs,
        work_dir=scene.folder / "work",
        release="release",
        like=honest.sealed_id,
    )
    with anchor.acting(root=scene.root):
        for one in (asked, dataclasses.replace(asked, night="8", like="7")):
            with pytest.raises(CairnError, match="does not say whose night it is"):
                freeze(scene.store, one)
        by_name = dataclasses.replace(asked, night=plan_of(*legs).sealed_id)
        with pytest.raises(CairnError, match="was changed since it was frozen"):
            freeze(scene.store, by_name)


def offering(tries: str) -> Callable[[Callable[[Shelf, dict[str, Any]], None]], None]:
    """Note a line about a change of what targets.json offers first for the CPU."""

    def note(does: Callable[[Shelf, dict[str, Any]], None]) -> None:
        def change(shelf: Shelf) -> None:
            shelf.offer(lambda offer: does(shelf, offer))

        attack(BUCKET, f"has targets.json {tries}", old=SIGNED, installs=True)(change)

    return note


@offering("name no set, so that nothing is looked up")
def _(_: Shelf, offer: dict[str, Any]) -> None:
    offer["set_id"] = ""


@offering("lead to staging")
def _(_: Shelf, offer: dict[str, Any]) -> None:
    offer["index_url"] = "../staging/simple/"


@offering("lead to another store")
def _(_: Shelf, offer: dict[str, Any]) -> None:
    offer["index_url"] = "../other/release/simple/"


@offering("lead to another channel, of which the same promoter has signed the set")
def _(shelf: Shelf, offer: dict[str, Any]) -> None:
    _lead_to(offer, shelf.others["of another channel"])
    offer["index_url"] = "../nightly/simple/"


@offering("offer an older set of the index")
def _(shelf: Shelf, offer: dict[str, Any]) -> None:
    _lead_to(offer, shelf.others["older"])


@offering("offer a set that was yanked")
def _(shelf: Shelf, offer: dict[str, Any]) -> None:
    _lead_to(offer, shelf.others["yanked"])


@offering("name another version of the set")
def _(_: Shelf, offer: dict[str, Any]) -> None:
    offer["versions"]["torch"] = "9.0"


@offering("say that it is untested, and what to type then")
def _(_: Shelf, offer: dict[str, Any]) -> None:
    offer["untested"] = "broken: run https://evil.example/repair.sh first"


@attack(BUCKET, "takes targets.json away", old=SIGNED, installs=True)
def _(shelf: Shelf) -> None:
    shelf.store.delete("release/targets.json")


@attack(BUCKET, "gives the set other wheels", old="error: ", installs=True)
def _(shelf: Shelf) -> None:
    other = shelf.store.read(keys.set_key(shelf.others["older"].id, "set.json")).data
    shelf.store.write(keys.set_key(shelf.victim.id, "set.json"), other)


TIME = "and the timestamp's key"


@attack(TIME, "has the timestamp lead to the old state", old="error: set back", new=OLD)
def _(scene: Scene) -> None:
    stamp(scene.store, [TIMEKEEPER], snapshot=1)


@attack(
    TIME, "signs what he has put back; a promoter's machine signs nothing", old="error: set back", new=OLD
)
def _(scene: Scene) -> None:
    version = _timestamp(scene).version
    scene.put_back()
    for _ in range(version + 1):
        stamp(scene.store, [TIMEKEEPER], snapshot=1)
    with pytest.raises(CairnError, match="set back"):
        _released_again(scene, "writer")


@attack(TIME, "signs a snapshot or a state", old="error: ")
def _(scene: Scene) -> None:
    shot = _snapshot(scene)
    scene.store.write(key_of("snapshot", shot.version + 1), sealed(_after(shot), TIMEKEEPER))
    stamp(scene.store, [TIMEKEEPER], snapshot=shot.version + 1)


@attack(TIME, "raises its version to where none can follow; the next release goes on from there", old=SIGNED)
def _(scene: Scene) -> None:
    new = structs.replace(_timestamp(scene), version=2**40)
    scene.store.write(TIMESTAMP, sealed(new, TIMEKEEPER))
    assert scene.sees("old") == SIGNED
    _refreshed(scene, "writer")


MAKER = "and one builder's key"


@attack(MAKER, "signs for wheels of his own, which no promoter promotes", old="error: does not offer")
def _(scene: Scene) -> None:
    _with_wheels_of(scene, BUILDER)


@attack(MAKER, "signs a state of the index", old="error: ")
def _(scene: Scene) -> None:
    _sign_state(scene, BUILDER)


@attack(MAKER, "delegates every path to himself", old="error: ")
def _(scene: Scene) -> None:
    shot = _snapshot(scene)
    version = shot.meta["targets.json"].version
    top = metadata.opened(
        scene.store.read(key_of("targets", version)).data, metadata.Targets, {}, name="it", threshold=0
    )
    assert top.delegations is not None
    role = metadata.Delegated(keyids=(BUILDER.key_id,), name="release", paths=("*",))
    public = metadata.Key(keytype="ed25519", scheme="ed25519", keyval={"public": BUILDER.public.raw})
    wider = metadata.Delegations(keys={BUILDER.key_id: public}, roles=(role,))
    new = structs.replace(top, version=version + 1, delegations=wider)
    scene.store.write(key_of("targets", version + 1), sealed(new, BUILDER))
    meta = {**shot.meta, "targets.json": metadata.Version(version=version + 1)}
    scene.store.write(
        key_of("snapshot", shot.version + 1),
        sealed(structs.replace(_after(shot), meta=meta), BUILDER),
    )
    stamp(scene.store, [BUILDER], snapshot=shot.version + 1)


JUDGE = "and the tester's key"


@attack(JUDGE, "adds a record that all passed, or answers for a failure", old=SIGNED)
def _(scene: Scene) -> None:
    records.add(scene.store, data_of(record_of(scene.victim)), signer=TESTER)


@attack(JUDGE, "signs a state of the index", old="error: ")
def _(scene: Scene) -> None:
    _sign_state(scene, TESTER)


@attack(JUDGE, "signs the builder's statement", old="error: is not trusted")
def _(scene: Scene) -> None:
    evidence.sign_builder(
        scene.store, scene.victim.id, evidence.of_builder(scene.store, scene.victim), TESTER
    )


@attack(JUDGE, "lifts the yank, and answers, in the ledger", old=SIGNED)
def _(scene: Scene) -> None:
    when = "2026-11-30T00:00:00Z"
    lifted = Event(kind="lift", set_id=scene.victim.id, who="the promoter", when=when, why="fine")
    answered = structs.replace(lifted, kind="answer", record=scene.made.listed.records[0])
    Ledger(scene.store).add(events=[lifted, answered])
    assert Ledger(scene.store).ban_of_set(scene.victim) is not None


CHIEF = "and the promoter's key"


@attack(CHIEF, "releases wheels that no builder signed", old="error: is not signed")
def _(scene: Scene) -> None:
    made = scene.released_by_him()
    scene.store.delete(keys.set_key(made.made.id, evidence.BUILDER_SIGNATURE))


@attack(CHIEF, "signs for the builder as well", old="error: is not trusted")
def _(scene: Scene) -> None:
    made = scene.released_by_him()
    evidence.sign_builder(scene.store, made.made.id, evidence.of_builder(scene.store, made.made), PROMOTER)


@attack(CHIEF, "lifts a yank, or yanks", old=OLD)
def _(scene: Scene) -> None:
    with acting_as(scene.folder, PROMOTER):
        lift(scene.store, scene.victim.id, by="mallory", reason="it does not")


@attack(CHIEF, "names himself in a next root", old="error: is signed by 0")
def _(scene: Scene) -> None:
    new = root.with_key(_root(scene), "builder", PROMOTER.public)
    scene.store.write(key_of("root", 2), root.following(new, [PROMOTER]))


ALL = "and every key but the root's"


@attack(ALL, "releases what he likes", old=HIS)
def _(scene: Scene) -> None:
    made = scene.released_by_him()
    evidence.sign_builder(scene.store, made.made.id, evidence.of_builder(scene.store, made.made), BUILDER)


@attack(
    ALL, "releases it, and the root replaces promoter and builder, who bans it", old="error: is not trusted"
)
def _(scene: Scene) -> None:
    made = scene.released_by_him()
    evidence.sign_builder(scene.store, made.made.id, evidence.of_builder(scene.store, made.made), BUILDER)
    _replaced(scene, _looked_at(scene))
    with acting_as(scene.folder, MALLORY):
        yank(scene.store, made.made.id, reason="stolen")


@attack(ALL, "releases it, and a new promoter who has not looked signs nothing", old=HIS)
def _(scene: Scene) -> None:
    honest = _looked_at(scene)
    made = scene.released_by_him()
    evidence.sign_builder(scene.store, made.made.id, evidence.of_builder(scene.store, made.made), BUILDER)
    with pytest.raises(CairnError, match="no promoter of today has signed"):
        _replaced(scene, honest)


@attack(ALL, "goes on after that with the old keys", old="error: ")
def _(scene: Scene) -> None:
    _replaced(scene, _looked_at(scene))
    _sign_state(scene, PROMOTER)


@attack("and too few of the root's keys", "signs a next root", old="error: is signed by 1")
def _(scene: Scene) -> None:
    new = root.with_key(_root(scene), "promoter", MALLORY.public)
    scene.store.write(key_of("root", 2), root.following(new, OFFLINE[:1]))


class Next(contextlib.AbstractContextManager["Next"]):
    """A set that honest people build, test and promote next, which needs one file of others.

    It is in their lock, or of the SDK that its builder says it used.

    Attributes:
        needed: the file of that project that staging gives it: theirs, or what somebody has planted there.
        stack: of the set; its lock has what a reviewer saw, where it has one.
    """

    def __init__(self, scene: Scene, project: str, *, planted: bool = False, locked: bool = True) -> None:
        self._scene, self._stack, folder = scene, contextlib.ExitStack(), scene.folder / "next"
        theirs = make_wheel(folder, project, "1.0")
        self.needed = make_wheel(folder, project, "1.1") if planted else theirs
        self.wheel = make_wheel(folder, "torch", "2.9.8", requires=[project])
        self.open = make_set([self.wheel], **AWAY)
        made = Sdk(build=("make",))  # by its builder, whose word counts where nothing is locked
        self.stack = structs.replace(stack_of(self.open), folder=str(folder), sdk=made)
        sha256 = hashlib.sha256(theirs.read_bytes()).hexdigest()
        of_sdk = mirror_lock.is_of_sdk(project)
        sdk = {theirs.name: sha256} if of_sdk else {}
        self.built_with = {} if locked else sdk
        if locked:
            one = LockedFile(name=project, version="1.0", file_name=theirs.name, sha256=sha256)
            files = () if of_sdk else (one,)
            lock = MirrorLock(
                stack="sample", pythons=("3.11",), platforms=("win_amd64",), files=files, sdk=sdk
            )
            mirror_lock.write(mirror_lock.path_of(self.stack), lock)
        publish_dists(
            Index(scene.store, "staging"),
            [distribution.read(self.needed)],
            "mirror",
            build=PUBLISHED if of_sdk else MIRRORED,
        )

    def __enter__(self) -> Self:
        patch = self._stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("CAIRN_CACHE_DIR", str(self._scene.folder / "writer"))
        self._stack.enter_context(anchor.acting(root=self._scene.root))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def staged(self, stack: Stack | None) -> WheelSet:
        """The set as its builder stages it."""
        return stage.stage_set(
            self._scene.store,
            "staging",
            self.open,
            [self.wheel],
            manifest=manifest_of(self.open.python, self.open.platform),
            statement=statement_of(self.open, [self.wheel], built_with=self.built_with),
            stack=stack,
            attester=KeyAttester(BUILDER),
        )

    def promoted(self, made: WheelSet) -> Promotion:
        """The set as its promoter promotes it, once a tester has passed it."""
        records.add(self._scene.store, data_of(record_of(made)), signer=TESTER)
        with acting_as(self._scene.folder, PROMOTER):
            return promote(
                self._scene.store,
                made.id,
                stack=self.stack,
                mirror_lock=mirror_lock.of(self.stack),
                attester=KeyAttester(PROMOTER),
            )

    def is_refused(self, words: str) -> None:
        """Staging refuses it, and so does the gate where a builder had a lock that nobody reviewed."""
        with pytest.raises(CairnError, match=re.escape(words)) as refused:
            self.staged(self.stack)
        assert self.needed.name in str(refused.value)
        with pytest.raises(RefusedError) as refused:
            self.promoted(self.staged(self._careless()))
        (reason,) = refused.value.reasons
        assert reason.startswith(f"1. every file passes verify: {self.needed.name} with sha256 ")
        assert words in reason

    def _careless(self) -> Stack:
        """The stack with a lock that has whatever lies in staging."""
        folder, sha256 = self._scene.folder / "careless", hashlib.sha256(self.needed.read_bytes()).hexdigest()
        distribution, version = self.needed.name.split("-")[:2]
        name = distribution.replace("_", "-")
        one = LockedFile(name=name, version=version, file_name=self.needed.name, sha256=sha256)
        of_sdk = mirror_lock.is_of_sdk(name)
        sdk = {self.needed.name: sha256, **self.built_with} if of_sdk else {}
        lock = MirrorLock(
            stack="sample",
            pythons=("3.11",),
            platforms=("win_amd64",),
            files=() if of_sdk else (one,),
            sdk=sdk,
        )
        stack = structs.replace(self.stack, folder=str(folder))
        mirror_lock.write(mirror_lock.path_of(stack), lock)
        return stack


def _lead_to(offer: dict[str, Any], other: WheelSet) -> None:
    offer["set_id"], offer["packages"] = other.id, ["torch", "triton"]
    offer["versions"] = {one.distribution: one.version for one in other.wheels}


def _project(name: str) -> ProjectState:
    entry = FileEntry(
        filename=f"{name}-1-py3-none-any.whl", sha256="0" * 64, size=1, version="1", build=PUBLISHED
    )
    return ProjectState(name=name, files=(entry,))


def _root(scene: Scene) -> metadata.Root:
    return metadata.opened(scene.before[key_of("root", 1)], metadata.Root, {}, name="it", threshold=0)


def _timestamp(scene: Scene) -> metadata.Timestamp:
    return metadata.opened(scene.store.read(TIMESTAMP).data, metadata.Timestamp, {}, name="it", threshold=0)


def _snapshot(scene: Scene) -> metadata.Snapshot:
    key = key_of("snapshot", _timestamp(scene).meta["snapshot.json"].version)
    return metadata.opened(scene.store.read(key).data, metadata.Snapshot, {}, name="it", threshold=0)


def _after(shot: metadata.Snapshot) -> metadata.Snapshot:
    return structs.replace(shot, version=shot.version + 1)


def _with_wheels_of(scene: Scene, one: Signer) -> None:
    """Copy a release of one's own over the store, made and signed on a machine that knows no other."""
    wheels = scene.folder / "evil"
    wheels.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAIRN_CACHE_DIR", str(wheels / "cache"))
        other = released(wheels, version="2.9.6", attester=KeyAttester(one), tested_by=one)
        evidence.sign_builder(other.store, other.made.id, evidence.of_builder(other.store, other.made), one)
    for key, data in other.store.objects.items():
        scene.store.write(key, data)
    scene.victim = other.made


def _elsewhere(scene: Scene) -> Released:
    """Another store of the same people, with the same keys: what they try there is not for these users."""
    wheels = scene.folder / "elsewhere"
    wheels.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAIRN_CACHE_DIR", str(wheels / "cache"))
        other = released(wheels, version="2.9.7", attester=KeyAttester(PROMOTER), tested_by=TESTER)
        statement = evidence.of_builder(other.store, other.made)
        evidence.sign_builder(other.store, other.made.id, statement, BUILDER)
        trusted = rooted(other.store, threshold=1)
        with acting_as(scene.folder, PROMOTER):
            root.sign_all(other.store, trusted, {})
            yank(other.store, other.made.id, reason="a try")
            lift(other.store, other.made.id, by="ann", reason="it was one")
    return other


def _copy_over(scene: Scene, part: str) -> None:
    """Give each version of a role that was there before the yank for the newest one."""
    newest: dict[str, int] = {}
    for key in scene.store.objects:
        number, _, name = key.removeprefix("metadata/").partition(".")
        if key.startswith("metadata/") and part in f".{name}" and number.isdigit():
            newest[name] = max(newest.get(name, 0), int(number))
    for name, number in newest.items():
        if number > 1:
            scene.store.write(f"metadata/{number}.{name}", scene.before[f"metadata/1.{name}"])


def _sign_state(scene: Scene, by: Signer) -> None:
    """Write the state of before the yank as the next one, signed by somebody, with all that leads to it."""
    shot = _snapshot(scene)
    name = "release.json"
    version = shot.meta[name].version + 1
    role = metadata.opened(scene.before[key_of("release", 1)], metadata.Targets, {}, name="it", threshold=0)
    state = structs.replace(role, version=version)
    scene.store.write(key_of("release", version), sealed(state, by))
    meta = {**shot.meta, name: metadata.Version(version=version)}
    new = structs.replace(_after(shot), meta=meta)
    scene.store.write(key_of("snapshot", new.version), sealed(new, by))
    stamp(scene.store, [by], snapshot=new.version)


def _refreshed(scene: Scene, machine: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAIRN_CACHE_DIR", str(scene.folder / machine))
        with anchor.acting(root=scene.root), acting_as(scene.folder, PROMOTER):
            trusted = anchor.anchor(scene.store)
            assert trusted is not None
            Promoter(scene.store, trusted).refresh()


def _released_again(scene: Scene, machine: str) -> None:
    """One more project, by an honest promoter."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAIRN_CACHE_DIR", str(scene.folder / machine))
        with anchor.acting(root=scene.root), acting_as(scene.folder, PROMOTER):
            commit(
                Index(scene.store, "release"), "publish", lambda _: Change(projects={"new": _project("new")})
            )


def _next(scene: Scene) -> metadata.Root:
    """The root in which MALLORY stands for the new promoter, builder and timestamp."""
    new = _root(scene)
    for role, old in (("promoter", PROMOTER), ("builder", BUILDER), ("timestamp", TIMEKEEPER)):
        new = root.without_key(root.with_key(new, role, MALLORY.public), role, old.key_id)
    return new


def _replaced(scene: Scene, named: Mapping[str, str]) -> None:
    """What the page on replacing keys tells to do, by whoever has looked at these states."""
    with anchor.acting(root=scene.root), acting_as(scene.folder, MALLORY):
        trusted = anchor.anchor(scene.store)
        assert trusted is not None
        root.require_ready(scene.store, trusted, _next(scene), named)
        trusted = root.publish(scene.store, root.following(_next(scene), OFFLINE[:2]))
        root.sign_again(scene.store, trusted, _root(scene), named)


def _looked_at(scene: Scene) -> dict[str, str]:
    with anchor.acting(root=scene.root):
        trusted = anchor.anchor(scene.store)
    assert trusted is not None
    return looked_at(scene.store, structs.replace(trusted, root=_next(scene)))


@pytest.mark.parametrize("one", ATTACKS, ids=lambda one: f"{one.holder}: {one.tries}")
def test_both_machines_see_what_the_table_says(scene: Scene, one: Attack) -> None:
    one.does(scene)
    for machine, expected in (("old", one.old), ("new", one.new)):
        seen = scene.sees(machine)
        if expected.startswith("error: "):
            assert seen.startswith("error: ")
            assert expected.removeprefix("error: ") in seen
        else:
            assert seen == expected


@pytest.mark.parametrize(
    ("project", "locked"), [("rocm-sdk-core", False), ("rocm-sdk-core", True), ("numpy", True)]
)
def test_a_set_that_takes_what_somebody_vouches_for_is_released(
    first: Scene, tmp_path: Path, project: str, *, locked: bool
) -> None:
    shutil.copytree(first.folder, tmp_path, dirs_exist_ok=True)
    scene = dataclasses.replace(first, folder=tmp_path, store=MemoryStore(first.store.objects))
    with Next(scene, project, locked=locked) as new:
        assert new.needed.name in new.promoted(new.staged(new.stack)).added


def test_the_page_has_the_table() -> None:
    lines = ["| he has | he | who knew the store sees | who is new sees |", "| --- | --- | --- | --- |"]
    holder = ""
    for one in ATTACKS:
        cells = [one.holder if one.holder != holder else "", one.tries]
        cells += ["an error" if text.startswith("error") else text for text in (one.old, one.new)]
        lines.append(f"| {' | '.join(cells)} |".replace("|  |", "| |"))
        holder = one.holder
    table = "\n".join(lines)
    page = (ROOT / "docs" / "reference" / "trust.md").read_text("utf-8")
    assert table in page, table


def test_with_write_access_alone_nobody_is_shown_what_was_not_signed() -> None:
    """Denial of service; and to a newcomer, for a week at most, what was signed before."""
    seen = {text for one in ATTACKS if one.holder == BUCKET for text in (one.old, one.new)}
    assert {text for text in seen if not text.startswith("error")} == {SIGNED, OLD}
    assert [one.tries for one in ATTACKS if one.holder == BUCKET and OLD in (one.old, one.new)] == [
        "puts the whole store back, within a week",
        "puts it back; a promoter's machine that saw it later signs nothing",
        "puts it back; a promoter's machine that never saw the store signs nothing",
        "puts it back; one that asks where all of them remember signs nothing",
    ]
    assert OLD not in {one.old for one in ATTACKS if one.holder in (BUCKET, TIME)}
