"""Builder, tester and promoter: what each signs, what a promotion asks for, and whose decisions count."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from cairn.errors import StoreError, UsageError
from cairn.release import rebuilds, records
from cairn.release.audit import audit
from cairn.release.history import yank
from cairn.release.index import commit, keys
from cairn.release.index.generation import digest_of, encode, now
from cairn.release.index.reading import read_current
from cairn.release.index.snapshot import Index
from cairn.release.ledger import Ledger
from cairn.release.ledger_entries import Entry, Event, Head, History
from cairn.release.promote import Promotion, RefusedError, promote
from cairn.release.provenance import chain, evidence
from cairn.release.provenance.attest import KeyAttester
from cairn.release.provenance.chain import Recorder
from cairn.release.publish.files import publish
from cairn.release.trust import anchor, root
from cairn.release.trust.anchor import Anchor
from cairn.release.trust.client import SignedStore
from cairn.release.trust.current import SignedMetadata
from cairn.release.trust.metadata import TIMESTAMP, MetadataError
from cairn.release.trust.signers import Signer
from cairn.store.memory import MemoryStore
from cairn.testing.record import Counts
from cairn.wheels.wheelset import BUILDER_FILE, WheelSet
from helpers.gate import AWAY, data_of, failed_record, given, record_of, stack_of, stage_torch
from helpers.moments import dying
from helpers.provenance import signer
from helpers.release import make_set, make_wheel, stage_set
from helpers.trust import BUILDER, OFFLINE, PROMOTER, TESTER, acting_as, rooted

ONE = signer(61)
"""The key of a person who does everything."""


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "writer"))
    monkeypatch.delenv("CAIRN_SIGN_KEY", raising=False)


def release(store: MemoryStore, folder: Path, made: WheelSet, by: Signer, **more: object) -> Promotion:
    with acting_as(folder, by):
        return promote(store, made.id, stack=stack_of(made), attester=KeyAttester(by), **more)  # type: ignore[arg-type]


def statement(store: MemoryStore, made: WheelSet) -> bytes:
    return store.read(keys.set_key(made.id, "builder.json")).data


def test_a_promotion_asks_the_builder_and_the_tester_by_their_own_keys(tmp_path: Path) -> None:
    store = MemoryStore()
    rooted(store)
    made = stage_torch(store, tmp_path)
    passed = record_of(made)

    def reasons() -> str:
        with pytest.raises(RefusedError) as refused:
            release(store, tmp_path, made, PROMOTER, records=[given(passed)])
        return "; ".join(refused.value.reasons)

    assert "the builder's statement is not signed" in (said := reasons())
    assert "record" in said
    assert "is not signed" in said.partition("2. ")[2]
    # Neither the tester's key nor the promoter's own stands for the builder's, nor for the tester's.
    evidence.sign_builder(store, made.id, statement(store, made), TESTER)
    records.add(store, data_of(passed), signer=PROMOTER)
    assert reasons().count("which is not trusted") == 2
    evidence.sign_builder(store, made.id, statement(store, made), BUILDER)
    records.add(store, data_of(passed), signer=TESTER)
    assert release(store, tmp_path, made, PROMOTER).added == ("torch-2.9.0-py3-none-any.whl",)
    assert "key " + BUILDER.key_id[:12] in link(store, made, "builder").text
    # A statement that somebody exchanged since, as whoever has a promoter's key alone must, shows.
    evidence.sign_builder(store, made.id, statement(store, made), PROMOTER)
    assert link(store, made, "builder").state == "broken"


def test_wheels_that_a_builder_signed_go_nowhere_with_files_that_no_builder_staged(tmp_path: Path) -> None:
    """Whoever can write to the store can seal them with a file of his own; testers test what is staged."""
    store = MemoryStore()
    made = stage_torch(store, tmp_path)
    evidence.sign_builder(store, made.id, statement(store, made), BUILDER)
    publish(store, "staging", [make_wheel(tmp_path, "evil", "1.0")])
    wheel = tmp_path / made.wheels[0].file_name
    his = stage_set(store, "staging", make_set([wheel], **AWAY), [wheel], requirements=["evil"])
    assert [one.file_name for one in his.closure] == ["evil-1.0-py3-none-any.whl"]
    rooted(store)  # by now: he stages it with another program than ours
    records.add(store, data_of(record_of(his)), signer=TESTER)

    def reasons() -> str:
        with pytest.raises(RefusedError) as refused:
            release(store, tmp_path, his, PROMOTER)
        return "; ".join(refused.value.reasons)

    for name in (BUILDER_FILE, evidence.BUILDER_SIGNATURE):
        store.write(keys.set_key(his.id, name), store.read(keys.set_key(made.id, name)).data)
    assert "the set as its builder staged it is not signed" in reasons()
    name = evidence.SET_SIGNATURE
    store.write(keys.set_key(his.id, name), store.read(keys.set_key(made.id, name)).data)
    assert "the set as its builder staged it is not what its signature is over" in reasons()


def test_an_index_that_is_signed_and_gone_is_missed(tmp_path: Path) -> None:
    offered = Offered(tmp_path)
    before = {problem.code for problem in audit.audit(offered.store).problems}
    assert read_current(Index(offered.store, "release")).exists
    for key in [key for key in offered.store.objects if key.startswith("release/")]:
        offered.store.delete(key)
    (lost,) = (one for one in audit.audit(offered.store).problems if one.code == "signature")
    assert "signature" not in before
    assert lost.said.startswith("release is signed, and lost")
    with acting_as(tmp_path, PROMOTER), pytest.raises(StoreError, match="release: it is signed, and lost"):
        yank.yank(offered.store, offered.made.id, reason="it eats data")  # else it would come back unmarked
    offered.store.delete(TIMESTAMP)  # then it looks like a store in which nothing was signed yet
    with pytest.raises(MetadataError, match="holds no metadata"):
        read_current(Index(offered.store, "release"))


def test_a_promotion_that_died_is_not_finished_after_a_yank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever can write there points `state.json` at what a promoter meant once, and waits for the next."""
    offered = Offered(tmp_path)
    later = stage_torch(offered.store, tmp_path, "2.9.1")
    evidence.sign_builder(offered.store, later.id, statement(offered.store, later), BUILDER)
    records.add(offered.store, data_of(record_of(later)), signer=TESTER)
    machines = itertools.count()

    def die(store: MemoryStore) -> None:
        machine = tmp_path / f"machine{next(machines)}"
        shutil.copytree(tmp_path / "writer", machine)
        monkeypatch.setenv("CAIRN_CACHE_DIR", str(machine))
        release(store, tmp_path, later, PROMOTER)

    states = set()
    for _, dead in dying(offered.store, die, remembers=True):
        below = [key for key in dead.objects if key.startswith(keys.generations_prefix("release"))]
        generations = dict(filter(None, map(keys.generation_of, below)))
        if 2 not in generations:
            continue
        with acting_as(tmp_path, PROMOTER):
            yank.yank(dead, later.id, reason="it eats data")
            if later.id not in read_current(Index(dead, "release")).set_ids:
                old = Index(dead, "release").load().pointer
                assert old is not None
                pointer = msgspec.structs.replace(old, generation=2, digest=generations[2])
                dead.write("release/state.json", encode(pointer))
            try:
                commit.recover(Index(dead, "release"))
            except MetadataError:  # it died before it meant that generation
                states.add("refused")
                continue
            records.publish_late(dead)
        state = read_current(Index(dead, "release"))
        states.add("yanked" if later.id in state.set_ids else "taken back")
        assert later.id not in state.set_ids or state.set(later.id).yanked == "it eats data"
        assert audit.audit(dead, hashes=True).problems == ()
    assert states == {"refused", "taken back", "yanked"}


