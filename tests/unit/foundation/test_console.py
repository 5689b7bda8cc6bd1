import argparse
import contextlib
import io
import json
import os
import subprocess
import sys

import pytest

from cairn.cli.main import guarded
from cairn.console import Console, Stage


@pytest.fixture
def in_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")


def test_json_is_alone_on_standard_output_and_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"target": "a:x:b :smile:", "markup": "[bold]x[/bold]", "long": "word " * 100, "é": "\x1b\t"}
    console = Console()
    with console.stage("work") as stage:
        stage.update("line")
        console.info("said")
        console.warn("warned")
        console.json(value)
    assert json.loads(capsys.readouterr().out) == value


def test_quiet_leaves_results_warnings_and_errors(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(quiet=True)
    with console.stage("work"):
        console.info("said")
    console.out("result")
    console.warn("careful")
    console.error("wrong", tip="mend it")
    shown = capsys.readouterr()
    assert shown.out == "result\n"
    assert shown.err.splitlines() == ["warning: careful", "error: wrong", "  what to do: mend it"]


def test_names_from_outside_stay_in_their_line(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console()
    evil = "a\n::error::b\x1b[2J\x9b\u202ec\r"
    shown = r"a\n::error::b\x1b[2J\x9b\u202ec\r"
    console.out(evil)
    console.table(("x", "y"), [("1", evil)])
    assert capsys.readouterr().out.splitlines() == [
        shown,
        f"x  {'y'.ljust(len(shown))}".rstrip(),
        f"1  {shown}",
    ]
    console.warn(evil)
    console.error(evil, tip=evil, lines=[evil])
    wanted = ["warning: ", "  | ", "error: ", "  what to do: "]
    assert capsys.readouterr().err.splitlines() == [start + shown for start in wanted]


def test_a_console_follows_the_standard_streams() -> None:
    console = Console()
    for _ in range(2):
        with (
            io.StringIO() as out,
            io.StringIO() as err,
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            console.out("result")
            console.info("said")
            assert (out.getvalue(), err.getvalue()) == ("result\n", "said\n")


@pytest.mark.usefixtures("in_actions")
def test_stages_that_follow_each_other_are_folded(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console()
    for name in ("one", "two"):
        with console.stage(name):
            pass
    shown = [line.split(" 0.")[0] for line in capsys.readouterr().err.splitlines()]
    assert shown == ["::group::one", "::endgroup::", "✓ one", "::group::two", "::endgroup::", "✓ two"]


@pytest.mark.usefixtures("in_actions")
def test_stages_side_by_side_never_nest_groups(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console()
    with console.stage("one"), console.stage("two"):
        pass
    shown = [line.split(" 0.")[0] for line in capsys.readouterr().err.splitlines()]
    assert shown == ["::group::one", "::endgroup::", "→ two", "✓ two", "✓ one"]


@pytest.mark.usefixtures("in_actions")
def test_forced_colour_does_not_make_a_log_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    console = Console()
    with console.stage("one"):
        pass
    assert capsys.readouterr().err.splitlines()[:2] == ["::group::one", "::endgroup::"]


def test_a_result_that_the_screen_cannot_show_is_escaped() -> None:
    code = """
import argparse
from cairn import console
from cairn.cli import main
def show(options):
    console.current().out("pyt\\u00f6rch \\udcff")
    console.current().json("\\u00f6")
main.guarded(argparse.Namespace(run=show))
"""
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["pyt\\xf6rch \\udcff", '"\\u00f6"'], done.stderr


def test_no_memory_left_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def run(_: argparse.Namespace) -> int:
        raise MemoryError

    assert guarded(argparse.Namespace(run=run)) == 11
    assert capsys.readouterr().err.startswith("error: not enough memory\n")


def test_a_programs_colours_and_moves_are_left_out_of_the_live_line() -> None:
    stage = Stage(name="build")
    stage.update("\x1b[2K\x1b[1;32mCompiling\x1b[0m 石\r")
    assert stage.line == "Compiling 石"
