"""`cairn release rollback|yank|retain|log` on a folder."""

from __future__ import annotations

import json
import re

import pytest

from cairn.cli.main import main
from cairn.store.folder import LocalStore
from cairn.wheels.wheelset import WheelSet


@pytest.fixture
def at(folder: LocalStore) -> list[str]:
    """The options that name a folder with three nights released."""
    return ["--store", str(folder.path)]


def test_a_night_is_taken_back_and_comes_again(
    at: list[str], sets: dict[str, WheelSet], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["release", "rollback", *at, "--to", "2", "--reason", "broken", "--dry-run"]) == 0
    assert "would go: torch-2.10.0-py3-none-any.whl" in capsys.readouterr().out
    assert main(["release", "rollback", *at, "--to", "2", "--reason", "broken"]) == 0
    out = capsys.readouterr().out
    assert f"- set {sets['2.10.0'].id[:12]}" in out
    assert "generation 4 of release is what 2 was" in out
    assert main(["release", "rollback", *at, "--to", sets["2.9.0"].id[:8], "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["to"], said["changed"], said["generation"]) == (2, False, 4)
    assert main(["release", "rollback", *at, "--to", "3"]) == 0
    assert "+ torch-2.10.0-py3-none-any.whl" in capsys.readouterr().out
    assert main(["release", "rollback", *at, "--to", "9"]) == 9
    assert "see them: cairn release log --index release" in capsys.readouterr().err


def test_a_set_is_yanked_and_taken_back(
    at: list[str], sets: dict[str, WheelSet], capsys: pytest.CaptureFixture[str]
) -> None:
    name = sets["2.9.0"].id[:8]
    assert main(["release", "yank", name, *at, "--reason", "wrong results"]) == 0
    out = capsys.readouterr().out
    assert "yanked in release: torch-2.9.0-py3-none-any.whl" in out
    assert "= triton-3.5-py3-none-any.whl in staging: a set that is not yanked has it too" in out
    assert main(["release", "yank", name, *at, "--reason", "wrong results"]) == 0
    assert "is yanked already" in capsys.readouterr().out
    undo = ["release", "yank", name, *at, "--undo", "--reason", "fixed"]
    assert main(undo) == 2
    assert "taken back by name and reason" in capsys.readouterr().err
    assert main([*undo, "--who", "ann", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["indexes"][0]["generation"] == 5
    with pytest.raises(SystemExit):
        main(["release", "yank", name, *at])


def test_old_sets_go_and_what_is_kept_is_said(
    at: list[str], sets: dict[str, WheelSet], capsys: pytest.CaptureFixture[str]
) -> None:
    keep = sets["2.8.0"].id[:8]
    assert main(["release", "retain", *at, "--keep-last", "1", "--keep", keep]) == 0
    out = capsys.readouterr().out
    assert "--keep names it" in out
    assert "- torch-2.9.0-py3-none-any.whl" in out
    assert main(["release", "retain", *at, "--keep-last", "1", "--keep", keep, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["changed"] is False
    with pytest.raises(SystemExit):
        main(["release", "retain", *at])


def test_the_log_says_who_did_what_and_why(
    at: list[str],
    sets: dict[str, WheelSet],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GITHUB_ACTOR", "ann")
    main(["release", "yank", sets["2.9.0"].id, *at, "--reason", "wrong results"])
    main(["release", "rollback", *at, "--to", "2"])
    capsys.readouterr()
    assert main(["release", "log", *at]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert re.match(rf"5 +\S+ \S+ +rollback +ann +to 2 +-{sets['2.10.0'].id[:12]}", lines[1])
    assert re.match(rf"4 +\S+ \S+ +yank +ann +wrong results +~{sets['2.9.0'].id[:12]}", lines[2])
    assert re.match(rf"3 +\S+ \S+ +promote .* \+{sets['2.10.0'].id[:12]}", lines[3])
    assert main(["release", "log", *at, "--json", "--limit", "2"]) == 0
    found = json.loads(capsys.readouterr().out)["generations"]
    assert [(one["number"], one["action"], one["projects"]) for one in found] == [
        (5, "rollback", 3),
        (4, "yank", 2),
    ]
    assert main(["release", "log", *at, "--index", "nightly"]) == 9
