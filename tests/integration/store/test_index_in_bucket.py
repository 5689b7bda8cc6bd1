"""An index in a bucket: breaking lines, killed writers and several at once leave it true."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cairn.cli.main import main
from cairn.errors import StoreError
from cairn.release.history.rollback import rollback
from cairn.release.index.snapshot import Index
from cairn.release.publish.files import publish
from cairn.store.buckets.bucket import BucketStore
from cairn.store.buckets.client import Bucket
from cairn.store.memory import MemoryStore
from cairn.store.protocol import Store
from cairn.wheels.wheelset import WheelSet
from helpers.buckets import Server
from helpers.faults import Fault, Plan
from helpers.faulty_server import FaultyServer
from helpers.release import audit, contents, make_set, make_wheel, move, stage_set

Act = Callable[[Store], object]
WHAT = ("publish", "stage", "promote", "rollback")
FAULTS = (Fault.LOST, Fault.REFUSED, Fault.CONFLICT, Fault.FAILED, Fault.BUSY, Fault.TRUNCATED)
STEP = int(os.environ.get("CAIRN_TEST_EVERY", "37"))
"""Every how many-th request breaks; 1, and all in each way, takes an hour."""
# Those that decide whether a change is made or not break in each, the others in one.
CASES = [
    (what, fault)
    for what in WHAT
    for fault in FAULTS
    if STEP == 1 or what == "publish" or fault in FAULTS[:2]
]


@dataclass(frozen=True)
class Places:
    """New places in a bucket, as they are and as they are seen over a line that breaks as planned."""

    direct: Bucket
    over_line: Bucket
    line: FaultyServer
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def new(self) -> tuple[BucketStore, BucketStore]:
        prefix = f"{next(self.numbers)}/"
        return (
            BucketStore(dataclasses.replace(self.direct, prefix=prefix)),
            BucketStore(dataclasses.replace(self.over_line, prefix=prefix)),
        )


@pytest.fixture
def places(s3_server: Server, bucket: Bucket, connection: Bucket, line: FaultyServer) -> Places:
    name = s3_server.new_bucket()
    return Places(dataclasses.replace(bucket, name=name), dataclasses.replace(connection, name=name), line)


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """Two versions of two wheels that need each other, by version."""
    folder = tmp_path_factory.mktemp("wheels")
    return {
        version: [
            make_wheel(folder / version, "triton", version),
            make_wheel(folder / version, "torch", version, requires=[f"triton=={version}"]),
        ]
        for version in ("2.8.0", "2.9.0")
    }


def staged(store: Store, wheels: list[Path]) -> WheelSet:
    return stage_set(store, "staging", make_set(wheels), wheels)


def versions(store: Store, index: str) -> set[tuple[str, str]]:
    return {
        (project.name, file.version)
        for project in Index(store, index).load().projects()
        for file in project.files
    }


BOTH = {(name, version) for name in ("torch", "triton") for version in ("2.8.0", "2.9.0")}
OLD = {pair for pair in BOTH if pair[1] == "2.8.0"}


def copied(store: Store) -> MemoryStore:
    """What is in a store by now, where it can be looked at without a request for each look."""
    copy = MemoryStore()
    for key, data in contents(store).items():
        copy.write(key, data)
    return copy


def generations(store: Store, index: str) -> list[int]:
    """The numbers of the chain, newest first, each generation read and its digest checked."""
    there = Index(store, index)
    return [found.number for _, found in there.chain(there.load())]


@pytest.fixture(scope="session")
def begun(wheels: dict[str, list[Path]]) -> dict[str, tuple[dict[str, bytes], Act]]:
    """What is in a store just before something is done to it, and what is to be done."""
    store = MemoryStore()
    first = staged(store, wheels["2.8.0"])
    before = {what: contents(store) for what in ("publish", "stage")}
    move(store, first)
    second = staged(store, wheels["2.9.0"])
    before["promote"] = contents(store)
    move(store, second)
    before["rollback"] = contents(store)
    acts: dict[str, Act] = {
        "publish": lambda there: publish(there, "staging", wheels["2.9.0"]),
        "stage": lambda there: staged(there, wheels["2.9.0"]),
        "promote": lambda there: move(there, second),
        "rollback": lambda there: rollback(there, "release", "1"),
    }
    return {what: (before[what], act) for what, act in acts.items()}


@pytest.mark.slow
@pytest.mark.parametrize(("what", "fault"), CASES, ids=lambda value: getattr(value, "name", value))
def test_a_line_that_breaks_anywhere_changes_nothing(
    places: Places, begun: dict[str, tuple[dict[str, bytes], Act]], what: str, fault: Fault
) -> None:
    line, (objects, act) = places.line, begun[what]
    index = "staging" if what in ("publish", "stage") else "release"
    expected = OLD if what == "rollback" else BOTH
    begin = MemoryStore()
    for key, data in objects.items():
        begin.write(key, data)
    before = generations(begin, index)
    for at in itertools.count(1 + FAULTS.index(fault) % STEP, STEP):
        inner, broken = places.new()
        for key, data in objects.items():
            inner.write(key, data)
        line.plan = Plan(fault, at)
        try:
            act(broken)
        except StoreError:
            assert fault is Fault.REFUSED  # someone is first, and then there is nobody: that may be said
            act(inner)
        after = copied(inner)
        assert versions(after, index) == expected
        assert generations(after, index) == [len(before) + 1, *before]
        assert audit(after, index, hashes=True) == ()
        if not line.plan.happened:
            break


@pytest.mark.slow
def test_a_writer_that_is_killed_at_any_request_leaves_what_the_next_one_finishes(
    places: Places, wheels: dict[str, list[Path]]
) -> None:
    line = places.line
    outcomes = Counter[bool]()
    for at in itertools.count(1, 5):
        inner, _ = places.new()
        publish(inner, "staging", wheels["2.8.0"])
        line.plan = Plan()
        command = [sys.executable, "-m", "cairn", "index", "publish", *map(str, wheels["2.9.0"])]
        place = ["--store", inner.url, "--endpoint-url", line.endpoint, "--quiet"]
        with subprocess.Popen([*command, *place]) as process:
            line.before = functools.partial(_at, at, process.kill)
            process.wait()
        line.before = lambda _number: None
        # Before it is finished, it is either there or not: whoever installs finds one or the other.
        found = versions(copied(inner), "staging")
        assert found in (OLD, BOTH)
        outcomes[found == BOTH] += 1
        publish(inner, "staging", wheels["2.9.0"])
        after = copied(inner)
        assert versions(after, "staging") == BOTH
        assert generations(after, "staging") == [2, 1]
        assert audit(after, "staging", hashes=True) == ()
        if process.returncode == 0:
            break
    assert min(outcomes[True], outcomes[False]) >= 2


def _at(at: int, kill: Callable[[], None], number: int) -> None:
    if number == at:
        kill()


_PROMOTE = """
import sys
from cairn.release.index.snapshot import read_set
from cairn.store.opening import open_store
from helpers.release import move
store = open_store(sys.argv[1])
for set_id in sys.argv[2:]:
    move(store, read_set(store, set_id))
