import itertools
import json
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cairn import datafile
from cairn.build import cache
from cairn.build.cache import entry as entries
from cairn.errors import StoreError, WheelError
from cairn.store.folder import LocalStore
from cairn.store.memory import MemoryStore
from cairn.store.protocol import Store
from helpers.faults import Fault, FaultyStore, Plan

from .conftest import MakeWheel

KEY, OTHER = "1" * 64, "2" * 64
Capture = pytest.CaptureFixture[str]
Machine = Callable[..., cache.WheelCache]


def warnings(capsys: Capture) -> list[str]:
    """What was said since the last call, but for the stages."""
    return [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]


@pytest.fixture(params=["memory", "folder"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """The store that machines share."""
    return MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "shared")


@pytest.fixture
def machine(tmp_path: Path, shared: Store) -> Machine:
    """The cache of a machine, by its name, in front of the shared store."""

    def make(name: str, *, store: Store = shared, read_only: bool = False) -> cache.WheelCache:
        return cache.WheelCache(tmp_path / name, shared=store, read_only=read_only)

    return make


def test_a_wheel_is_kept_though_its_log_is_gone(tmp_path: Path, wheel: Path) -> None:
    put = cache.WheelCache(tmp_path / "cache").put(KEY, wheel, seconds=1, log=tmp_path / "logs" / "a.log")
    assert put.entry.log_sha256 is None
    assert cache.WheelCache(tmp_path / "cache").get(KEY) is not None


def test_what_is_larger_than_its_entry_says_is_not_taken(
    machine: Machine, shared: Store, make_wheel: MakeWheel, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "said").write_bytes(b"l" * 5000)
    machine("a").put(KEY, make_wheel(b"w" * 5000), seconds=1, log=tmp_path / "said")
    found = json.loads(shared.read(entries.entry_key(KEY)).data)
    shared.write(entries.entry_key(KEY), json.dumps({**found, "log_size": 4}).encode())
    hit = machine("b").get(KEY)
    assert hit is not None
    assert hit.entry.log_sha256 is None
    shared.write(entries.entry_key(KEY), json.dumps({**found, "size": 4}).encode())
    assert machine("c").get(KEY) is None
    assert "has more than the 4 bytes of its entry" in warnings(capsys)[-1]


def test_what_was_put_is_found_again_with_its_identity(tmp_path: Path, wheel: Path) -> None:
    store = cache.WheelCache(tmp_path / "cache")
    put = store.put(KEY, wheel, seconds=2.5, project="a", inputs={"python": "cp311", "targets": ("gfx942",)})
    assert put.origin == "built"
    assert put.wheel.samefile(wheel), "a link costs no room"
    assert entries.parse(entries.dumps(put.entry), KEY) == put.entry
    assert datafile.to_plain(put.entry)["schema"] == "cairn.cache-entry/2"
    found = store.get(KEY)
    assert found is not None
    assert (found.wheel, found.entry, found.entry.seconds, found.entry.first_key) == (
        put.wheel,
        put.entry,
        2.5,
        KEY,
    )
    assert (found.origin, found.entry) == ("local", put.entry)
    assert found.entry.inputs == {"python": "cp311", "targets": ["gfx942"]}
    alias = store.put(OTHER, put.wheel, seconds=2.5, first_key=put.entry.first_key)
    assert alias.entry.first_key == KEY
    assert alias.wheel == put.wheel  # its bytes are there once
    assert store.get("3" * 64) is None
    assert store.local.look("3" * 64) is None


def test_an_old_entry_has_a_name_that_a_file_may_have_and_no_password(tmp_path: Path, wheel: Path) -> None:
    store = cache.WheelCache(tmp_path / "cache")
    name = os.fsdecode(b"f\xff")
    store.put(KEY, wheel, seconds=1, project="a", inputs={"unseen": {name: "x"}, "url": "https://u:pw@h/x"})
    entry = store.local.look(KEY)
    assert entry is not None
    assert entry.inputs == {"unseen": {"f?": "x"}, "url": "https://***@h/x"}


def test_the_entries_of_a_project_are_listed_the_last_used_first(
    tmp_path: Path, make_wheel: MakeWheel
) -> None:
    store = cache.WheelCache(tmp_path / "cache")
    for number, (project, python) in enumerate([("a", "cp311"), ("a", "cp312"), ("b", "cp311")]):
        wheel, key = make_wheel(b"%d" % number), f"{number}" * 64
        store.put(key, wheel, seconds=1, project=project, inputs={"python": python, "n": number})
        os.utime(tmp_path / "cache" / entries.entry_key(key), (number, number))
    assert [entry.inputs["n"] for entry in store.recent()] == [2, 1, 0]
    assert [entry.inputs["n"] for entry in store.recent("a")] == [1, 0]


@pytest.mark.parametrize("damage", ["changed", "truncated", "missing"])
def test_a_damaged_wheel_is_said_removed_and_put_again(
    tmp_path: Path, wheel: Path, damage: str, capsys: Capture
) -> None:
    store = cache.WheelCache(tmp_path / "cache")
    kept = store.put(KEY, wheel, seconds=1, project="torch").wheel
    if damage == "changed":
        kept.write_bytes(b"WHEEL")  # through the link in the output folder, anyone may
    elif damage == "truncated":
        os.truncate(kept, 2)
    else:
        kept.unlink()
    assert store.get(KEY) is None
    (line,) = warnings(capsys)
    assert "torch" in line
    assert store.local.look(KEY) is None
    wheel.unlink()
    wheel.write_bytes(b"wheel")
    assert store.put(KEY, wheel, seconds=1).wheel.read_bytes() == b"wheel"
    assert store.get(KEY) is not None


UNUSABLE = (
    {"key": OTHER},
    {"file_name": "..-1-py3-none-any.whl"},
    {"file_name": "../../a-1-py3-none-any.whl"},
    {"file_name": "--index-url"},
    {"sha256": "../../../etc/passwd"},
    {"schema": "cairn.cache-entry/9"},
    {"size": "5"},
    None,
)


@pytest.mark.parametrize(
    ("change", "tier"),
    [
        *itertools.product(UNUSABLE, ("local", "shared")),
        ({"identity": OTHER}, "shared"),
    ],  # an alias, if local
)
def test_an_entry_that_cannot_be_used_is_said_and_removed(  # noqa: PLR0917 - fixtures
    machine: Machine, wheel: Path, change: dict[str, object] | None, tier: str, shared: Store, tmp_path: Path,
    capsys: Capture,
) -> None:  # fmt: skip
    for key in (KEY, OTHER):
        machine("one").put(key, wheel, seconds=1)
    store = LocalStore(tmp_path / "one") if tier == "local" else shared
    where = entries.entry_key(KEY)
    plain = json.loads(store.read(where).data)
    store.write(where, b"{" if change is None else json.dumps({**plain, **change}).encode())
    reader = cache.WheelCache(tmp_path / "one") if tier == "local" else machine("two")
    assert reader.get(KEY) is None
    assert len(warnings(capsys)) == 1
    assert not store.exists(where)
    assert reader.get(OTHER) is not None, "the one beside it"
    assert machine("three").put(KEY, wheel, seconds=1).origin == "built"
    assert machine("four").get(KEY) is not None


def test_what_one_machine_built_the_next_one_fetches_with_its_log(
    machine: Machine, wheel: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.write_text("compiled\n")
    machine("one").put(KEY, wheel, seconds=2, project="a", inputs={"x": 1}, log=log)
    two = machine("two")
    looked = two.shared.look(KEY)
    assert looked is not None
    assert not (tmp_path / "two/files").exists()  # no bytes yet
    hit = two.get(KEY)
    assert (hit.origin, hit.wheel.read_bytes(), hit.entry) == ("shared", b"wheel", looked)
    assert two.log(hit.entry).read_text() == "compiled\n"
    assert hit.wheel.is_relative_to(tmp_path / "two")
    # From now on it is this machine's, and the store is not asked.
    assert (
        machine("two", store=FaultyStore(MemoryStore(), Plan(Fault.TIMEOUT, 1, 99))).get(KEY).origin
        == "local"
    )


def test_a_wheel_of_a_shared_folder_is_no_link_into_it(machine: Machine, wheel: Path, tmp_path: Path) -> None:
    shared = LocalStore(tmp_path / "everyones")
    machine("one", store=shared).put(KEY, wheel, seconds=1)
    hit = machine("two", store=shared).get(KEY)
    hit.wheel.write_bytes(b"mine!")
    assert machine("three", store=shared).get(KEY).wheel.read_bytes() == b"wheel"


def test_a_private_key_stays_on_its_machine(machine: Machine, shared: Store, wheel: Path) -> None:
    one = machine("one")
    one.put(KEY, wheel, seconds=1, private=True)
    assert list(shared.list("")) == []
    assert one.get(KEY, private=True) is not None
    assert machine("two").get(KEY, private=True) is None


def test_who_reads_only_puts_nothing_and_removes_nothing(
    machine: Machine, shared: Store, wheel: Path, capsys: Capture
) -> None:
    machine("one").put(KEY, wheel, seconds=1)
    reader = machine("two", read_only=True)
    assert reader.get(KEY) is not None
    reader.put(OTHER, wheel, seconds=1)
    assert not shared.exists(entries.entry_key(OTHER))
    shared.write(entries.entry_key(KEY), b"{")
    assert machine("three", read_only=True).get(KEY) is None
    assert "is not used" in capsys.readouterr().err
    assert shared.exists(entries.entry_key(KEY))


@pytest.mark.parametrize("what", ["other bytes", "truncated", "missing", "refused"])
def test_a_poisoned_wheel_of_the_store_is_not_used_and_is_put_again(
    machine: Machine, shared: Store, wheel: Path, what: str, capsys: Capture
) -> None:
    hit = machine("one").put(KEY, wheel, seconds=1, project="torch")
    where = hit.entry.wheel_key()
    if what == "other bytes":
        shared.write(where, b"WHEEL")
    elif what == "truncated":
        shared.write(where, b"wh")
    elif what == "missing":
        shared.delete(where)

    def check(path: Path) -> None:
        assert path.name == wheel.name
        if what == "refused":
            raise WheelError("it has code for gfx1100")

    two = machine("two")
    assert two.get(KEY, check=check) is None
    (line,) = warnings(capsys)
    assert "torch" in line
    assert list(two.recent()) == []  # nothing of it is kept
    assert not shared.exists(entries.entry_key(KEY))
    two.put(KEY, wheel, seconds=1)
    assert machine("three").get(KEY).wheel.read_bytes() == b"wheel"


def test_of_two_machines_the_first_to_end_counts_and_the_second_uses_its_wheel(
    machine: Machine, make_wheel: MakeWheel
) -> None:
    first, second = make_wheel(b"first"), make_wheel(b"second")
    machine("one").put(KEY, first, seconds=1)
    two = machine("two")
    hit = two.put(KEY, second, seconds=1)
    assert (hit.origin, hit.wheel.read_bytes()) == ("shared", b"first")
    assert two.get(KEY).wheel.read_bytes() == b"first"
    # Who builds everything anew gets what was built anew; others keep what they have.
    assert two.put(KEY, second, seconds=1, replace=True).wheel.read_bytes() == b"second"
    assert two.get(KEY).wheel.read_bytes() == b"second"
    assert machine("three").get(KEY).wheel.read_bytes() == b"first"


def _put(root: Path, shared: Path, folder: Path, number: int, barrier: Any, results: Any) -> None:
    wheel = folder / str(number) / "a-1-py3-none-any.whl"
    wheel.parent.mkdir(parents=True)
    wheel.write_bytes(os.urandom(200_000))
    store = cache.WheelCache(root / str(number % 2), shared=LocalStore(shared))
    barrier.wait()
    for key in (KEY, OTHER):
        hit = store.put(key, wheel, seconds=1)
        results.put((key, hit.entry.sha256, hit.wheel.read_bytes() == store.get(key).wheel.read_bytes()))  # type: ignore[union-attr]


@pytest.mark.slow
def test_of_many_processes_that_build_one_key_one_counts_for_all(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(4), context.Queue()
    arguments = [
        (tmp_path / "roots", tmp_path / "shared", tmp_path / "built", n, barrier, results) for n in range(4)
    ]
    processes = [context.Process(target=_put, args=each) for each in arguments]
    for process in processes:
        process.start()
    found = [results.get(timeout=60) for _ in range(8)]
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    for key in (KEY, OTHER):
        assert len({sha256 for where, sha256, _ in found if where == key}) == 1
    assert all(same for _, _, same in found)


def new_store(kind: str, folder: Path) -> Store:
    return MemoryStore() if kind == "memory" else LocalStore(folder)


def _requests(work: Callable[[Store], object], fresh: Callable[[], Store]) -> int:
    plan = Plan()
    work(FaultyStore(fresh(), plan))
    return len(plan.requests)


@pytest.mark.parametrize("kind", ["memory", "folder"])
@pytest.mark.parametrize("fault", list(Fault))
def test_a_fault_at_any_request_of_a_put_costs_no_build(
    tmp_path: Path, wheel: Path, fault: Fault, kind: str, capsys: Capture
) -> None:
    def put(store: Store, root: str) -> None:
        built = cache.WheelCache(tmp_path / root, shared=store).put(KEY, wheel, seconds=1, log=wheel)
        assert built.wheel.read_bytes() == b"wheel"

    count = _requests(lambda store: put(store, "count"), MemoryStore)
    assert count >= 3
    for at in range(1, count + 1):
        inner = new_store(kind, tmp_path / f"shared-{at}")
        plan = Plan(fault, at)
        put(FaultyStore(inner, plan), f"{fault.name}-{at}")
        assert plan.happened == 1
        said = warnings(capsys)
        # The next machine finds all of it or nothing; and where it is nothing, that was said.
        found = cache.WheelCache(tmp_path / f"{fault.name}-{at}-next", shared=inner).get(KEY)
        assert (found is not None and found.wheel.read_bytes() == b"wheel") or len(said) == 1
        assert len(said) <= 1
        # And whoever puts the same again gets it there.
        put(inner, f"{fault.name}-{at}-again")
        assert cache.WheelCache(tmp_path / f"{fault.name}-{at}-last", shared=inner).get(KEY) is not None
        capsys.readouterr()


@pytest.mark.parametrize("kind", ["memory", "folder"])
@pytest.mark.parametrize("fault", list(Fault))
def test_a_fault_at_any_request_of_a_get_is_a_build_at_most(
    tmp_path: Path, wheel: Path, fault: Fault, kind: str, capsys: Capture
) -> None:
    inner = new_store(kind, tmp_path / "shared")
    cache.WheelCache(tmp_path / "one", shared=inner).put(KEY, wheel, seconds=1, log=wheel)
    count = _requests(
        lambda store: cache.WheelCache(tmp_path / "count", shared=store).get(KEY), lambda: inner
    )
    assert count >= 3
    for at in range(1, count + 1):
        reader = cache.WheelCache(tmp_path / f"{fault.name}-{at}", shared=FaultyStore(inner, Plan(fault, at)))
        hit = reader.get(KEY)
        said = warnings(capsys)
        assert hit is None or hit.wheel.read_bytes() == b"wheel"
        assert len(said) <= 1
        assert hit is not None or said
        assert cache.WheelCache(tmp_path / f"{fault.name}-{at}-next", shared=inner).get(KEY) is not None
        capsys.readouterr()


def test_a_store_out_of_reach_is_one_warning_and_is_not_asked_again(
    tmp_path: Path, wheel: Path, capsys: Capture
) -> None:
    plan = Plan(Fault.TIMEOUT, 1, 99)
    store = cache.WheelCache(tmp_path / "one", shared=FaultyStore(MemoryStore(), plan))
    assert store.get(KEY) is None
    assert store.local.look(OTHER) is None
    hit = store.put(KEY, wheel, seconds=1)
    assert hit.wheel.read_bytes() == b"wheel"
    assert len(plan.requests) == 1
    (line,) = warnings(capsys)
    assert "the build goes on without it" in line


def test_who_may_not_write_reads_on(tmp_path: Path, make_wheel: MakeWheel, capsys: Capture) -> None:
    class Denied(FaultyStore):
        def put_file(self, *_: object, **__: object) -> bool:
            raise StoreError("access is denied")

    inner = MemoryStore()
    cache.WheelCache(tmp_path / "one", shared=inner).put(KEY, make_wheel(), seconds=1)
    two = cache.WheelCache(tmp_path / "two", shared=Denied(inner, Plan()))
    two.put(OTHER, make_wheel(b"two"), seconds=1)
    two.put("3" * 64, make_wheel(b"three"), seconds=1)
    assert two.get(KEY) is not None
    (line,) = warnings(capsys)
    assert "nothing is put there" in line
    assert "denied" in line


def test_the_key_depends_on_every_input_and_not_on_their_order() -> None:
    assert cache.key_of({"a": 1, "b": 2}) == cache.key_of({"b": 2, "a": 1})
    assert cache.key_of({"a": 1}) != cache.key_of({"a": 2}) != cache.key_of({"a": "2"})
