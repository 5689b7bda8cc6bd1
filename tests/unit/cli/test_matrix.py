"""`cairn matrix`: what it prints, what it hands to GitHub Actions, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cairn.cli import main as program

ROOT = Path(__file__).parents[3]
SAMPLE = str(ROOT / "external-builds" / "sample")
PYTORCH = str(ROOT / "external-builds" / "pytorch")


def _outputs(path: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in path.read_text(encoding="utf-8").splitlines())


def test_prints_a_row_for_each_leg(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["matrix", "--stack", SAMPLE, "--trigger", "presubmit"]) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) == 2
    assert "gfx94X-dcgpu  3.12" in out


def test_prints_json_and_hands_the_same_to_github(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "output"))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    (tmp_path / "output").write_text("before=1\n", encoding="utf-8")
    command = ["matrix", "--stack", PYTORCH, "--trigger", "nightly", "--lines", "all", "--github-output"]
    assert program.main([*command, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    written = _outputs(tmp_path / "output")
    assert written["before"] == "1"
    assert json.loads(written["matrix"])["include"] == printed["legs"]
    assert written["count"] == str(len(printed["legs"]))
    summary = (tmp_path / "summary").read_text(encoding="utf-8")
    assert "| no runner | goes to untested |" in summary
    assert summary.count("| nightly |") == len(printed["legs"])


def test_an_empty_matrix_fails_after_its_outputs_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "output"))
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    command = ["matrix", "--stack", PYTORCH, "--families", "gfx950-dcgpu", "--platforms", "win_amd64"]
    assert program.main([*command, "--github-output"]) == 2
    assert "the matrix is empty: gfx950-dcgpu is not built for win_amd64" in capsys.readouterr().err
    assert _outputs(tmp_path / "output")["empty"] == "true"
    assert program.main([*command, "--allow-empty"]) == 0
    assert "warning: the matrix is empty" in capsys.readouterr().err


def test_outputs_need_a_step_of_github(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("GITHUB_OUTPUT", raising=False)
    assert program.main(["matrix", "--stack", SAMPLE, "--github-output"]) == 2
    assert "GITHUB_OUTPUT is not set" in capsys.readouterr().err


def test_an_empty_word_is_a_variable_that_is_not_set(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        program.main(["matrix", "--stack", SAMPLE, "--families", ""])
    assert "--families" in capsys.readouterr().err
