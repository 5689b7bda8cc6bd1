"""The next stage of a set: a set of its own, with other versions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cairn.cli.main import main
from cairn.errors import UsageError, WheelError
from cairn.release.index.snapshot import read_set
from cairn.release.new_version import next_stage
from cairn.store.folder import LocalStore
from cairn.store.memory import MemoryStore
from cairn.store.protocol import Store
from cairn.wheels import wheelset
from cairn.wheels.wheelset import WheelSet
from helpers.release import MANIFEST, make_set, make_wheel, stage_set

NIGHTLY = "2.9.0+rocm7.10.0a20251124"


def staged(store: Store, folder: Path) -> WheelSet:
    wheels = [
        make_wheel(folder, "torch", NIGHTLY, content=f"__version__ = {NIGHTLY!r}\n"),
        make_wheel(folder, "torchvision", NIGHTLY, requires=[f"torch=={NIGHTLY}"]),
    ]
    return stage_set(store, "staging", make_set(wheels), wheels)


def test_a_candidate_is_a_set_of_its_own_that_names_the_nightly(store: MemoryStore, tmp_path: Path) -> None:
    old = staged(store, tmp_path / "nightly")
    made, changes = next_stage(store, old.id, "rc1", tmp_path / "rc1")
    assert made == wheelset.read(tmp_path / "rc1" / "set.json")
    assert (tmp_path / "rc1" / "manifest.json").read_bytes() == MANIFEST
    assert {wheel.version for wheel in made.wheels} == {"2.9.0+rocm7.10.0rc1"}
    assert (made.derived_from, made.set_id, made.closure) == (old.id, None, ())
    assert {change.old for change in changes} == {NIGHTLY}
    sealed = stage_set(store, "staging", made, [change.target for change in changes])
    assert read_set(store, sealed.id).derived_from == old.id
    assert sealed.id != old.id
    final, _ = next_stage(store, sealed.id, "final", tmp_path / "final")
    assert final is not None
    assert {wheel.version for wheel in final.wheels} == {"2.9.0+rocm7.10.0"}


def test_a_stage_back_or_into_a_folder_with_a_set_is_refused(store: MemoryStore, tmp_path: Path) -> None:
    old = staged(store, tmp_path / "nightly")
    made, changes = next_stage(store, old.id, "rc2", tmp_path / "rc2")
    assert made is not None
    sealed = stage_set(store, "staging", made, [change.target for change in changes])
    with pytest.raises(WheelError):
        next_stage(store, sealed.id, "rc1", tmp_path / "rc1")
    with pytest.raises(UsageError, match="has a set already"):
        next_stage(store, old.id, "rc3", tmp_path / "rc2")


def test_the_command_says_what_it_would_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = LocalStore(tmp_path / "store")
    old = staged(store, tmp_path / "nightly")
    command = ["wheel", "set-version", "--set", old.id[:8], "--promote", "rc1", "--store", str(store.path)]
    command += ["--output-dir", str(tmp_path / "rc1")]
    assert main([*command, "--dry-run", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["derived_from"], answer["dry_run"]) == (old.id, True)
    assert {wheel["version"]["new"] for wheel in answer["wheels"]} == {"2.9.0+rocm7.10.0rc1"}
    assert not (tmp_path / "rc1").exists()
    assert main(command) == 0
    assert sorted(path.name for path in (tmp_path / "rc1").iterdir())[:2] == ["builder.json", "manifest.json"]
    for wrong in ([__file__], ["--require", "a"], ["--build-number", "1"]):
        assert main([*command, *wrong]) == 2
