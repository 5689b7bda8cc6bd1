"""`cairn matrix`: what it prints, and how it ends."""

from __future__ import annotations

from helpers.program import Cairn
from helpers.trail import ROOT, SAMPLE

PYTORCH = ROOT / "external-builds" / "pytorch"


def test_prints_a_row_for_each_leg(cairn: Cairn) -> None:
    out, _ = cairn("matrix", "--stack", SAMPLE, "--trigger", "presubmit")
    assert len(out.splitlines()) == 2
    assert "gfx94X-dcgpu  3.12" in out


def test_prints_json_of_all_legs(cairn: Cairn) -> None:
    legs = cairn.json("matrix", "--stack", PYTORCH, "--trigger", "nightly", "--lines", "all")["legs"]
    assert (len(legs), sum(not leg["test_runs_on"] for leg in legs)) == (145, 100)


def test_an_empty_matrix_is_an_error_unless_it_is_allowed(cairn: Cairn) -> None:
    command = ("matrix", "--stack", PYTORCH, "--families", "gfx950-dcgpu", "--platforms", "win_amd64")
    reason = "gfx950-dcgpu is not built for win_amd64"
    assert f"the matrix is empty: {reason}" in cairn(*command, code=2).err
    assert "warning: the matrix is empty" in cairn(*command, "--allow-empty").err
    plain = cairn.json(*command, "--allow-empty")
    assert (plain["legs"], plain["empty_because"].partition(",")[0]) == ([], reason)


def test_the_figures_of_each_line_are_beside_the_limits_that_they_come_near(cairn: Cairn) -> None:
    """As docs/explanation/one-build.md shows them."""
    out, err = cairn("matrix", "--stack", PYTORCH, "--figures")
    shown = (ROOT / "docs/explanation/one-build.md").read_text(encoding="utf-8")
    assert f"```console\n{out}{err}```" in shown
    lines = cairn.json("matrix", "--stack", PYTORCH, "--figures", "--lines", "nightly,release/2.14")
    assert [(one["line"], one["builds"]) for one in lines] == [("nightly", 70), ("release/2.14", 65)]
