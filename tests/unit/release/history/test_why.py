"""`cairn release log PROJECT`: why an installer gets one version of a project, and not another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cairn.release.history.rollback import rollback
from cairn.release.history.yank import yank
from cairn.release.publish.files import publish
from cairn.store.memory import MemoryStore
from cairn.wheels.wheelset import WheelSet
from helpers.program import Cairn
from helpers.release import in_folder, make_wheel, move


@pytest.fixture
def place(nights: MemoryStore, sets: dict[str, WheelSet], tmp_path: Path) -> Path:
    """A store in which each version of torch met something else."""
    for version in ("2.8.0", "2.9.0"):
        move(nights, sets[version])
    yank(nights, sets["2.9.0"].id, reason="it eats data")
    wheels = [
        make_wheel(tmp_path / "odd", "tool", "1.0"),
        make_wheel(tmp_path / "odd", "tool", "2.0rc1"),
    ]
    publish(nights, "dev", wheels)
    in_folder(nights, tmp_path / "store")
    return tmp_path / "store"


def rows(cairn: Cairn, place: Path, wanted: str, index: str = "release") -> dict[str, dict[str, Any]]:
    answer = cairn.json("release", "log", wanted, "--index", index, "--store", place)
    return {row["version"]: row for row in answer["files"]}


def test_each_version_has_its_reason(cairn: Cairn, place: Path) -> None:
    shown = rows(cairn, place, "torch")
    assert list(shown) == ["2.10.0", "2.9.0", "2.8.0"]
    assert shown["2.8.0"]["taken"]
    assert shown["2.8.0"]["reasons"] == []
    assert shown["2.9.0"]["reasons"] == ["yanked: it eats data"]
    (reason,) = shown["2.10.0"]["reasons"]
    assert reason.startswith("never promoted: it is in staging since 20")
    assert list(rows(cairn, place, "Torch==2.9")) == ["2.9.0"]
    text = cairn("release", "log", "torch", "--store", place).out
    assert "it eats data" in text
    assert "no index of" in cairn("release", "log", "torch==9", "--store", place, code=9).err


def test_what_a_rollback_took_away_says_so(
    cairn: Cairn, nights: MemoryStore, sets: dict[str, WheelSet], tmp_path: Path
) -> None:
    for version in ("2.8.0", "2.9.0"):
        move(nights, sets[version])
    rollback(nights, "release", "1", reason="too slow")
    in_folder(nights, tmp_path / "back")
    first, *_ = rows(cairn, tmp_path / "back", "torch==2.9.0")["2.9.0"]["reasons"]
    assert "was rolled back off release by" in first
    assert first.endswith("too slow")


def test_a_pre_release_is_taken_on_demand_alone(cairn: Cairn, place: Path) -> None:
    shown = rows(cairn, place, "tool", "dev")
    assert shown["1.0"]["taken"]
    assert shown["2.0rc1"]["reasons"] == [
        "a pre-release: installers take it with --pre, or by its exact version"
    ]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"tag": "cp27-cp27m-win_amd64"}, "which this Python does not take"),
        ({"python": "<3"}, "Requires-Python <3, and this is 3."),
    ],
    ids=["platform", "Requires-Python"],
)
def test_a_wheel_for_others_says_for_whom(
    cairn: Cairn, nights: MemoryStore, tmp_path: Path, change: dict[str, str], reason: str
) -> None:
    publish(nights, "dev", [make_wheel(tmp_path, "odd", "1.0", **change)])  # type: ignore[arg-type]
    in_folder(nights, tmp_path / "store")
    (said,) = rows(cairn, tmp_path / "store", "odd", "dev")["1.0"]["reasons"]
    assert reason in said
