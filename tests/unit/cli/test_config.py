"""`cairn config`: what is set where, and setting it."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

import pytest

from cairn.cli import main


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of a repository; the user's file is beside it, in a folder that is not there yet."""
    for name in [name for name in os.environ if name.startswith("CAIRN_")]:
        monkeypatch.delenv(name)
    folder = tmp_path / "my work"
    (folder / ".git").mkdir(parents=True)
    monkeypatch.setenv("CAIRN_CONFIG", str(tmp_path / "user" / "cairn.toml"))
    monkeypatch.chdir(folder)
    return folder


def user_file(here: Path) -> Path:
    return here.parent / "user" / "cairn.toml"


def config(*words: str) -> int:
    return main.main(["config", *words])


def test_what_is_set_is_used_listed_and_taken_out_again(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert config("set", "store", "s3://mine") == 0
    assert config("set", "build.run.targets", "gfx1100") == 0
    assert config("set", "find-links", "one", "two and") == 0
    assert config("set", "pre", "no") == 0
    assert tomllib.loads(user_file(here).read_text()) == {
        "store": "s3://mine",
        "find-links": ["one", "two and"],
        "pre": False,
        "command": {"build run": {"targets": "gfx1100"}},
    }
    assert main.make_parser().parse_args(["release", "log"]).store == "s3://mine"
    capsys.readouterr()
    assert config("get", "build.run.targets") == 0
    assert capsys.readouterr().out == "gfx1100\n"
    assert config("list", "--json") == 0
    shown = json.loads(capsys.readouterr().out)["settings"]
    assert [(each["command"], each["option"]) for each in shown] == [
        *((None, name) for name in ("find-links", "pre", "store")),
        ("build run", "targets"),
    ]
    assert config("set", "store") == 0
    assert config("get", "store") == 2
    assert "store is not set" in capsys.readouterr().err


def test_a_file_keeps_its_comments(here: Path) -> None:
    user_file(here).parent.mkdir()
    user_file(here).write_text('# mine\nline = "nightly"  # until spring\n\n[command.build]\njobs = 3\n')
    assert config("set", "store", "s") == 0
    text = user_file(here).read_text()
    assert "# mine\n" in text
    assert "# until spring" in text
    assert tomllib.loads(text) == {"line": "nightly", "store": "s", "command": {"build": {"jobs": 3}}}


def test_the_projects_file_is_the_one_that_holds(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "below").mkdir()
    monkeypatch.chdir(here / "below")
    assert config("set", "--local", "line", "nightly") == 0
    assert (here / "below" / "cairn.toml").read_text() == 'line = "nightly"\n'
    (here / "below" / "cairn.toml").unlink()
    (here / "pyproject.toml").write_text("[project]\nname = 'x'\n\n[tool.cairn]\n")
    assert config("set", "--local", "release.log.json", "true") == 0
    table = tomllib.loads((here / "pyproject.toml").read_text())
    assert table["tool"] == {"cairn": {"command": {"release log": {"json": True}}}}
    assert main.make_parser().parse_args(["release", "log", "--store", "s"]).json is True


def test_dry_run_writes_nothing(here: Path) -> None:
    assert config("set", "--dry-run", "store", "s") == 0
    assert config("set", "trusted-folders", ".", "--dry-run") == 0
    assert not user_file(here).exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("set", "sotre", "s"), "did you mean store"),
        (("set", "biuld.targets", "gfx1100"), "did you mean build?"),
        (("set", "release.log.targets", "gfx1100"), "'targets' is no option of `cairn release log`"),
        (("set", "limit", "many"), "'many' is not a positive number"),
        (("set", "json", "perhaps"), "is true or false"),
        (("set", "store", "a", "b"), "it takes one value"),
        (("set", "config", "x"), "'config' is no option of any command"),
        (("set", "--local", "sign-key", __file__), "not for the file of a project"),
        (("set", "build_prod_wheels.py.build.pytorch-dri", "x"), "did you mean pytorch-dir"),
        (("set", "build_prod_wheel.py.clean", "true"), "did you mean build_prod_wheels.py?"),
        (("set", "pytorch-build-number", "1", "2"), "it takes one value"),
        (("get", "run_pytorch_tests.py.store"), "'store' is no option of `run_pytorch_tests.py`"),
        (("get", "store"), "store is not set"),
    ],
)
def test_what_cannot_be_set_is_said_in_a_line(
    words: tuple[str, ...], said: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert config(*words) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert shown.count("error: ") == 1
    assert not user_file(here).exists()


def test_list_shows_what_is_in_force_and_what_is_not_trusted(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config("set", "store", "https://me:hunter2@host.example/store")
    config("set", "index", "dev")
    (here / "cairn.toml").write_text('store = "theirs"\nline = "nightly"')
    monkeypatch.setenv("CAIRN_LINE", "release/2.9")
    capsys.readouterr()
    assert config("list", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert [(s["option"], s["place"], s["value"]) for s in shown["settings"]] == [
        ("line", "environment", "release/2.9"),
        ("store", "project", "theirs"),
        ("index", "user", "dev"),
    ]
    assert config("list") == 0
    text = capsys.readouterr()
    assert "may not set store" in text.err
    assert f"cairn config set trusted-folders {here}" in text.err
    (here / "cairn.toml").unlink()
    assert config("list") == 0
    assert "hunter2" not in capsys.readouterr().out
    (here / "cairn.toml").write_text('store = "theirs"')
    assert config("set", "trusted-folders", ".") == 0
    assert main.make_parser().parse_args(["release", "log"]).store == str(here / "theirs")


def test_a_file_that_is_wrong_can_be_looked_at_and_mended(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    user_file(here).parent.mkdir()
    user_file(here).write_text('sotre = "s"')
    assert config("list") == 2
    assert "'sotre' is no option of any command" in capsys.readouterr().err
    assert config("set", "sotre") == 0
    assert config("list") == 0
    assert "nothing is set" in capsys.readouterr().err
