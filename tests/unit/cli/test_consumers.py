"""`cairn diff --consumer`, and the consumers that a stack names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cairn import stack as stacks
from cairn.cli.main import main
from cairn.errors import UsageError
from helpers.tiny_stack import write as write_stack
from helpers.wheels import build_wheel

USER = ("demo<1.1",)


def _sets(folder: Path) -> tuple[Path, Path]:
    build_wheel(folder / "old", requires=())
    build_wheel(folder / "to night", version="1.1", requires=())
    return folder / "old", folder / "to night"


def test_it_names_what_breaks_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = _sets(tmp_path)
    build_wheel(tmp_path / "users", name="user", requires=USER)
    code = main(["diff", "--consumers", str(old), str(new), "--consumer", str(tmp_path / "users"), "--json"])
    said = json.loads(capsys.readouterr().out)
    assert code == 8
    assert [(one["consumer"], one["kind"], one["name"]) for one in said["breaks"]] == [
        ("user", "requirement", "demo<1.1")
    ]
    assert main(["diff", "--consumers", str(old), str(old), "--consumer", str(tmp_path / "users")]) == 0
    assert "1 wheel of consumers looked at, 0 broken" in capsys.readouterr().out


def test_it_takes_the_consumers_of_a_stack(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = _sets(tmp_path)
    stack = write_stack(tmp_path / "stack")
    build_wheel(tmp_path / "stack/wheels", name="user", requires=USER)
    path = stack / "stack.toml" if stack.is_dir() else stack
    path.write_text(path.read_text() + '\n[[consumers]]\nname = "user"\nwheels = ["wheels/user-*.whl"]\n')
    assert main(["diff", "--consumers", str(old), str(new), "--stack", str(path)]) == 8
    assert "requires demo<1.1: demo 1.0 is, 1.1 is not" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("[budgets.nobody]\nspills = 1", "a budget is for the project 'nobody'"),
        *(
            (f"[budgets.tiny]\nnamespaces = ['{name}']", f"'{name}' is not a namespace")
            for name in ("c10::", "::at", "at.native", "at ", "2at", "at::native<int>")
        ),
        ("[budgets.tiny]\nspills = -1", "the budget spills of 'tiny' is -1"),
        ("[budgets.tiny]\nimport_seconds = nan", "the budget import_seconds of 'tiny' is nan"),
        ("[budgets.tiny]\nimport_seconds = inf", "the budget import_seconds of 'tiny' is inf"),
        ('[[consumers]]\nname = "-r"', "cannot be the name of a consumer"),
        ('[[consumers]]\nname = "a"\nwheels = ["a.whl"]\nrequirement = "a==1"', "has wheels of its own"),
        ('[[consumers]]\nname = "a"\nindex = "release"\nrequirement = "a==1"', "has wheels of its own"),
        ('[[consumers]]\nname = "a"\nrequirement = "a=>1"', "is not a requirement"),
    ],
)
def test_a_stack_with_a_consumer_that_is_none_is_refused(tmp_path: Path, lines: str, problem: str) -> None:
    stack = write_stack(tmp_path / "stack")
    path = stack / "stack.toml" if stack.is_dir() else stack
    path.write_text(f"{path.read_text()}\n{lines}\n")
    with pytest.raises(UsageError, match=problem):
        stacks.load(path)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "no consumer is named"),
        (["--consumer", "no/such.whl"], "there is no wheel no/such.whl"),
        (["--consumer", "not a requirement"], "is not a requirement"),
    ],
)
def test_who_is_not_there_is_said_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], problem: str
) -> None:
    old, new = _sets(tmp_path)
    assert main(["diff", "--consumers", str(old), str(new), *words]) == 2
    assert problem in capsys.readouterr().err


def test_two_wheels_of_one_distribution_are_not_one_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = _sets(tmp_path)
    build_wheel(old, version="1.2", requires=())
    build_wheel(tmp_path / "users", name="user", requires=USER)
    assert main(["diff", "--consumers", str(old), str(new), "--consumer", str(tmp_path / "users")]) == 7
    assert "two wheels of demo" in capsys.readouterr().err


def test_what_else_breaks_is_told_where_a_consumer_cannot_be_had(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = _sets(tmp_path)
    stack = write_stack(tmp_path / "stack")
    path = stack / "stack.toml" if stack.is_dir() else stack
    lost = '[[consumers]]\nname = "lost"\nwheels = ["lost-*.whl"]\n'
    stored = '[[consumers]]\nname = "pyg"\nindex = "release"\n'
    path.write_text(f"{path.read_text()}\n{lost}{stored}")
    user = build_wheel(tmp_path / "users", name="user", requires=USER)
    ask = ["diff", "--consumers", str(old), str(new), "--stack", str(path)]
    assert main([*ask, "--consumer", str(user)]) == 8
    said = capsys.readouterr()
    assert "requires demo<1.1" in said.out
    assert "whether lost breaks is not known: there is no wheel" in said.err
    assert "whether pyg breaks is not known: no store is named" in said.err
    assert main(ask) == 8
    assert "whether lost breaks is not known" in capsys.readouterr().err