"""


@pytest.mark.slow
def test_several_processes_write_one_bucket_at_once(store: BucketStore, tmp_path: Path) -> None:
    def made(version: str) -> list[Path]:
        return [
            make_wheel(tmp_path / version, "triton", version),
            make_wheel(tmp_path / version, "torch", version, requires=[f"triton=={version}"]),
        ]

    sets = [staged(store, made(f"2.{n}.0")) for n in range(7)]
    move(store, sets[0])
    shares = [sets[1:3], sets[3:5], sets[5:7]]
    helpers = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    cairn = [sys.executable, "-m", "cairn"]
    publish_more = [[str(p) for n in range(3) for p in made(f"{major}.{n}.0")] for major in (3, 4)]
    commands = [
        *([sys.executable, "-c", _PROMOTE, store.url, *(made.id for made in share)] for share in shares),
        *([*cairn, "index", "publish", *files, "--store", store.url, "--quiet"] for files in publish_more),
        [*cairn, "release", "rollback", "--to", "1", "--store", store.url, "--quiet"],
    ]
    children = [subprocess.Popen(command, env=helpers) for command in commands]
    assert [child.wait(timeout=300) for child in children] == [0] * len(commands)
    for index in ("staging", "release"):
        assert audit(store, index, hashes=True) == ()
        numbers = generations(store, index)
        assert numbers == list(range(len(numbers), 0, -1))
    # One each, unless the rollback found nothing to do: it may have been the first.
    assert len(generations(store, "release")) in (1 + 6, 1 + 6 + 1)
    published = {
        (name, f"{major}.{n}.0") for name in ("torch", "triton") for major in (3, 4) for n in range(3)
    }
    assert published <= versions(store, "staging")
    # Whatever the rollback came between: of each version, both projects are there or neither is.
    found = versions(store, "release")
    assert {v for name, v in found if name == "torch"} == {v for name, v in found if name == "triton"}


def test_the_commands_work_on_a_bucket(
    store: BucketStore, line: FaultyServer, wheels: dict[str, list[Path]], capsys: pytest.CaptureFixture[str]
) -> None:
    place = ["--store", f"{store.url}/below/it", "--endpoint-url", line.endpoint]
    line.plan = Plan()
    assert main(["index", "publish", *map(str, wheels["2.8.0"]), *place]) == 0
    first = Counter(kind for kind, _ in line.plan.requests)
    line.plan = Plan()
    assert main(["index", "publish", *map(str, wheels["2.9.0"]), *place]) == 0
    second = Counter(kind for kind, _ in line.plan.requests)
    with capsys.disabled():
        sys.stdout.write(f"requests of a publish of two wheels: first {dict(first)}, then {dict(second)}\n")
    # Files and metadata, parts and generation, pointer, pages; of the ledger an entry, two names, the head.
    assert second["PUT"] <= 4 + 3 + 2 + 4 + 3 + 4
    line.plan = Plan()
    assert main(["index", "publish", *map(str, wheels["2.9.0"]), *place]) == 0
    again = Counter(kind for kind, _ in line.plan.requests)
    assert again["PUT"] <= 2  # of two metadata files, which say that they are there
    assert main(["index", "check", "--index", "staging", *place]) == 0
    assert main(["release", "log", "--index", "staging", *place]) == 0
    assert "publish" in capsys.readouterr().out


def test_what_no_key_can_name_stops_what_must_find_all_by_its_name(
    store: BucketStore, s3_server: Server, wheels: dict[str, list[Path]], capsys: pytest.CaptureFixture[str]
) -> None:
    place = ["--store", f"{store.url}/below/it", "--endpoint-url", s3_server.endpoint]
    assert main(["index", "publish", *map(str, wheels["2.8.0"]), *place]) == 0
    foreign = "below/it/files//x"
    s3_server.client.put_object(Bucket=store.bucket.name, Key=foreign, Body=b"1")
    assert main(["index", "publish", *map(str, wheels["2.9.0"]), *place]) == 0
    capsys.readouterr()
    for command in ("gc", "check"):
        assert main(["index", command, *place]) != 0
        assert "files//x" in "".join(capsys.readouterr())
    s3_server.client.delete_object(Bucket=store.bucket.name, Key=foreign)
    assert main(["index", "check", "--index", "staging", *place]) == 0
