"""`cairn release rollback|yank|retain|log` on a folder."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from cairn import datafile
from cairn.cli.main import main
from cairn.release.ledger import Ledger
from cairn.release.provenance import dsse
from cairn.store.folder import LocalStore
from cairn.wheels.build_statement import LOCAL
from cairn.wheels.wheelset import WheelSet
from helpers.program import Cairn
from helpers.provenance import signer


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


def test_all_that_a_compromised_builder_made_is_found_and_banned_wherever_it_stands(
    at: list[str], sets: dict[str, WheelSet], folder: LocalStore, tmp_path: Path, cairn: Cairn
) -> None:
    stolen, pub = signer(31), tmp_path / "stolen.pub"
    pub.write_bytes(stolen.public.pem())
    mine, other, forged = sets["2.9.0"].id, sets["2.10.0"].id, sets["2.8.0"].id
    for set_id, by in ((mine, stolen), (other, signer(32)), (forged, signer(32))):
        statement = folder.read(f"sets/{set_id}/builder.json").data
        envelope = dsse.sign(statement, dsse.IN_TOTO, by)
        if set_id == forged:  # somebody has it look as if the stolen key had signed
            hint = msgspec.structs.replace(envelope.signatures[0], keyid=stolen.key_id)
            envelope = msgspec.structs.replace(envelope, signatures=(hint,))
        folder.write(f"sets/{set_id}/builder.dsse.json", datafile.dumps(envelope).encode())
    ban = ("release", "yank", *at, "--built-by", pub, "--reason", "its key was stolen")
    would = cairn.json(*ban, "--dry-run", code=9)
    assert (would["dry_run"], [one["subject"] for one in would["sets"]]) == (True, [mine])
    assert [one["index"] for one in would["sets"][0]["indexes"]] == ["release", "staging"]
    assert Ledger(folder).ban(mine) is None
    shown = cairn(*ban, code=9)
    assert f"set {mine[:12]} is yanked in release" in shown.out
    assert f"who built 1 set cannot be read: {forged[:12]}: " in shown.err
    (folder.path / "sets" / forged / "builder.dsse.json").unlink()
    assert Ledger(folder).ban(mine) is not None
    assert Ledger(folder).ban(other) is Ledger(folder).ban(forged) is None
    assert cairn.json(*ban)["changed"] is False
    undo = (*ban[:-1], "it was another key", "--undo", "--who", "ann")
    assert cairn.json(*undo)["sets"][0]["who"] == "ann"
    assert Ledger(folder).ban(mine) is None
    assert "no set that" in cairn(*ban[:-3], "https://example.org/ci.yml", "--reason", "x", code=9).err
    every = cairn.json(*ban[:-3], LOCAL, "--reason", "x", "--dry-run")
    assert {one["subject"] for one in every["sets"]} >= {mine, other, forged}


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
