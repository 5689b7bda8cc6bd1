"""Each command that changes an index, with a fault at each of its requests, and dead from each of them on.

Of requests that are alike there is a sample, and all are tried with CAIRN_TEST_ALL.

Afterwards an installer finds whole sets, `recover` leaves a store that the audit finds nothing wrong with,
every generation is true, and the same command again does what it was to do.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cairn.errors import CairnError
from cairn.release.audit.audit import audit
from cairn.release.gc import collect
from cairn.release.history.retain import Rule, retain
from cairn.release.history.rollback import rollback
from cairn.release.history.yank import yank
from cairn.release.index import generation, marks
from cairn.release.index.commit import recover
from cairn.release.index.snapshot import Index, existing
from cairn.release.pages import chooser, landing, status
from cairn.release.publish import stage
from cairn.release.publish.files import publish
from cairn.release.publish.resolve import Closure, closure
from cairn.store.folder import LocalStore
from cairn.store.memory import MemoryStore
from cairn.store.protocol import Store
from cairn.wheels.wheelset import WheelSet
from helpers.faults import EVERY_MOMENT, Fault, FaultyStore, Plan, alike
from helpers.nights import NEEDS, everything_is_a_year_old, stage_night, stage_nights
from helpers.release import keys_of, make_wheel, move

pytestmark = pytest.mark.slow

# What may happen to a write. On the line there is more, and `test_faults` of the stores tries what our client
# makes of it; to what is above that, each is one of these. Only a conditional write can be told that someone
# was first.
OF_WRITES = (Fault.LOST, Fault.FAILED)
OF_CONDITIONAL_WRITES = (Fault.LOST, Fault.LOST_AND_REPEATED, Fault.REFUSED, Fault.FAILED)
WRITES = ("write", "write_if", "put_file", "delete", "renew", "discard")
FOR_GOOD = 1_000_000  # requests that break once a process is dead


Sets = dict[str, WheelSet]
Run = Callable[[Store], bool | None]
"""A command; it gives whether it says that it has changed anything, or None where it says nothing."""


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> tuple[MemoryStore, Sets]:
    store, sets = stage_nights(tmp_path_factory.mktemp("nights"))
    for version in ("2.8.0", "2.9.0"):
        move(store, sets[version])
    return store, sets


@pytest.fixture(autouse=True)
def audits_without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are hundreds of audits, of a store that answers at once."""
    for module in ("audit.audit", "audit.chains", "audit.offered", "audit.sets", "gc", "ledger"):
        monkeypatch.setattr(f"cairn.release.{module}._AT_ONCE", 1)


class Clock(datetime):
    """A clock that goes on by a millisecond whenever it is asked, from one time in each run of a command.

    What a run writes is then, up to its fault, what the run before it has written.
    """

    begin = datetime.now(UTC)
    asked = 0

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Clock:
        cls.asked += 1
        return cls.fromtimestamp(cls.begin.timestamp() + cls.asked / 1000, tz)


@pytest.fixture(autouse=True)
def clock_of_generations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Clock, "begin", datetime.now(UTC))
    monkeypatch.setattr(generation, "datetime", Clock)


