"""Random orders of all that a release engineer can do: what was decided holds, and nothing refuses for ever.

    CAIRN_MODEL_EXAMPLES=2000 pytest tests/unit/release/test_model.py

tries as many orders as one has time for.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from cairn.errors import CairnError, GateError
from cairn.release import records
from cairn.release.audit.audit import audit
from cairn.release.gate import installation
from cairn.release.gc import collect
from cairn.release.history.retain import Rule, retain
from cairn.release.history.rollback import rollback
from cairn.release.history.yank import lift, yank
from cairn.release.index import keys
from cairn.release.index.commit import recover
from cairn.release.index.snapshot import Index, existing
from cairn.release.ledger import NameTakenError
from cairn.release.promote import Readmission, promote
from cairn.release.publish import stage
from cairn.release.weighing import Bypass
from cairn.store.memory import MemoryStore
from cairn.testing.record import Counts
from cairn.wheels.wheelset import WheelSet
from helpers.gate import AWAY, at, data_of, record_of, stack_of
from helpers.nights import backdate
from helpers.release import Breaking, Broken, make_set, make_wheel, stage_set

IN_CI = 10
EXAMPLES = int(os.environ.get("CAIRN_MODEL_EXAMPLES", IN_CI))
STEPS = 20
VERSIONS = ("2.9.0", "2.9.1", "2.10.0")
TARGETS = ("release", "prerelease", "nightly", "untested")
WHICH = st.integers(0, len(VERSIONS) - 1)
BAD = ("failed", "invalid", "untested")


class Releases(RuleBasedStateMachine):
    """A store, and what somebody who remembers everything would say of it."""

    folder: Path

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        self.clock = itertools.count()
        self.sets: dict[int, WheelSet] = {}
        self.banned: set[str] = set()
        self.failing: dict[str, set[str]] = {}  # by set, the records that nothing has answered
        self.tested: set[str] = set()  # those with a record that has passed
        self.bytes_of: dict[str, str] = {}
        self.released: dict[str, set[str]] = {}
        for number in range(len(VERSIONS)):
            self.stage(number, kind="good")

    def _wheel(self, number: int, kind: str) -> Path:
        content = None if kind == "good" else "EVIL = 1\n"
        return make_wheel(self.folder / kind, "torch", VERSIONS[number], content=content)

    @rule(number=WHICH, kind=st.sampled_from(("good", "evil")))
    def stage(self, number: int, kind: str) -> None:
        wheel = self._wheel(number, kind)
        try:
            made = stage_set(self.store, "staging", make_set([wheel], **AWAY), [wheel])
        except NameTakenError:
            assert kind == "evil"
            return
        except GateError:
            assert self.sets[number].id in self.banned
            return
        assert kind == "good"
        self.sets[number] = made

    @rule(
        number=WHICH,
        channel=st.sampled_from(TARGETS),
        how=st.sampled_from(("plain", "bypass", "again")),
    )
    def promote(self, number: int, channel: str, how: str) -> None:
        made = self.sets[number]
        before = set(Index(self.store, channel).load().set_ids)
        more: dict[str, Any] = {}
        if how != "plain":
            more["bypass"] = Bypass(who="ann", reason="hurry")
        if how == "again":
            more["readmission"] = Readmission(who="ann", reason="right after all")
        with contextlib.suppress(CairnError):
            promote(self.store, made.id, stack=stack_of(made), target=channel, **more)
            if made.id not in before:
                assert made.id not in self.banned
                assert not self.failing.get(made.id)
                assert made.id in self.tested  # a set for the CPU needs no hardware that a bypass could cover
        if made.id not in before and (made.id in self.banned or self.failing.get(made.id)):
            assert made.id not in Index(self.store, channel).load().set_ids

    @rule(number=WHICH)
    def yank(self, number: int) -> None:
        yank(self.store, self.sets[number].id, reason="wrong results")
        self.banned.add(self.sets[number].id)

    @rule(number=WHICH)
    def lift(self, number: int) -> None:
        try:
            lift(self.store, self.sets[number].id, by="ann", reason="it was the driver")
        except GateError:
            assert self._steps_back(set(self.banned) - {self.sets[number].id})
        else:
            self.banned.discard(self.sets[number].id)

    @rule(index=st.sampled_from((*TARGETS, "staging")), back=st.integers(0, 3))
    def rollback(self, index: str, back: int) -> None:
        number = Index(self.store, index).load().generation.number
        with contextlib.suppress(CairnError):  # perhaps it is not there, or was collected
            rollback(self.store, index, str(max(0, number - back)), reason="too slow")

    @rule(index=st.sampled_from((*TARGETS, "staging")))
    def retain(self, index: str) -> None:
        if index in existing(self.store):
            retain(self.store, index, Rule(last=1))

    @rule(days=st.sampled_from((0, 400)))
    def collect(self, days: int) -> None:
        """With 400 days: nobody has written anything for so long, and nothing else is remembered either."""
        for name in existing(self.store) if days else ():
            recover(Index(self.store, name))
            backdate(self.store, name, days)
        if days:
            old = datetime.now(UTC) - timedelta(days=days)
            self.store.modified = dict.fromkeys(self.store.objects, old)
        collect(self.store, older_than=timedelta(days=1 if days else 30))

    @rule(number=WHICH, verdict=st.sampled_from(BAD), slow=st.booleans())
    def fail(self, number: int, verdict: str, *, slow: bool) -> None:
        """Perhaps on a machine whose clock is an hour slow: what has passed before does not answer it."""
        made = self.sets[number]
        counts, started = Counts(passed=1, failed=1), self._time(-60 if slow else 0)
        changes = {"verdict": verdict, "reason": "boom", "counts": counts, "started": started}
        if self._there(made):
            given = records.add(self.store, data_of(record_of(made, **changes)))
            self.failing.setdefault(made.id, set()).add(given.digest)

    @rule(number=WHICH)
    def passes(self, number: int) -> None:
        made = self.sets[number]
        if self._there(made):
            records.add(self.store, data_of(record_of(made, started=self._time())))
            self.failing.pop(made.id, None)
            self.tested.add(made.id)

    @rule(number=WHICH)
    def answer(self, number: int) -> None:
        made = self.sets[number]
        if self._there(made):
            for digest in self.failing.pop(made.id, ()):
                records.answer(self.store, made.id, digest, who="ann", reason="the disk was full")

    @rule(number=WHICH, left=st.integers(0, 25), banned=st.booleans())
    def die(self, number: int, left: int, *, banned: bool) -> None:
        """A command dies at some write; the same command, run again, does the rest."""
        act = self.yank if banned else self.lift
        store, whole = Breaking(self.store, left=left), self.store
        try:
            self.store = store
            with contextlib.suppress(Broken):
                act(number)
        finally:
            self.store = whole
        whole.objects = store.objects
        whole.modified = dict.fromkeys(whole.objects, datetime.now(UTC))
        act(number)

    @rule()
    def recover(self) -> None:
        for name in existing(self.store):
            recover(Index(self.store, name))

    @rule(which=st.sampled_from(("names", "sets", "head")))
    def lose(self, which: str) -> None:
        """Somebody deletes what of the ledger can be made again."""
        for key in [key for key in self.store.objects if key.startswith(f"ledger/{which}")]:
            self.store.delete(key)

    def _time(self, minutes: float = 0) -> str:
        return at(-1 + minutes + next(self.clock) / 1000)

    def _steps_back(self, banned: set[str]) -> bool:
        """Whether, with these bans, a channel has an untested set that came after a tested one."""
        return any(
            old.added < new.added and not old.untested_targets and new.untested_targets
            for name in existing(self.store)
            if name not in ("staging", "untested")
            for old, new in itertools.permutations(Index(self.store, name).load().sets(), 2)
            if not {old.set_id, new.set_id} & banned
        )

    def _there(self, made: WheelSet) -> bool:
        """Nothing is given to a set that was collected, before it is staged again."""
        return self.store.exists(keys.set_key(made.id, "set.json"))

    @invariant()
    def what_was_decided_holds(self) -> None:
        assert not self._steps_back(self.banned)
        for name in existing(self.store):
            now = Index(self.store, name).load()
            for one in now.sets():
                assert (one.yanked is not None) == (one.set_id in self.banned), name
                assert bool(one.failed) == bool(self.failing.get(one.set_id)), name
            for project in now.projects():
                page = self.store.read(f"{keys.simple_prefix(name)}{project.name}/index.json").data
                for file in project.files:
                    assert self.bytes_of.setdefault(file.filename, file.sha256) == file.sha256
                    of = {set_id for set_id in file.sets if set_id in now.set_ids}
                    assert (file.yanked is not None) == bool(of and of <= self.banned), name
                    assert file.filename.encode() in page
                    assert (b'"yanked":"wrong results"' in page) == any(f.yanked for f in project.files)

    def teardown(self) -> None:
        """No order of commands leads to where none goes on."""
        if self.store.exists(keys.LEDGER_HEAD):  # as the audit says where something beside it was lost
            self.store.delete(keys.LEDGER_HEAD)
        for number in range(len(VERSIONS)):
            self.lift(number)
            if self.sets[number].id in self.banned:  # an untested set stands above it: that goes first
                for name in set(existing(self.store)) - {"staging"}:
                    rollback(self.store, name, "0")
                self.lift(number)
            self.stage(number, kind="good")
            self.passes(number)
        self.recover()
        newest = self.sets[len(VERSIONS) - 1]
        again = Readmission(who="ann", reason="right after all")
        done = promote(self.store, newest.id, stack=stack_of(newest), readmission=again)
        assert newest.id in Index(self.store, "release").load().set_ids, done
        assert audit(self.store, hashes=True).problems == ()


def test_what_was_decided_holds_in_any_order_of_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # uv is asked once of each set: these need nothing but themselves, whatever else an index has.
    for module, name in ((stage, "closure"), (installation, "resolve_set")):
        monkeypatch.setattr(module, name, remembering(getattr(module, name)))
    Releases.folder = tmp_path
    run_state_machine_as_test(
        Releases,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=EXAMPLES == IN_CI,
            suppress_health_check=list(HealthCheck),
        ),
    )


def remembering(work: Callable[..., Any]) -> Callable[..., Any]:
    known: dict[object, Any] = {}

    def remembered(snapshot: object, *more: Any, **asked: Any) -> Any:
        roots = tuple(root.sha256 for root in asked.get("roots", ()))
        key = (roots, *(one.id for one in more))
        if key not in known:
            known[key] = work(snapshot, *more, **asked)
        return known[key]

    return remembered
