"""A yank over three indexes, or a change of the root, dies before each write; any command comes next."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec import structs

from cairn.cli import common_options
from cairn.cli.main import main
from cairn.errors import CairnError
from cairn.release import records
from cairn.release.audit.audit import audit
from cairn.release.index.snapshot import read_set
from cairn.release.ledger import Ledger
from cairn.release.promote import promote
from cairn.release.provenance import evidence
from cairn.release.provenance.attest import KeyAttester
from cairn.release.trust import anchor, root
from cairn.release.trust.current import SignedMetadata
from cairn.release.trust.metadata import TIMESTAMP, key_of
from cairn.release.trust.signers import PUBLIC_NAME, Signer
from cairn.store.memory import MemoryStore
from cairn.store.protocol import StoredObject
from cairn.wheels.wheelset import WheelSet
from helpers.faults import EVERY_MOMENT
from helpers.gate import data_of, record_of, stack_of, stage_torch
from helpers.moments import dying
from helpers.provenance import released, signer
from helpers.trust import BUILDER, OFFLINE, PROMOTER, TESTER, acting_as, key_file, looked_at, rooted

NEW = signer(31)
"""The promoter's key after the change."""
INDEXES = ("release", "nightly", "staging")


class World:
    """Two sets in two released indexes of a store with a root, and a third that waits in staging."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch, self.store = folder, patch, MemoryStore()
        self.machines = itertools.count()
        self.memory = folder / "writer"
        self.on(self.memory)
        self.trusted = rooted(self.store)
        self.sets = [self._staged(version) for version in ("2.8.0", "2.9.0", "2.10.0")]
        for made in self.sets[:2]:
            for index in INDEXES[:2]:
                self.promote(self.store, made, index)

    def _staged(self, version: str) -> WheelSet:
        made = stage_torch(self.store, self.folder, version)
        evidence.sign_builder(self.store, made.id, evidence.of_builder(self.store, made), BUILDER)
        records.add(self.store, data_of(record_of(made)), signer=TESTER)
        return made

    def on(self, memory: Path) -> None:
        """Go on at a machine that remembers this."""
        self.memory = memory
        self.patch.setenv("CAIRN_CACHE_DIR", str(memory))

    def elsewhere(self, memory: Path) -> None:
        """Go on at another machine that remembers the same."""
        shutil.copytree(memory, new := self.folder / f"machine{next(self.machines)}")
        self.on(new)

    def key(self, store: MemoryStore) -> Signer:
        """The promoter's by the root that there is."""
        return NEW if store.exists(key_of("root", 2)) else PROMOTER

    def promote(self, store: MemoryStore, made: WheelSet, index: str = "release") -> None:
        by = self.key(store)
        with acting_as(self.folder, by):
            promote(store, made.id, stack=stack_of(made), target=index, attester=KeyAttester(by))

    def types(self, store: MemoryStore, *words: str, signs: bool = True) -> int:
        """Have the command be typed for this store; its exit code."""
        self.patch.setattr(common_options.StoreOptions, "open_existing_store", lambda _: store)
        key = ("--sign-key", str(key_file(self.folder, self.key(store)))) if signs else ()
        return main([*words, "--store", str(self.folder), *key])

    def is_whole(self, store: MemoryStore) -> bool:
        """Whether the pages of each index say of each set what the ledger says."""
        bans = {made.wheels[0].sha256: Ledger(store).ban(made.id) for made in self.sets}
        why = {sha256: ban.why if ban else False for sha256, ban in bans.items()}
        pages = [json.loads(store.read(f"{name}/simple/torch/index.json").data) for name in INDEXES]
        files = [file for page in pages for file in page["files"]]
        return all(file["yanked"] == why[file["hashes"]["sha256"]] for file in files)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CAIRN_SIGN_KEY", raising=False)
        yield World(tmp_path_factory.mktemp("world"), patch)


Next = Callable[[World, MemoryStore], object]
NEXT: dict[str, Next] = {
    "check": lambda world, store: world.types(store, "index", "check", "--hashes", signs=False),
    "repair": lambda world, store: world.types(store, "index", "repair"),
    "promote": lambda world, store: world.promote(store, world.sets[2]),
    "rollback": lambda world, store: world.types(
        store, "release", "rollback", "--index", "release", "--to", "1", "--reason", "slow"
    ),
    "gc": lambda world, store: world.types(store, "index", "gc"),
    "refresh": lambda world, store: world.types(store, "trust", "refresh"),
}


