"""`cairn matrix`: what it prints, what it hands to GitHub Actions, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.program import Cairn
from helpers.trail import ROOT, SAMPLE

PYTORCH = ROOT / "external-builds" / "pytorch"


@pytest.fixture
def outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "output"))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    return tmp_path / "output"


def _outputs(path: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in path.read_text(encoding="utf-8").splitlines())


def test_prints_a_row_for_each_leg(cairn: Cairn) -> None:
    out, _ = cairn("matrix", "--stack", SAMPLE, "--trigger", "presubmit")
    assert len(out.splitlines()) == 2
    assert "gfx94X-dcgpu  3.12" in out


def test_prints_json_and_hands_the_same_to_github(outputs: Path, cairn: Cairn) -> None:
    outputs.write_text("before=1\n", encoding="utf-8")
    words = ("matrix", "--stack", PYTORCH, "--trigger", "nightly", "--lines", "all", "--github-output")
    legs = cairn.json(*words)["legs"]
    written = _outputs(outputs)
    assert (written["before"], written["count"]) == ("1", str(len(legs)))
    assert json.loads(written["matrix"])["include"] == legs
    summary = outputs.with_name("summary").read_text(encoding="utf-8")
    assert "### Matrix: 145 legs, 70 builds, 45 tested" in summary
    assert "| no runner | goes to untested |" in summary
    assert summary.count("| nightly |") == len(legs)


def test_an_empty_matrix_fails_after_its_outputs_are_written(outputs: Path, cairn: Cairn) -> None:
    command = ("matrix", "--stack", PYTORCH, "--families", "gfx950-dcgpu", "--platforms", "win_amd64")
    _, err = cairn(*command, "--github-output", code=2)
    assert "the matrix is empty: gfx950-dcgpu is not built for win_amd64" in err
    assert _outputs(outputs)["empty"] == "true"
    assert "warning: the matrix is empty" in cairn(*command, "--allow-empty").err


def test_outputs_need_a_step_of_github(monkeypatch: pytest.MonkeyPatch, cairn: Cairn) -> None:
    monkeypatch.delenv("GITHUB_OUTPUT", raising=False)
    _, err = cairn("matrix", "--stack", SAMPLE, "--github-output", code=2)
    assert "GITHUB_OUTPUT is not set" in err


def test_the_figures_of_each_line_are_beside_the_limits_that_they_come_near(cairn: Cairn) -> None:
    """As docs/explanation/one-build.md shows them."""
    out, err = cairn("matrix", "--stack", PYTORCH, "--figures")
    shown = (ROOT / "docs/explanation/one-build.md").read_text(encoding="utf-8")
    assert f"```console\n{out}{err}```" in shown
    lines = cairn.json("matrix", "--stack", PYTORCH, "--figures", "--lines", "nightly,release/2.14")
    assert [(one["line"], one["builds"]) for one in lines] == [("nightly", 70), ("release/2.14", 65)]