@pytest.fixture(autouse=True)
def pages_are_rendered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a page says follows from the indexes alone: an audit gets what was rendered for the store."""
    for module in (landing, chooser, status):
        monkeypatch.setattr(module, "page", once(module.page))


def once(page: Callable[..., bytes]) -> Callable[..., bytes]:
    known: dict[bytes, bytes] = {}

    def remembered(*views: object, **folder: str) -> bytes:
        name = msgspec.msgpack.encode((views, folder))
        if name not in known:
            known[name] = page(*views, **folder)
        return known[name]

    return remembered


@pytest.fixture
def quick_closure(monkeypatch: pytest.MonkeyPatch) -> None:
    """uv is asked once what a set needs: the index that it is asked about is always the same."""
    known: dict[tuple[str, ...], Closure] = {}

    def remembered(snapshot: object, **asked: object) -> Closure:
        name = tuple(root.path.name for root in asked["roots"])  # type: ignore[attr-defined]
        if name not in known:
            known[name] = closure(snapshot, **asked)  # type: ignore[arg-type]
        return known[name]

    monkeypatch.setattr(stage, "closure", remembered)


def publishing(_store: MemoryStore, _sets: Sets, folder: Path) -> Run:
    wheels = [
        make_wheel(folder, "tool", "1.0", requires=["helper==1.0"]),
        make_wheel(folder, "helper", "1.0"),
    ]
    return lambda store: bool(publish(store, "staging", wheels).added)


def staging(_store: MemoryStore, _sets: Sets, folder: Path) -> Run:
    def run(store: Store) -> None:
        stage_night(store, folder, "2.11.0")

    return run


def promoting(_store: MemoryStore, sets: Sets, _folder: Path) -> Run:
    return lambda store: bool(move(store, sets["2.10.0"]))


def rolling_back(_store: MemoryStore, _sets: Sets, _folder: Path) -> Run:
    return lambda store: rollback(store, "release", "1").changed


def rolling_back_and_forth(before: MemoryStore, sets: Sets, _folder: Path) -> Run:
    """Something goes and something comes back, by two generations."""
    rollback(before, "release", "0")
    move(before, sets["2.10.0"])
    return lambda store: rollback(store, "release", "1").changed


def yanking(_store: MemoryStore, sets: Sets, _folder: Path) -> Run:
    return lambda store: yank(store, sets["2.8.0"].id, reason="wrong").changed


def retaining(_store: MemoryStore, _sets: Sets, _folder: Path) -> Run:
    return lambda store: retain(store, "release", Rule(last=1)).changed


def collecting(before: MemoryStore, _sets: Sets, _folder: Path) -> Run:
    """Empty pages go, and a file that nothing names."""
    rollback(before, "release", "0")
    old = f"files/ab/{'ab' * 32}/old-1.0-py3-none-any.whl"
    before.write(old, b"")
    for key in (old, *keys_of(before, "release/simple/")):
        before.modified[key] -= timedelta(days=99)
    return lambda store: bool(collect(store, older_than=timedelta(days=30)).keys)


def recovering(before: MemoryStore, sets: Sets, _folder: Path) -> Run:
    """A promotion has died after it counted, before its pages."""
    counted = FaultyStore(MemoryStore(before.objects), Plan())
    move(counted, sets["2.10.0"])
    pointed = counted.plan.requests.index(("write_if", "release/state.json"))
    with contextlib.suppress(CairnError):
        move(FaultyStore(before, Plan(Fault.FAILED, pointed + 2, FOR_GOOD)), sets["2.10.0"])
    return lambda store: bool(recover(Index(store, "release")))


COMMANDS = {
    "publish": publishing,
    "stage": staging,
    "promote": promoting,
    "roll back": rolling_back,
    "roll back and forth": rolling_back_and_forth,
    "yank": yanking,
    "retain": retaining,
    "collect": collecting,
    "recover": recovering,
}


def plans(requests: list[tuple[str, str]], *, reads: bool) -> Iterator[Plan]:
    """A death at each write, and every request that may break, in every way that it may.

    In the sample, a write that counts breaks in every way. The others take the ways in turn, one each, and of
    reads that are alike the first has one.
    """
    read, turns = set(), itertools.count()
    for at, (kind, key) in enumerate(requests, start=1):
        if kind in WRITES:
            faults = OF_CONDITIONAL_WRITES if kind == "write_if" else OF_WRITES
            ways = [*(Plan(fault, at) for fault in faults), Plan(Fault.FAILED, at, FOR_GOOD)]
            if EVERY_MOMENT or counts(key):
                yield from ways
            else:
                yield ways[next(turns) % len(ways)]
        elif reads and (EVERY_MOMENT or alike(kind, key) not in read):
            read.add(alike(kind, key))
            yield Plan(Fault.FAILED, at)


def counts(key: str) -> bool:
    """Whether a write makes a generation, or says which is current: what is before it must be there."""
    return "/generations/" in key or key.endswith("/state.json")


def deaths(requests: list[tuple[str, str]], *, of_two: int = 0) -> Iterator[int]:
    """The writes before which a writer dies or is met.

    In the sample, those that count, and every second of the others (from `of_two`). Of writes that are
    alike, the first and the last stand for all.
    """
    writes = [(at, alike(kind, key)) for at, (kind, key) in enumerate(requests, start=1) if kind in WRITES]
    first = {name: at for at, name in reversed(writes)}
    last = {name: at for at, name in writes}
    turns = itertools.count(of_two)
    for at, name in writes:
        if (
            EVERY_MOMENT
            or counts(requests[at - 1][1])
            or (at in (first[name], last[name]) and next(turns) % 2 == 0)
        ):
            yield at


def offers(store: Store) -> dict[str, Any]:
    """What the indexes offer, whenever they came to."""
    found: dict[str, Any] = {}
    for name in existing(store):
        now = Index(store, name).load()
        for project in now.projects():
            found[f"{name} {project.name}"] = [(f.ref, f.yanked, f.sets) for f in project.files]
        found[name] = {one.set_id: one.yanked for one in now.sets()}
    return found


def of(offered: dict[str, Any], index: str) -> dict[str, Any]:
    """What one index offers."""
    return {key: found for key, found in offered.items() if key.split()[0] == index}


def mixed(store: Store) -> list[str]:
    """The torches on the pages of the release that lack what they need there."""
    found = []
    for kind in ("json", "html"):
        page = {n: text_of(store, f"release/simple/{n}/index.{kind}") for n in ("torch", "triton", "numpy")}
        for version, (triton, numpy) in NEEDS.items():
            if f"torch-{version}-py3" in page["torch"] and not (
                f"triton-{triton}-py3" in page["triton"] and f"numpy-{numpy}-py3" in page["numpy"]
            ):
                found.append(f"torch {version} in {kind}")
    return found


def text_of(store: Store, key: str) -> str:
    return store.read(key).data.decode() if store.exists(key) else ""


@pytest.mark.usefixtures("quick_closure")
@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_is_lost_or_mixed_whatever_happens_to_a_request(
    staged: tuple[MemoryStore, Sets], tmp_path: Path, name: str
) -> None:
    before = MemoryStore(staged[0].objects)
    run = COMMANDS[name](before, staged[1], tmp_path)

    def fresh() -> MemoryStore:
        store = MemoryStore(before.objects)
        store.modified = dict(before.modified)
        return store

    # Of reads, those of the commands that pass the most requests stand for all.
    check(run, fresh, lambda requests: plans(requests, reads=name in ("publish", "promote", "roll back")))


@pytest.mark.parametrize(
    "name",
    # Publishing makes every kind of write that the others make.
    ["publish", *(pytest.param(name, marks=pytest.mark.by_hand) for name in ("promote", "roll back"))],
)
def test_nothing_is_lost_or_mixed_in_a_folder(
    staged: tuple[MemoryStore, Sets], tmp_path: Path, name: str
) -> None:
    before = MemoryStore(staged[0].objects)
    run = COMMANDS[name](before, staged[1], tmp_path / "wheels")
    first = LocalStore(tmp_path / "first")
    for key, data in before.objects.items():
        first.write(key, data)

    def fresh() -> LocalStore:
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        # By links: the store puts files in place of others, and writes into none.
        return LocalStore(shutil.copytree(first.path, tmp_path / "copy", copy_function=os.link))

    def plans_of_folder(requests: list[tuple[str, str]]) -> Iterator[Plan]:
        """No request comes any more, or a reply is lost; the rest is the same to what is below a fault."""
        for at in deaths(requests):
            if EVERY_MOMENT or counts(requests[at - 1][1]):
                yield Plan(Fault.LOST, at)
            yield Plan(Fault.FAILED, at, FOR_GOOD)

    check(run, fresh, plans_of_folder)


def check(
    run: Run, fresh: Callable[[], Store], plans_for: Callable[[list[tuple[str, str]]], Iterator[Plan]]
) -> None:
    counted, Clock.asked = FaultyStore(fresh(), Plan()), 0
    before = offers(counted.inner)
    run(counted)
    expected = offers(counted.inner)
    tried = 0
    for plan in plans_for(counted.plan.requests):
        what = f"{plan.fault} at {plan.at} x {plan.times}: {counted.plan.requests[plan.at - 1]}"
        store, Clock.asked = FaultyStore(fresh(), plan), 0
        with contextlib.suppress(CairnError):
            said = run(store)
            assert said in (True, None), f"{what}: it says that there was nothing to do"
            assert offers(store.inner) == expected, what
        assert mixed(store.inner) == [], what
        half = offers(store.inner)
        # What takes two generations may have made the first, in which all that is to be there is.
        # A yank goes from index to index, each of which is as it was or as it is to be.
        whole = all(
            of(half, name) in (of(before, name), of(expected, name)) for name in existing(store.inner)
        )
        assert whole or expected["release"].items() <= half["release"].items(), what
        for index in existing(store.inner):
            recover(Index(store.inner, index))
        marks.finish_interrupted(store.inner)
        assert audit(store.inner).problems == (), what
        run(store.inner)
        assert offers(store.inner) == expected, what
        tried += plan.happened > 0
    assert tried > 8  # of the sample; a collector of this store writes nine times


BESIDE_GC = ("publish", "stage", "promote", "roll back", "yank", "retain")
MONTH = timedelta(days=30)


def old_copy(before: MemoryStore) -> MemoryStore:
    """The same, nothing of which was touched for a year."""
    store = MemoryStore(before.objects)
    store.modified = dict(before.modified)
    everything_is_a_year_old(store)
    return store


def in_order(store: Store, what: str) -> None:
    assert mixed(store) == [], what
    for index in existing(store):
        recover(Index(store, index))
    assert audit(store, hashes=True).problems == (), what


@pytest.mark.usefixtures("quick_closure")
@pytest.mark.parametrize("name", BESIDE_GC)
def test_a_collector_that_dies_where_a_writer_has_died_leaves_a_store_in_order(
    staged: tuple[MemoryStore, Sets], tmp_path: Path, name: str
) -> None:
    """Years after the writer: what it has left is as old as all else."""
    before = MemoryStore(staged[0].objects)
    run = COMMANDS[name](before, staged[1], tmp_path)
    counted = FaultyStore(old_copy(before), Plan())
    run(counted)
    tried = 0
    for at in deaths(counted.plan.requests):
        kind, key = counted.plan.requests[at - 1]
        left, Clock.asked = old_copy(before), 0
        with contextlib.suppress(CairnError):
            run(FaultyStore(left, Plan(Fault.FAILED, at, FOR_GOOD)))
        left = old_copy(left)
        copy = MemoryStore(left.objects)
        copy.modified = dict(left.modified)
        collecting = FaultyStore(copy, Plan())
        collect(collecting, older_than=MONTH)
        writes = [n for n, (one, _) in enumerate(collecting.plan.requests, start=1) if one in WRITES]
        # Which of its requests it dies at goes round, one further for each death of the writer.
        dies = writes[tried % len(writes)] if writes else 1
        what = f"dead at {at}: {kind} {key}; the collector at {dies}"
        with contextlib.suppress(CairnError):
            collect(FaultyStore(left, Plan(Fault.FAILED, dies, FOR_GOOD)), older_than=MONTH)
        assert mixed(left) == [], what
        collect(left, older_than=MONTH)
        in_order(left, what)
        move(left, staged[1]["2.10.0"])
        in_order(left, f"{what}; promoted")
        tried += 1
    assert tried > 5


@pytest.mark.usefixtures("quick_closure")
@pytest.mark.parametrize("name", BESIDE_GC)
def test_a_collector_between_any_two_requests_of_a_writer_takes_nothing_it_needs(
    staged: tuple[MemoryStore, Sets], tmp_path: Path, name: str
) -> None:
    before = MemoryStore(staged[0].objects)
    run = COMMANDS[name](before, staged[1], tmp_path)
    if name == "roll back":  # what it goes back to must still be there
        move(before, staged[1]["2.10.0"])
    counted = FaultyStore(old_copy(before), Plan())
    run(counted)
    expected = offers(counted.inner)

    class Beside(Plan):
        def next(self, kind: str, key: str) -> Fault | None:
            fault = super().next(kind, key)
            if len(self.requests) == self.at:
                collect(store, older_than=MONTH)
            return fault

    for at in deaths(counted.plan.requests, of_two=1):
        kind, key = counted.plan.requests[at - 1]
        store, Clock.asked = old_copy(before), 0
        with contextlib.suppress(CairnError):
            run(FaultyStore(store, Beside(at=at)))
            assert offers(store) == expected, f"{at}: {kind} {key}"
        in_order(store, f"{at}: {kind} {key}")