def test_a_yank_that_died_anywhere_is_finished_by_the_same_command(
    offered: Offered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = itertools.count()

    def again(store: MemoryStore) -> None:
        machine = tmp_path / f"machine{next(machines)}"
        shutil.copytree(tmp_path / "writer", machine)
        monkeypatch.setenv("CAIRN_CACHE_DIR", str(machine))
        with acting_as(tmp_path, PROMOTER):
            yank.yank(store, offered.made.id, reason="it eats data")

    for _, dead in dying(offered.store, again):
        again(dead)
        assert read_current(Index(dead, "release")).set(offered.made.id).yanked == "it eats data"
        assert audit.audit(dead, hashes=True).problems == ()


def link(store: MemoryStore, made: WheelSet, name: str) -> chain.Link:
    trusted = anchor.anchor(store)
    assert trusted is not None
    wheel = made.wheels[0]
    report = chain.check(
        store, "release", file_name=wheel.file_name, sha256=wheel.sha256, trust=trusted.root.trust()
    )
    return next(one for one in report.links if one.name == name)


def test_one_person_with_one_key_builds_tests_and_promotes(tmp_path: Path) -> None:
    store = MemoryStore()
    root.publish(store, root.first([ONE], {}, 1))
    made = stage_torch(store, tmp_path)
    evidence.sign_builder(store, made.id, statement(store, made), ONE)  # as `index publish --sign-key` does
    assert release(store, tmp_path, made, ONE, records=[given(record_of(made))]).added
    assert link(store, made, "records").text.endswith(f"signed by key {ONE.key_id[:12]}")


class Offered:
    """A released set in a store with a root, and what its promoter decided of it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, MemoryStore()
        self.trusted: Anchor = rooted(self.store)
        self.made = stage_torch(self.store, folder)
        evidence.sign_builder(self.store, self.made.id, statement(self.store, self.made), BUILDER)
        records.add(self.store, data_of(record_of(self.made)), signer=TESTER)
        release(self.store, folder, self.made, PROMOTER)

    @property
    def listed(self) -> tuple[str | None, str | None]:
        """What `release` says of the set: why it was yanked, and what failed."""
        entry = Index(self.store, "release").load().set(self.made.id)
        return entry.yanked, entry.failed

    def finish(self) -> None:
        """What `cairn index repair` and `trust refresh` do, with the promoter's key."""
        with acting_as(self.folder, PROMOTER):
            records.publish_late(self.store)

    def append(self, *events: Event) -> None:
        """Append to the ledger as somebody with write access can: lookups and head too."""
        entries = list(Ledger(self.store).entries())
        entry = Entry(number=len(entries), parent=entries[-1][0], who="m", when=now(), events=events)
        self.store.write(keys.ledger_entry_key(entry.number), encode(entry))
        head = msgspec.json.decode(self.store.read(keys.LEDGER_HEAD).data, type=Head)
        head = msgspec.structs.replace(head, number=entry.number, digest=digest_of(encode(entry)))
        self.store.write(keys.LEDGER_HEAD, encode(head))
        for event in events:
            key = keys.ledger_set_key(event.set_id)
            old = msgspec.json.decode(self.store.read(key).data, type=History)
            new = History(through=entry.number, events=(*old.events, event))
            self.store.write(key, encode(new))

    def forged(self, kind: str, **values: object) -> Event:
        return Event(kind=kind, set_id=self.made.id, who="mallory", when=now(), **values)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def released_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Offered]:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("released")
        patch.setenv("CAIRN_CACHE_DIR", str(folder / "writer"))
        yield Offered(folder)


