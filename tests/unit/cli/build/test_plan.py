"""`cairn build plan` on the command line: as a table, as JSON; and what it refuses."""

import json
from pathlib import Path

import pytest

from cairn.cli import main
from helpers import build, pythons, stacks
from helpers.build import stand_in_compiler


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """`build plan` of two projects."""
    stand_in_compiler(tmp_path / "bin", monkeypatch)
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("a tree", "b"):
        build.repository(tmp_path / "ströme" / name, {"pyproject.toml": build.PYPROJECT, "backend.py": ""})
    (own,) = pythons.several(1)
    lower = stacks.project("a", "u", 'version_file = ""', folder="a tree")
    upper = stacks.project("b", "u", 'version_file = ""\nneeds = ["a"]')
    text = stacks.stack(lower, upper, more=f'pythons = ["{own.version}"]')
    (tmp_path / "ströme/stack.toml").write_text(text)
    return ["build", "plan", "--stack", str(tmp_path / "ströme"), "--output-dir", str(tmp_path / "out")]


def test_the_table_says_what_and_why(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main([*words, "--pythons", "stack"]) == 0
    rows = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    steps = [row[0] for row in rows]
    assert steps == ["step", "checkout a", "checkout b", "build a", "build b"]
    assert "never built before" in " ".join(rows[-1])


def test_json_has_every_step_and_what_it_needs(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    own, other = pythons.several(2)
    assert main.main([*words, "--pythons", f"{own.version},{other.version}", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "cairn.plan/1"
    by_name = {step["step"]: step for step in told["steps"]}
    assert by_name.keys() == {
        *("checkout a", "checkout b"),
        *(f"build {name} [{python.version}]" for name in "ab" for python in (own, other)),
    }
    last = by_name[f"build b [{other.version}]"]
    assert last["needs"] == ["checkout b", f"build a [{other.version}]"]
    assert (last["action"], last["variant"], last["kind"]) == ("build", other.version, "build")


def test_a_step_is_explained_by_its_project(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main([*words, "--explain", "b"]) == 0
    assert capsys.readouterr().out.splitlines() == ["build b: build, never built before"]
    assert main.main([*words, "--explain", "buidl b"]) == 2
    assert "did you mean build b" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--pythons", "3.99"], "no Python 3.99"),
        (["--pythons", "three"], "neither a version of Python nor a program"),
        (["--families", "gfx9420"], "gfx9420"),
        (["--families", "cpu", "--targets", "cpu"], "exclude each other"),
        (["--lines", "main", "--line", "main"], "exclude each other"),
        (["--lines", "mian"], "no line 'mian'"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(
    words: list[str], more: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main([*words, *more]) in {2, 3}
    shown = capsys.readouterr().err
    assert said in shown
    assert "Traceback" not in shown


def test_a_list_names_something_between_two_commas(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main([*words, "--pythons", "3.11,,3.12"])
    assert ended.value.code == 2
    assert "argument --pythons: '3.11,,3.12' names nothing between two commas" in capsys.readouterr().err


def test_a_plan_needs_no_output_folder_and_makes_none(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    without = [word for word in words if word not in ("--output-dir", str(tmp_path / "out"))]
    plans = []
    for given in (without, words):
        assert main.main([*given, "--json"]) == 0
        plans.append(json.loads(capsys.readouterr().out))
    assert plans[0] == plans[1]
    assert not (tmp_path / "out").exists()
    assert not list((tmp_path / "elsewhere").iterdir())
    with pytest.raises(SystemExit):
        main.main(["build", "run", *without[2:]])
    assert "--output-dir" in capsys.readouterr().err
