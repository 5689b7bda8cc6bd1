"""Promoters, a yanker, refresh, gc and rollbacks on one store with a root, killed at random moments."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cairn.cli.main import main
from cairn.errors import CairnError
from cairn.release import records
from cairn.release.promote import Readmission, promote
from cairn.release.provenance import evidence
from cairn.release.provenance.attest import KeyAttester
from cairn.release.trust import anchor
from cairn.release.trust.current import SignedMetadata
from cairn.store.memory import MemoryStore
from cairn.store.protocol import MissingKeyError
from cairn.wheels.wheelset import WheelSet
from helpers.gate import AWAY, data_of, record_of, stack_of
from helpers.release import in_folder, make_set, make_wheel, stage_set
from helpers.trust import BUILDER, PROMOTER, TESTER, key_file, rooted

pytestmark = pytest.mark.skipif(
    not hasattr(os, "fork"), reason="each command is a fork of the tests' process"
)

ACTORS = ("promoter a", "promoter b", "yanker", "keeper")
VERSIONS = [f"2.{number}.0" for number in range(8)]
CRASH = 12


@dataclass
class Tally:
    """What was typed: how many commands, how they ended by kind, and what must not be."""

    commands: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    kills: int = 0
    reads: int = 0
    wrong: list[str] = field(default_factory=list)


class World:
    """A store in a folder with sets of triton and torch that are staged, and machines that act on it."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, seed: int) -> None:
        self.folder, self.random, self.tally = folder, random.Random(seed), Tally()  # noqa: S311 - it is to be the same each time
        patch.setenv("CAIRN_CACHE_DIR", str(folder / "keeper"))
        store = MemoryStore()
        self.sets = [self._staged(store, version) for version in VERSIONS]
        self.store = in_folder(store, folder / "store")
        self.root = rooted(self.store).fingerprint
        self.key = key_file(folder, PROMOTER)
        self.seconds: dict[str, float] = {}
        for actor in ACTORS:
            patch.setenv("CAIRN_CACHE_DIR", str(folder / actor))
            with anchor.acting(root=self.root):
                trusted = anchor.anchor(self.store)
            assert trusted is not None
            trusted.remember(anchor.Seen(0, 0))

    def _staged(self, store: MemoryStore, version: str) -> WheelSet:
        wheels = [
            make_wheel(self.folder, "triton", version),
            make_wheel(self.folder, "torch", version, requires=[f"triton=={version}"]),
        ]
        made = stage_set(store, "staging", make_set(wheels, **AWAY), wheels, attester=KeyAttester(BUILDER))
        evidence.sign_builder(store, made.id, evidence.of_builder(store, made), BUILDER)
        records.add(store, data_of(record_of(made)), signer=TESTER)
        return made

    def words(self, actor: str) -> list[str]:
        """What an actor types next."""
        return [*self._unsigned(actor), "--sign-key", str(self.key)]

    def _unsigned(self, actor: str) -> list[str]:
        index, made = self.random.choice(("release", "nightly")), self.random.choice(self.sets)
        if actor.startswith("promoter"):
            again = ["--again", "ann", "--reason", "it is right"] if self.random.random() < 0.5 else []
            return ["release", "promote", made.id, "--to", index, *again]
        if actor == "yanker":
            undo = ["--undo", "--who", "ann"] if self.random.random() < 0.5 else []
            return ["release", "yank", made.id, "--reason", "it eats data", *undo]
        back = ["release", "rollback", "--index", index, "--to", str(self.random.randrange(1, 9))]
        every = (["trust", "refresh"], ["index", "gc", "--older-than", "1"], [*back, "--reason", "slow"])
        return self.random.choice(every)

    def start(self, actor: str, words: list[str]) -> int:
        """Begin a command in a process; its number."""
        sys.stdout.flush()
        if pid := os.fork():
            return pid
        code = CRASH
        try:
            # pytest's own `sys.stdout` is not what descriptor 1 is.
            sys.stdout = sys.stderr = (self.folder / "log").open("a", buffering=1, encoding="utf-8")
            os.environ["CAIRN_CACHE_DIR"] = str(self.folder / actor)
            sys.stdout.write(f"$ {words}\n")
            code = self.promote(words) if words[1] == "promote" else main([*words, "--store", self.store.url])
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else CRASH
        finally:
            os._exit(code)

    def promote(self, words: list[str]) -> int:
        """Promote by a stack that no file has, as `cairn release promote` does by one; its exit code."""
        made = next(made for made in self.sets if made.id == words[2])
        again = Readmission(who="ann", reason="it is right") if "--again" in words else None
        try:
            with anchor.acting(key=self.key):
                promote(
                    self.store,
                    made.id,
                    stack=stack_of(made),
                    target=words[4],
                    readmission=again,
                    attester=KeyAttester(PROMOTER),
                )
        except CairnError as error:
            sys.stdout.write(f"{error}\n{getattr(error, 'reasons', '')}\n")
            return error.exit_code
        return 0

    def run(self, commands: int) -> None:
        """Have all actors type so many commands, two at a time, and kill a third of them."""
        begun: dict[int, tuple[str, str, float, float]] = {}
        left = commands
        while left or begun:
            busy = {actor for actor, *_ in begun.values()}
            while left and len(begun) < 2:
                actor = self.random.choice([one for one in ACTORS if one not in busy])
                words = self.words(actor)
                kind, moment = " ".join(words[:2]), time.monotonic()
                usual = self.seconds.get(kind, 1.0)
                lives = self.random.uniform(0, usual) if self.random.random() < 0.55 else 60.0
                begun[self.start(actor, words)] = actor, kind, moment, moment + lives
                busy.add(actor)
                left -= 1
            self.read()
            for pid, (_, kind, moment, death) in list(begun.items()):
                if time.monotonic() > death:
                    os.kill(pid, signal.SIGKILL)
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    del begun[pid]
                    self._note(kind, os.waitstatus_to_exitcode(status), time.monotonic() - moment)

    def _note(self, kind: str, code: int, seconds: float) -> None:
        self.tally.commands += 1
        self.tally.kills += code == -signal.SIGKILL
        self.tally.ends[f"{kind}: {code}"] += 1
        if code == 0:
            self.seconds[kind] = (self.seconds.get(kind, seconds) + seconds) / 2
        if code == CRASH or (code < 0 and code != -signal.SIGKILL):
            self.tally.wrong.append(f"{kind} ended with {code}")

    def read(self) -> None:
        """Resolve torch and its triton from the pages, and what is signed, as installers do at any moment."""
        for index in ("release", "nightly"):
            try:
                torch, triton, again = (
                    json.loads(self.store.read(f"{index}/simple/{name}/index.json").data)
                    for name in ("torch", "triton", "torch")
                )
            except MissingKeyError:
                continue
            if torch != again:  # pages of two moments say nothing of one
                continue
            self.tally.reads += 1
            if lacking := set(torch["versions"]) - set(triton["versions"]):
                self.tally.wrong.append(f"{index} offers torch {sorted(lacking)} without its triton")
        with anchor.acting(root=self.root):
            trusted = anchor.anchor(self.store)
        assert trusted is not None
        SignedMetadata(self.store, trusted).current()
        time.sleep(0.02)

    def types(self, *words: str) -> int:
        """Type a command that nobody kills; its exit code."""
        pid = self.start("keeper", [*words])
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killed(world: World, rounds: int, commands: int) -> Tally:
    """Rounds of commands; after each, `repair` and then `check` are to be good."""
    for index in ("release", "nightly"):  # something to read, and how long this takes on this machine
        moment = time.monotonic()
        assert world.types("release", "promote", world.sets[0].id, "--to", index) == 0
        world.seconds["release promote"] = time.monotonic() - moment
    for _ in range(rounds):
        world.run(commands)
        repaired = world.types("index", "repair", "--sign-key", str(world.key))
        checked = world.types("index", "check", "--hashes")
        if repaired or checked:
            world.tally.wrong.append(
                f"after {world.tally.commands} commands repair ends with {repaired}, check with {checked}"
            )
        old = time.time() - 40 * 24 * 3600
        for path in world.store.path.rglob("*"):  # so that `gc` finds what the dead have left
            if path.is_file():
                os.utime(path, (old, old))
    return world.tally


def test_what_is_killed_at_random_is_never_mixed_and_good_once_it_is_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tally = killed(World(tmp_path, monkeypatch, seed=3), rounds=1, commands=12)
    assert tally.wrong == [], (tmp_path / "log").read_text()
    assert min(tally.kills, tally.reads) > 0


@pytest.mark.by_hand
@pytest.mark.parametrize("seed", range(1, 11))
def test_a_thousand_commands_are_killed_at_random(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    tally = killed(World(tmp_path, monkeypatch, seed), rounds=4, commands=25)
    sys.stdout.write(f"seed {seed}: {tally}\n")
    assert tally.wrong == [], (tmp_path / "log").read_text()
