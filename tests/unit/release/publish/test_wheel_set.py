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
from helpers.release import Breaking, Broken, audit, contents, keys_of, make_set, make_wheel, move, stage_set

Stage = Callable[..., WheelSet]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """Stages torch, triton and torchvision of one version, each pinning the next, and numpy beside them."""

    def run(store: Store, version: str, *, mark: str = "", with_numpy: bool = True) -> WheelSet:
        folder = tmp_path / f"dist-{version}{mark}"
        content = f"MARK = {mark!r}\n"
        wheels = [
            make_wheel(folder, "triton", version, content=content),
            make_wheel(folder, "torch", version, requires=[f"triton=={version}", "numpy"], content=content),
            make_wheel(folder, "torchvision", version, requires=[f"torch=={version}"], content=content),
        ]
        if with_numpy:
            publish(store, "staging", [make_wheel(tmp_path / "third", "numpy", "2.0")])
        return stage_set(store, "staging", make_set(wheels), wheels)

    return run


def versions(store: Store, where: str) -> list[str]:
    plain: list[str] = json.loads(store.read(f"{where}/index.json").data)["versions"]
    return plain


def test_the_index_of_a_set_holds_the_set_and_what_it_needs_alone(store: MemoryStore, stage: Stage) -> None:
    old, new = stage(store, "2.9.0"), stage(store, "2.10.0")
    assert versions(store, "staging/simple/torch") == ["2.9.0", "2.10.0"]
    for made, version in ((old, "2.9.0"), (new, "2.10.0")):
        root = f"sets/{made.set_id}/simple"
        names = [p["name"] for p in json.loads(store.read(f"{root}/index.json").data)["projects"]]
        assert names == ["numpy", "torch", "torchvision", "triton"]
        assert versions(store, f"{root}/torch") == [version]
    assert read_set(store, old.id) == old
    assert audit(store, "staging", hashes=True) == ()


def test_a_set_is_not_staged_without_what_it_needs(store: MemoryStore, stage: Stage) -> None:
    with pytest.raises(StoreError, match=r"numpy, wanted by torch-2\.9\.0"):
        stage(store, "2.9.0", with_numpy=False)
    assert not Index(store, "staging").load().set_ids


def test_a_set_is_staged_from_its_own_files_alone(store: MemoryStore, stage: Stage, tmp_path: Path) -> None:
    made = stage(store, "2.9.0")
    with pytest.raises(StoreError, match=r"not those of the set: torch-2\.9\.0"):
        folder = tmp_path / "dist-2.9.0"
        stage_set(
            store, "staging", made, [folder / w.file_name for w in made.wheels if w.distribution != "torch"]
        )


def test_no_file_slips_in_beside_one_of_the_set_under_its_name(
    store: MemoryStore, stage: Stage, tmp_path: Path
) -> None:
    made = stage(MemoryStore(), "2.9.0")
    wheels = [tmp_path / "dist-2.9.0" / wheel.file_name for wheel in made.wheels]
    other = make_wheel(tmp_path / "evil", "torch", "2.9.0", content="EVIL = 1\n")
    with pytest.raises(StoreError, match=r"not those of the set: torch-2\.9\.0"):
        stage_set(store, "staging", make_set(wheels), [other, *wheels])
    assert not store.objects


def test_a_set_that_is_refused_leaves_nothing(store: MemoryStore, stage: Stage, tmp_path: Path) -> None:
    publish(store, "staging", [make_wheel(tmp_path / "x", "torch", "2.9.0", content="OTHER = 1\n")])
    with pytest.raises(StoreError, match=r"other bytes under torch-2\.9\.0"):
        stage(store, "2.9.0")
    assert list(store.list("sets/")) == []


@pytest.mark.parametrize(
    "page",
    [b"[]", b"{}", b'{"files": [1]}', pytest.param(b"[" * 200_000, id="deep"), b"\xff", b"null"],
)
def test_an_audit_names_a_page_of_a_set_that_is_damaged(
    store: MemoryStore, stage: Stage, page: bytes
) -> None:
    made = stage(store, "2.9.0")
    key = f"sets/{made.set_id}/simple/torch/index.json"
    store.write(key, page)
    (problem,) = audit(store, "staging", hashes=False)
    assert problem.startswith(f"set {made.id[:12]}: {key} does not say")


def test_staging_again_changes_nothing(store: MemoryStore, stage: Stage) -> None:
    stage(store, "2.9.0")
    before = contents(store, "")
    stage(store, "2.9.0")
    assert contents(store, "") == before


def test_promotion_moves_pages_and_not_one_file(store: MemoryStore, stage: Stage) -> None:
    made = stage(store, "2.9.0")
    files = keys_of(store, "files/")
    assert [name.split("-")[0] for name in move(store, made)] == ["numpy", "torch", "torchvision", "triton"]
    assert keys_of(store, "files/") == files
    assert audit(store, "release", hashes=True) == ()


def test_promoting_again_changes_nothing(store: MemoryStore, stage: Stage) -> None:
    made = stage(store, "2.9.0")
    move(store, made)
    before = contents(store, "release/")
    assert move(store, made) == ()
    assert contents(store, "release/") == before


def test_a_bypass_is_seen_on_the_files_of_the_set_alone(store: MemoryStore, stage: Stage) -> None:
    made = stage(store, "2.9.0")
    move(store, made, untested="untested on hardware: gfx942; bypassed by ann: no GPU")
    assert (
        b"untested on hardware: gfx942; bypassed by ann" in store.read("release/simple/torch/index.html").data
    )
    assert b"untested" not in store.read("release/simple/numpy/index.html").data
    assert b"untested" not in store.read("staging/simple/torch/index.html").data


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


def test_a_different_line_may_be_lower(store: MemoryStore, stage: Stage) -> None:
    move(store, stage(store, "2.10.0"))
    assert len(move(store, stage(store, "2.9.0"))) == 3


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
def test_a_crash_in_a_promotion_leaves_a_whole_release(stage: Stage) -> None:
    before = MemoryStore()
    move(before, stage(before, "2.8.0"))
    made = stage(before, "2.9.0")
    counted = Breaking(before, left=10_000)
    move(counted, made)
    outcomes = set()
    for n in range(len(counted.written)):
        broken = Breaking(before, left=n)
        with pytest.raises(Broken):
            move(broken, made)
        store = MemoryStore(broken.objects)
        assert complete(store), f"after a crash at write {n}"
        recover(Index(store, "release"))
        assert audit(store, "release", hashes=True) == (), f"after a crash at write {n}"
        assert complete(store)
        outcomes.add(tuple(versions(store, "release/simple/torch")))
        move(store, made)
        assert audit(store, "release", hashes=True) == ()
        assert versions(store, "release/simple/torchvision") == ["2.8.0", "2.9.0"]
    assert outcomes == {("2.8.0",), ("2.8.0", "2.9.0")}


def test_the_log_says_what_was_done(store: MemoryStore, stage: Stage) -> None:
    made = stage(store, "2.9.0")
    move(store, made, untested="untested on hardware: gfx942; bypassed by ann: no GPU")
    (entry,) = Index(store, "release").load().generation.recent
    assert (entry.number, entry.action, entry.sets) == (1, "promote", (made.id,))
    assert entry.why == "untested on hardware: gfx942; bypassed by ann: no GPU"