def moments(world: World, act: Next, again: Next) -> Iterator[tuple[str, MemoryStore, Next]]:
    """Each moment at which `act` may die, as a store, and what comes next; else than by hand, a sample."""
    begun = world.memory
    left_by: list[Path] = []

    def work(store: MemoryStore) -> None:
        world.elsewhere(begun)
        left_by.append(world.memory)
        act(world, store)

    nexts = {"again": again, **NEXT}
    for left, dead in dying(world.store, work, remembers=True, step=1 if EVERY_MOMENT else 2):
        for number, (name, call) in enumerate(nexts.items()):
            if EVERY_MOMENT or (left // 2 + number) % len(nexts) == 0:
                # The machine that died goes on, or another.
                world.elsewhere(left_by[-1] if left % 4 else begun)
                yield f"{name} after {left} writes", MemoryStore(dead.objects), call
    world.on(begun)


def test_whatever_follows_a_yank_that_died_all_indexes_say_the_same_in_the_end(world: World) -> None:
    made = world.sets[1]

    def yank(world: World, store: MemoryStore) -> None:
        code = world.types(store, "release", "yank", made.id, "--reason", "it eats data")
        assert code == 0

    wrong, ends = [], set()
    for moment, store, call in moments(world, yank, yank):
        if (code := call(world, store)) not in (0, None) and not moment.startswith("check"):
            wrong.append(f"{moment}: exit code {code}")
        if audit(store, hashes=True).good and not world.is_whole(store):
            wrong.append(f"{moment}: green, and not whole")
        repaired = world.types(store, "index", "repair")
        problems = [problem.said for problem in audit(store, hashes=True).problems]
        if repaired or problems or not world.is_whole(store):
            wrong.append(f"{moment}: after repair: {repaired} {problems}")
        ends.add(Ledger(store).ban(made.id) is None)
    assert wrong == []
    assert ends == {True, False}


def change_words(world: World) -> list[str]:
    """What is typed to have another promoter, as docs/how-to/replace-a-key.md has it."""
    public = world.folder / PUBLIC_NAME
    public.write_bytes(NEW.public.pem())
    changed = root.with_key(world.trusted.root, "promoter", NEW.public)
    changed = root.without_key(changed, "promoter", PROMOTER.key_id)
    named = looked_at(world.store, structs.replace(world.trusted, root=changed))
    keys = [word for one in OFFLINE[:2] for word in ("--root-key", str(key_file(world.folder, one)))]
    adopted = [word for name, label in named.items() for word in ("--adopt", f"{name}={label}")]
    replaced = ["--remove", f"promoter={PROMOTER.key_id[:12]}", "--add", f"promoter={public}"]
    return ["trust", "change", *replaced, "--sign-key", str(key_file(world.folder, NEW)), *keys, *adopted]


def problems_of_next(world: World, name: str, store: MemoryStore, call: Next) -> Iterator[str]:
    """What is wrong with what a command does to a store whose root is half changed."""
    if audit(store, hashes=True).good:  # then clients take it
        SignedMetadata(store, trusted(store)).current()
    before, refused = dict(store.objects), ""
    try:
        code = call(world, store)
    except CairnError as error:
        code, refused = 1, str(error)
    if code and store.objects != before:
        yield "refused, and written"
    if name == "again" and code:
        yield f"the same command does not finish it: {refused}"


def trusted(store: MemoryStore) -> anchor.Anchor:
    found = anchor.anchor(store)
    assert found is not None
    return found


def test_whatever_follows_a_change_of_the_promoter_that_died_the_same_command_finishes_it(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    words = change_words(world)

    def change(world: World, store: MemoryStore) -> int:
        return world.types(store, *words, signs=False)

    wrong = []
    for moment, store, call in moments(world, change, change):
        name = moment.partition(" ")[0]
        if moment in ("promote after 0 writes", "rollback after 0 writes"):
            continue  # nothing was begun, and another state than that which --adopt names is to be looked at
        capsys.readouterr()
        wrong += [f"{moment}: {text}" for text in problems_of_next(world, name, store, call)]
        shown = capsys.readouterr().err
        if "0 of the keys" in shown or ("names no more" in shown) > ("cairn trust change" in shown):
            wrong.append(f"{moment}: does not say what to type: {shown}")
        codes = change(world, store), world.types(store, "index", "repair")
        problems = [problem.said for problem in audit(store, hashes=True).problems]
        if codes != (0, 0) or problems:
            wrong.append(f"{moment}: in the end {codes} {problems}")
        if root.key_ids(trusted(store).root, "promoter") != (NEW.key_id,) or trusted(store).root.version > 2:
            wrong.append(f"{moment}: another root than was asked for")
    assert wrong == []


def init_words(world: World) -> list[str]:
    """What is typed to give a store its root, by somebody who may build too."""
    words = [word for one in OFFLINE[:2] for word in ("--root-key", str(key_file(world.folder, one)))]
    for number, (role, one) in enumerate(
        (("promoter", PROMOTER), ("tester", TESTER), ("builder", BUILDER), ("builder", OFFLINE[0]))
    ):
        public = world.folder / f"{number}.pub"
        public.write_bytes(one.public.pem())
        words += [f"--{role}", str(public)]
    return ["trust", "init", *words, "--sign-key", str(key_file(world.folder, PROMOTER))]


def is_signed(store: MemoryStore) -> bool:
    """Whether a promoter has signed each index as it is, and a builder the sets of these."""
    signed = SignedMetadata(store, trusted(store))
    states = root.gated(store)
    for set_id in {set_id for state in states for set_id in state.set_ids}:
        evidence.builder_signers(store, read_set(store, set_id), trusted(store).root.trust())
    found = [signed.signed(state.index.name) for state in states]
    return [one and one.digest for one in found] == [state.digest for state in states] != []


def test_whatever_follows_a_first_root_that_died_the_same_command_finishes_it(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (never_seen := tmp_path / "memory").mkdir()
    monkeypatch.setattr(world, "memory", never_seen)
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(never_seen))
    first = released(tmp_path / "wheels", attester=KeyAttester(PROMOTER), tested_by=TESTER)
    monkeypatch.setattr(world, "store", first.store)
    monkeypatch.setattr(world, "sets", [stage_torch(first.store, tmp_path, "2.10.0")] * 3)
    words = init_words(world)

    def init(world: World, store: MemoryStore) -> int:
        monkeypatch.setattr(common_options.StoreOptions, "open_store", lambda _: store)
        return world.types(store, *words, signs=False)

    wrong = []
    for moment, store, call in moments(world, init, init):
        capsys.readouterr()
        begun = store.objects.get(key_of("root", 1))
        name = moment.partition(" ")[0]
        if begun is not None and trusted(store).seen() is None:
            # A machine that has not seen the store cannot tell an old copy from it, and says what to do.
            before, code = dict(store.objects), init(world, store)
            if not code or store.objects != before or "--seen" not in capsys.readouterr().err:
                wrong.append(f"{moment}: another machine goes on: {code}")
            version = str(SignedMetadata(store, trusted(store)).current().version)
            assert world.types(store, "trust", "show", "--seen", version, signs=False) == 0
        if begun is not None:  # else any command may go on
            wrong += [f"{moment}: {text}" for text in problems_of_next(world, name, store, call)]
        codes = init(world, store), world.types(store, "index", "repair"), init(world, store)
        problems = [problem.said for problem in audit(store, hashes=True).problems]
        if codes != (0, 0, 0) or problems or not is_signed(store):
            wrong.append(f"{moment}: in the end {codes} {problems} {capsys.readouterr().err}")
        if begun not in (None, store.objects[key_of("root", 1)]):
            wrong.append(f"{moment}: another root than clients have met")
    assert wrong == []


class Overtaken(MemoryStore):
    """A copy of a store in which somebody acts once just after its timestamp was read."""

    def __init__(self, before: MemoryStore, act: Callable[[MemoryStore], object]) -> None:
        super().__init__(before.objects)
        self.acts = [act]

    def read(self, key: str) -> StoredObject:
        found = super().read(key)
        if key == TIMESTAMP and self.acts:
            self.acts.pop()(self)
        return found


def test_a_timestamp_that_another_process_of_the_machine_signs_meanwhile_is_no_setback(world: World) -> None:
    world.elsewhere(world.memory)
    store = Overtaken(world.store, lambda it: world.types(it, "trust", "refresh"))
    SignedMetadata(store, trusted(store)).current()
    assert store.acts == []