@pytest.fixture
def offered(released_once: Offered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Offered:
    """A copy, on a machine that has seen it."""
    shutil.copytree(released_once.folder / "writer", tmp_path / "writer")
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "writer"))
    copy = object.__new__(Offered)
    copy.__dict__ |= {**released_once.__dict__, "folder": tmp_path}
    copy.store = MemoryStore(released_once.store.objects)
    return copy


def test_a_wheel_is_verified_by_what_was_signed_of_it_alone(offered: Offered) -> None:
    """However large the index is: neither its generation nor a part of it is read."""
    watched, wheel = Recorder(offered.store), offered.made.wheels[0]
    signed = SignedStore(watched, offered.trusted)
    trust = offered.trusted.root.trust()
    report = chain.check(signed, "release", file_name=wheel.file_name, sha256=wheel.sha256, trust=trust)
    assert report.broken == ()
    assert signed.target(f"staging/{wheel.file_name}") is None
    assert {one.name for one in report.links} >= {"provenance", "set", "builder", "records", "judgement"}
    assert not [key for key in watched.objects if keys.index_of(key)]
    assert sum(map(len, watched.objects.values())) < 30_000


def yanked(offered: Offered) -> Offered:
    with acting_as(offered.folder, PROMOTER):
        yank.yank(offered.store, offered.made.id, reason="it eats data")
    return offered


