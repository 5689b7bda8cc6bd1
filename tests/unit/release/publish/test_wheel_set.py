"""A set is staged whole, from its own files, and promoted without moving one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cairn.cli.main import main
from cairn.errors import StoreError
from cairn.release.index import keys
from cairn.release.index.commit import recover
from cairn.release.index.snapshot import Index, read_set
from cairn.release.publish.files import publish
from cairn.store.folder import LocalStore
from cairn.store.memory import MemoryStore
from cairn.store.protocol import Store
from cairn.wheels.wheelset import WheelSet
from helpers.gate import write_stack
from helpers.moments import dying
from helpers.release import audit, contents, fill, keys_of, make_set, make_wheel, make_wheels, move, stage_set

Stage = Callable[..., WheelSet]


def stage_three(store: Store, folder: Path, version: str, *, with_numpy: bool = True) -> WheelSet:
    """Stage torch, triton and torchvision of one version, each pinning the next, and numpy beside them."""
    needs = {
        f"triton {version}": [],
        f"torch {version}": [f"triton=={version}", "numpy"],
        f"torchvision {version}": [f"torch=={version}"],
    }
    wheels = make_wheels(folder / f"dist-{version}", needs)
    if with_numpy:
        publish(store, "staging", [make_wheel(folder, "numpy", "2.0")])
    return stage_set(store, "staging", make_set(wheels), wheels)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return lambda store, version, **more: stage_three(store, tmp_path, version, **more)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[MemoryStore, WheelSet]:
    store = MemoryStore()
    return store, stage_three(store, tmp_path_factory.mktemp("built"), "2.9.0")


def versions(store: Store, where: str) -> list[str]:
    plain: list[str] = json.loads(store.read(f"{where}/index.json").data)["versions"]
    return plain


@pytest.fixture
def staged(store: MemoryStore, built: tuple[MemoryStore, WheelSet]) -> WheelSet:
    """The set of 2.9.0, in staging."""
    fill(store, built[0])
    return built[1]


def test_the_index_of_a_set_holds_the_set_and_what_it_needs_alone(
    store: MemoryStore, stage: Stage, staged: WheelSet
) -> None:
    new = stage(store, "2.10.0")
    assert versions(store, "staging/simple/torch") == ["2.9.0", "2.10.0"]
    for made, version in ((staged, "2.9.0"), (new, "2.10.0")):
        root = f"sets/{made.set_id}/simple"
        names = [p["name"] for p in json.loads(store.read(f"{root}/index.json").data)["projects"]]
        assert names == ["numpy", "torch", "torchvision", "triton"]
        assert versions(store, f"{root}/torch") == [version]
    assert read_set(store, staged.id) == staged
    assert audit(store, "staging", hashes=True) == ()
    before = contents(store)
    stage(store, "2.9.0")
    assert contents(store) == before
    # A different line may be lower.
    move(store, new)
    assert len(move(store, staged)) == 3


def test_a_set_is_not_staged_without_what_it_needs(store: MemoryStore, stage: Stage) -> None:
    with pytest.raises(StoreError, match=r"numpy, wanted by torch-2\.9\.0"):
        stage(store, "2.9.0", with_numpy=False)
    assert not Index(store, "staging").load().set_ids


def test_a_set_is_staged_from_its_own_files_alone(store: MemoryStore, stage: Stage, tmp_path: Path) -> None:
    made = stage(MemoryStore(), "2.9.0")
    wheels = {wheel.distribution: tmp_path / "dist-2.9.0" / wheel.file_name for wheel in made.wheels}
    without_torch = [path for name, path in wheels.items() if name != "torch"]
    other = make_wheel(tmp_path / "evil", "torch", "2.9.0", content="EVIL = 1\n")
    for files in (without_torch, [other, *wheels.values()]):
        with pytest.raises(StoreError, match=r"not those of the set: torch-2\.9\.0"):
            stage_set(store, "staging", make_set([*wheels.values()]), files)
    assert not store.objects


def test_a_set_that_is_refused_leaves_nothing(store: MemoryStore, stage: Stage, tmp_path: Path) -> None:
    publish(store, "staging", [make_wheel(tmp_path / "x", "torch", "2.9.0", content="OTHER = 1\n")])
    with pytest.raises(StoreError, match=r"other bytes under torch-2\.9\.0"):
        stage(store, "2.9.0")
    assert list(store.list("sets/")) == []


def test_an_audit_names_a_page_of_a_set_that_is_damaged(store: MemoryStore, staged: WheelSet) -> None:
    key = f"sets/{staged.set_id}/simple/torch/index.json"
    for page in (b"[]", b"{}", b'{"files": [1]}', b"[" * 200_000, b"\xff", b"null"):
        store.write(key, page)
        (problem,) = audit(store, "staging", hashes=False)
        assert problem.startswith(f"set {staged.id[:12]}: {key} does not say")


def test_promotion_moves_pages_and_not_one_file(store: MemoryStore, staged: WheelSet) -> None:
    files, word = keys_of(store, "files/"), "untested on hardware: gfx942; bypassed by ann: no GPU"
    moved = move(store, staged, untested=word)
    assert [name.split("-")[0] for name in moved] == ["numpy", "torch", "torchvision", "triton"]
    assert keys_of(store, "files/") == files
    assert audit(store, "release", hashes=True) == ()
    (entry,) = Index(store, "release").load().generation.recent
    assert (entry.number, entry.action, entry.sets, entry.why) == (1, "promote", (staged.id,), word)
    # A bypass is seen on the files of the set alone.
    for page, seen in (
        ("release/simple/torch", True),
        ("release/simple/numpy", False),
        ("staging/simple/torch", False),
    ):
        data = store.read(f"{page}/index.html").data
        assert (word.encode() in data, b"untested" in data) == (seen, seen)
    before = contents(store, "release/")
    assert move(store, staged) == ()
    assert contents(store, "release/") == before


def test_promotion_says_untested_of_a_set_of_which_no_judgement_was_kept(
    tmp_path: Path, stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    store = LocalStore(tmp_path / "store")
    made = stage(store, "2.9.0")
    move(store, made, judged=False, untested="untested; bypassed by ann: no GPU")
    at = ["--store", str(store.path), "--stack", str(write_stack(tmp_path / "stack", made))]
    for more in ([], ["--json"]):
        assert main(["release", "promote", made.id, *at, *more]) == 0
        assert "untested; bypassed by ann: no GPU" in capsys.readouterr().out


def complete(store: Store) -> bool:
    """Whether the newest torchvision has the torch it pins, and that its triton, on the pages."""
    prefix = keys.simple_prefix("release")
    if not store.exists(f"{prefix}torchvision/index.json"):
        return True
    newest = versions(store, f"{prefix}torchvision")[-1]
    return all(newest in versions(store, f"{prefix}{name}") for name in ("torch", "triton")) and bool(
        versions(store, f"{prefix}numpy")
    )


@pytest.mark.slow
def test_a_crash_in_a_promotion_leaves_a_whole_release(store: MemoryStore, stage: Stage) -> None:
    move(store, stage(store, "2.8.0"))
    made = stage(store, "2.9.0")
    outcomes = set()
    for left, after in dying(store, lambda it: move(it, made)):
        assert complete(after), f"after a crash at write {left}"
        recover(Index(after, "release"))
        assert audit(after, "release", hashes=True) == (), f"after a crash at write {left}"
        assert complete(after)
        outcomes.add(tuple(versions(after, "release/simple/torch")))
        move(after, made)
        assert audit(after, "release", hashes=True) == ()
        assert versions(after, "release/simple/torchvision") == ["2.8.0", "2.9.0"]
    assert outcomes == {("2.8.0",), ("2.8.0", "2.9.0")}
