"""`cairn build --dry-run` on the command line: as a table, as JSON; and what it refuses."""

from pathlib import Path

import pytest

from helpers import build, pythons, stacks
from helpers.build import stand_in_compiler
from helpers.program import Cairn


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
    return ["build", "--dry-run", "--stack", str(tmp_path / "ströme"), "--output-dir", str(tmp_path / "out")]


def test_the_table_says_what_and_why(words: list[str], cairn: Cairn) -> None:
    rows = [line.split("  ") for line in cairn(*words, "--pythons", "stack").out.splitlines()]
    assert [row[0] for row in rows] == ["step", "checkout a", "checkout b", "build a", "build b"]
    assert "never built before" in " ".join(rows[-1])


def test_json_has_every_step_and_what_it_needs(words: list[str], cairn: Cairn) -> None:
    own, other = pythons.several(2)
    told = cairn.json(*words, "--pythons", f"{own.version},{other.version}")
    assert told["schema"] == "cairn.plan/1"
    by_name = {step["step"]: step for step in told["steps"]}
    assert by_name.keys() == {
        *("checkout a", "checkout b"),
        *(f"build {name} [{python.version}]" for name in "ab" for python in (own, other)),
    }
    last = by_name[f"build b [{other.version}]"]
    assert last["needs"] == ["checkout b", f"build a [{other.version}]"]
    assert (last["action"], last["variant"], last["kind"]) == ("build", other.version, "build")


def test_a_step_is_explained_by_its_project(words: list[str], cairn: Cairn) -> None:
    assert cairn(*words, "--explain", "b").out == "build b: build, never built before\n"
    assert "did you mean build b" in cairn(*words, "--explain", "buidl b", code=2).err


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (["--pythons", "3.99"], 3, "no Python 3.99"),
        (["--pythons", "three"], 2, "neither a version of Python nor a program"),
        (["--pythons", "3.11,,3.12"], 2, "--pythons: '3.11,,3.12' names nothing between two commas"),
        (["--families", "gfx9420"], 2, "gfx9420"),
        (["--families", "cpu", "--targets", "cpu"], 2, "exclude each other"),
        (["--lines", "main", "--line", "main"], 2, "exclude each other"),
        (["--lines", "mian"], 2, "no line 'mian'"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(
    words: list[str], more: list[str], code: int, said: str, cairn: Cairn
) -> None:
    shown = cairn(*words, *more, code=code).err
    assert said in shown
    assert "Traceback" not in shown


def test_a_plan_needs_no_output_folder_and_makes_none(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cairn: Cairn
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    without = words[:-2]
    assert cairn.json(*without) == cairn.json(*words)
    assert not (tmp_path / "out").exists()
    assert not list((tmp_path / "elsewhere").iterdir())