def test_a_forged_lift_counts_for_nothing_and_shows(offered: Offered) -> None:
    yanked(offered).append(offered.forged("lift", why="all is well"))
    offered.finish()
    assert offered.listed == ("it eats data", None)
    assert Ledger(offered.store).ban(offered.made.id) is not None
    said = [one.said for one in audit.audit(offered.store).problems]
    assert [one for one in said if "lift" in one and "no promoter signed it: it counts for nothing" in one]


@pytest.mark.parametrize("how", ["lookup", "entries"])
def test_a_yank_that_is_taken_out_of_the_ledger_is_not_forgotten(offered: Offered, how: str) -> None:
    before = dict(offered.store.objects)
    last = Ledger(offered.store).last()
    yanked(offered)
    if how == "lookup":  # the lookup of the set alone: the chain is whole
        offered.store.write(
            keys.ledger_set_key(offered.made.id), before[keys.ledger_set_key(offered.made.id)]
        )
        offered.finish()
        assert offered.listed == ("it eats data", None)
        assert Ledger(offered.store).ban(offered.made.id) is not None
        return
    assert last is not None
    for key in [key for key in offered.store.objects if key.startswith("ledger/")]:
        offered.store.delete(key)
    for key, data in before.items():
        if key.startswith("ledger/"):
            offered.store.write(key, data)
    with pytest.raises(MetadataError, match="cut back"):
        Ledger(offered.store).ban(offered.made.id)
    with acting_as(offered.folder, PROMOTER), pytest.raises(StoreError, match="cut back"):
        yank.lift(offered.store, offered.made.id, by="x", reason="y")
    assert any("cut back" in one.said for one in audit.audit(offered.store).problems)


def test_decisions_are_the_promoters_alone(offered: Offered) -> None:
    for key in (TESTER, BUILDER):
        with acting_as(offered.folder, key), pytest.raises(UsageError, match="not the promoter's"):
            yank.yank(offered.store, offered.made.id, reason="x")
    assert Ledger(offered.store).ban(offered.made.id) is None
    yanked(offered)
    with acting_as(offered.folder, PROMOTER):
        yank.lift(offered.store, offered.made.id, by="ann", reason="it does not")
    assert offered.listed == (None, None)


def test_a_late_failure_is_shown_by_the_next_promoter_and_answered_by_one_alone(offered: Offered) -> None:
    bad = record_of(offered.made, verdict="failed", reason="boom", counts=Counts(failed=1))
    kept = records.add(offered.store, data_of(bad), signer=TESTER)  # a tester signs no pages
    assert offered.listed == (None, None)
    offered.finish()
    assert "boom" in str(offered.listed[1])
    answer = records.Answer(
        set_id=offered.made.id, record=kept.digest, who="mallory", reason="never mind", when=now()
    )
    data = encode(answer)
    offered.store.write(keys.set_key(offered.made.id, f"answers/{digest_of(data)}.json"), data)
    offered.append(
        Event(
            kind="answer",
            set_id=answer.set_id,
            who=answer.who,
            when=answer.when,
            why=answer.reason,
            record=answer.record,
        ),
        offered.forged("stand"),
    )
    offered.finish()
    assert "boom" in str(offered.listed[1])
    # Nor is it forgotten where the record is taken away, with all that the ledger's lookup says of it.
    whole = dict(offered.store.objects)
    for key in [key for key in offered.store.objects if kept.digest in key]:
        offered.store.delete(key)
    offered.store.write(keys.ledger_set_key(offered.made.id), encode(History(through=10**6, events=())))
    offered.finish()
    assert "is not in the store any more" in str(offered.listed[1])
    for key in [key for key in whole if kept.digest in key]:
        offered.store.write(key, whole[key])
    with acting_as(offered.folder, TESTER), pytest.raises(UsageError, match="not the promoter's"):
        records.answer(offered.store, offered.made.id, kept.digest, who="bob", reason="the disk was full")
    with acting_as(offered.folder, PROMOTER):
        records.answer(offered.store, offered.made.id, kept.digest, who="bob", reason="the disk was full")
    assert offered.listed == (None, None)


def test_a_rebuilder_signs_no_index_and_the_next_promoter_has_its_pages_say_so(offered: Offered) -> None:
    """One whose key no role has: its verdict is its own, and a promoter's key puts it on the pages."""
    rebuilder, made = signer(71), offered.made
    rebuild = rebuilds.Rebuild(
        set_id=made.id,
        manifest_sha256=made.manifest_sha256,
        wheels=tuple(
            rebuilds.RebuiltWheel(
                file_name=one.file_name, sha256=one.sha256, rebuilt=one.sha256, same_inputs=True
            )
            for one in made.wheels
        ),
        rebuilder="ann",
        finished=now(),
        machine={},
    )
    before = offered.store.read("release/state.json").data
    with acting_as(offered.folder, rebuilder):
        kept, late = rebuilds.keep(offered.store, made, rebuild, rebuilder)
    assert "only a promoter's key signs what users install" in str(late)
    assert offered.store.read("release/state.json").data == before
    assert rebuilds.read(offered.store, made) == ((kept,), ())
    offered.finish()
    said = f"rebuilt identically by ann (key {rebuilder.key_id[:12]})"
    assert Index(offered.store, "release").load().set(made.id).rebuilds == (said,)
    assert said in offered.store.read("release/status.html").data.decode()
    assert link(offered.store, made, "builder").state == "good"


@pytest.mark.parametrize("meanwhile", ["nothing", "no such builder", "no such tester", "a failed test"])
def test_a_promotion_that_died_is_finished_if_the_gate_would_let_it_in_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    """A key was stolen and taken off the root meanwhile, or a test failed: what asked before asks again."""
    offered = Offered(tmp_path)
    later = stage_torch(offered.store, tmp_path, "2.9.1")
    evidence.sign_builder(offered.store, later.id, statement(offered.store, later), BUILDER)
    records.add(offered.store, data_of(record_of(later)), signer=TESTER)
    machines = itertools.count()

    def die(store: MemoryStore) -> None:
        machine = tmp_path / f"machine{next(machines)}"
        shutil.copytree(tmp_path / "writer", machine)
        monkeypatch.setenv("CAIRN_CACHE_DIR", str(machine))
        release(store, tmp_path, later, PROMOTER)

    states = set()
    for _, dead in dying(offered.store, die, remembers=True):
        before = Index(dead, "release").load().pointer
        trusted = anchor.anchor(dead)
        assert trusted is not None
        assert before is not None
        signed = SignedMetadata(dead, trusted).signed("release")
        assert signed is not None
        if (before.generation, signed.number) != (2, 1):
            continue
        if meanwhile == "a failed test":
            records.add(dead, data_of(failed_record(later)))
        elif meanwhile != "nothing":
            role, old = ("builder", BUILDER) if "builder" in meanwhile else ("tester", TESTER)
            changed = root.with_key(trusted.root, role, signer(77).public)
            changed = root.without_key(changed, role, old.key_id)
            root.publish(dead, root.following(changed, OFFLINE[:2]))
        with acting_as(tmp_path, PROMOTER):
            commit.recover(Index(dead, "release"))
            records.publish_late(dead)
        states.add(later.id in read_current(Index(dead, "release")).set_ids)
        assert audit.audit(dead, hashes=True).problems == ()
    assert states == {meanwhile == "nothing"}
