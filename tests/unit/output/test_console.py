import argparse
import contextlib
import fcntl
import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator

import pytest

from cairn.cli.guard import guarded
from cairn.output import console
from cairn.output.console import Console, Stage


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
def test_stages_are_folded_and_groups_never_nest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    console = Console()
    for name in ("one", "two"):
        with console.stage(name):
            pass
    with console.stage("three"), console.stage("beside it"):
        pass
    with console.steps(1), console.stage("four"):
        pass
    with console.stage("50% of a\n::error::b\r::endgroup::"):
        pass
    shown = [line.split(" 0.")[0] for line in capsys.readouterr().err.splitlines()]
    assert shown[:6] == ["::group::one", "::endgroup::", "✓ one", "::group::two", "::endgroup::", "✓ two"]
    assert shown[6:11] == ["::group::three", "::endgroup::", "→ beside it", "✓ beside it", "✓ three"]
    assert shown[11:13] == ["::group::[1/1] four", "::endgroup::"]
    # Escaped as the runner reads it.
    assert shown[14] == r"::group::50%25 of a\n::error::b\r::endgroup::"
    monkeypatch.setenv("FORCE_COLOR", "1")  # it does not make a log a terminal
    with Console().stage("one"):
        pass
    assert capsys.readouterr().err.splitlines()[:2] == ["::group::one", "::endgroup::"]


@pytest.mark.usefixtures("in_actions")
def test_a_whole_log_is_folded_in_one_piece(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever other stages say meanwhile, and with no command to CI of those who wrote the log."""
    console = Console()
    inside, spoken = threading.Event(), threading.Event()

    def log() -> Iterator[str]:
        yield "cc -c a.c"
        inside.set()
        spoken.wait(0.2)
        yield "::endgroup::"
        yield "\x1b[31m::error::b"

    def speak() -> None:
        inside.wait()
        with console.stage("build vision"):
            spoken.set()

    other = threading.Thread(target=speak)
    other.start()
    with console.stage("build torch"):
        console.fold("log of torch\n::endgroup::", log())
        other.join()
    shown = [line.split(" 0.")[0] for line in capsys.readouterr().err.splitlines()]
    begin = shown.index(r"::group::log of torch\n::endgroup::")
    assert shown[:begin] == ["::group::build torch", "::endgroup::"]
    assert [line.strip() for line in shown[begin + 1 : begin + 4]] == [
        "| cc -c a.c",
        "| ::endgroup::",
        r"| \x1b[31m::error::b",
    ]
    assert shown[begin + 4] == "::endgroup::"
    assert shown[begin + 5 :] == ["→ build vision", "✓ build vision", "✓ build torch"]


def test_a_log_is_not_printed_where_nothing_folds_it(
    capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    Console().fold("log", ["a line"])
    request.getfixturevalue("in_actions")
    Console(quiet=True).fold("log", ["a line"])
    assert capsys.readouterr() == ("", "")


def test_a_result_that_the_screen_cannot_show_is_escaped() -> None:
    code = """
import argparse
from cairn.output import console
from cairn.cli.guard import guarded
def show(options):
    console.current().out("pyt\\u00f6rch \\udcff")
    console.current().json("\\u00f6")
guarded(argparse.Namespace(run=show))
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
    stage.update("\x1b]0;title\x07\x9b31mred\x1b]8;;http://x\x1b\\link\u202e\x85\x1bc!")
    assert stage.line == "redlinkc!"


def test_steps_are_numbered_and_what_is_kept_counts(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console()
    with console.steps(10):
        with console.stage("one"):
            pass
        console.say_kept("two", "nothing changed")
        with console.stage("three") as stage:
            stage.end_as("bypassed", "untested")
    with console.stage("outside"):
        pass
    shown = [re.sub(r" \d\.\d s", "", line) for line in capsys.readouterr().err.splitlines()]
    assert shown == [
        "[ 1/10] → one",
        "[ 1/10] ✓ one",
        "[ 2/10] = two  kept: nothing changed",
        "[ 3/10] → three",
        "[ 3/10] ! three  bypassed: untested",
        "→ outside",
        "✓ outside",
    ]


def test_a_stage_that_fails_is_not_shown_as_something_else(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="x"), Console().stage("one") as stage:
        stage.end_as("bypassed", "untested")
        raise ValueError("x")
    assert capsys.readouterr().err.splitlines()[1].startswith("✗ one")


SHOW = """
import time
from cairn.output.console import Console
console = Console()
with console.steps(12), console.stage("pass the gate") as stage:
    stage.update("a program's line " * 20)
    time.sleep(0.3)  # so that it is drawn
    stage.end_as("bypassed", "untested on hardware: gfx1100, gfx1101, gfx1102, gfx1103, gfx1150, gfx1151")
name = "torch-2.9.0-cp311-cp311-linux_x86_64.whl"
console.table(("wheel", "targets", "sha256"), [(name, "gfx942", "a" * 40)])
console.item("bypassed", "word " * 40)
"""


def on_a_terminal(columns: int, **variables: str) -> list[str]:
    """What a terminal of that width shows of `SHOW`, without colours and what was drawn over."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    env = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR", "GITHUB_ACTIONS", "CI")}
    env |= {"TERM": "xterm", **variables}
    with subprocess.Popen([sys.executable, "-c", SHOW], stdout=theirs, stderr=theirs, env=env) as child:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # Linux says EIO where the other side of a terminal is closed
            while data := os.read(ours, 65536):
                shown += data
        assert child.wait() == 0, shown
    os.close(ours)
    assert b"a program's" in shown
    assert b"\\u" not in shown
    text = re.sub(r"\x1b\[[0-?]*[ -/]*[@-~]", "", shown.decode())
    return [line.rsplit("\r", 1)[-1] for line in text.replace("\r\n", "\n").splitlines()]


def test_nothing_that_cairn_lays_out_is_wider_than_the_terminal() -> None:
    shown = {columns: on_a_terminal(columns) for columns in (80, 100)}
    for columns, lines in shown.items():
        assert all(len(line) <= columns for line in lines), lines
        assert any(line.startswith("[ 1/12] ! pass the gate") for line in lines)
        assert any(line.strip().startswith("bypassed: untested on hardware") for line in lines)
    name = "torch-2.9.0-cp311-cp311-linux_x86_64.whl"
    # A row that is too wide begins with a line of its own.
    assert shown[80][shown[80].index(name) + 1] == f"  gfx942   {'a' * 40}"
    assert f"{name}  gfx942   {'a' * 40}" in shown[100]


def test_signs_that_the_screen_lacks_are_drawn_in_ascii() -> None:
    on_a_terminal(40, PYTHONIOENCODING="iso8859-1:backslashreplace", PYTHONUTF8="0")
    code = "from cairn.output.console import Console\nwith Console().stage('é'): pass"
    env = {**os.environ, "PYTHONIOENCODING": "iso8859-1:backslashreplace", "PYTHONUTF8": "0"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True)
    assert [line[:3] for line in done.stderr.decode("iso8859-1").splitlines()] == ["> é", "+ é"]


HOSTILE = (
    "::error::x",
    "  ::add-mask::x",
    "\u00a0::set-output name=a::b",
    "a ##[error]x",
    "##vso[task.setvariable]x",
)
COMMAND = re.compile(r"^\s*::|##\w*\[")  # what GitHub's runner and Azure's agent look for in a line


@pytest.mark.usefixtures("in_actions")
@pytest.mark.parametrize("text", HOSTILE)
def test_what_others_wrote_is_no_command_to_ci(capsys: pytest.CaptureFixture[str], text: str) -> None:
    console = Console(verbose=True)
    console.out(text)
    console.item("done", text)
    console.table((text, "x"), [(text, text)])
    console.json({text: [text]})
    console.info(f"{text}\n{text}\r{text}")
    console.warn(text)
    console.error(text, tip=text, lines=[text])
    console.say_kept(text, text)
    with console.stage(text) as stage, console.stage("inside"):
        stage.update(text)
        stage.end_as("bypassed", text)
    shown = capsys.readouterr()
    lines = [*shown.out.splitlines(), *shown.err.splitlines()]
    found = [line for line in lines if COMMAND.search(line)]
    own = [line for line in found if line == "::endgroup::" or line.startswith("::group::")]
    assert found == own
    assert len(own) == 2
    assert json.loads(shown.out[shown.out.index("{") :]) == {text: [text]}


@pytest.mark.usefixtures("in_actions")
def test_the_sign_of_life_of_a_stage_is_no_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cairn.output.console._HEARTBEAT", 0.1)
    with Console().stage("::error::x") as stage:
        stage.update("##[error]y")
        capsys.readouterr()
        said = ""
        while "error]y" not in said:
            time.sleep(0.01)
            said += capsys.readouterr().err
    assert [line for line in said.splitlines() if COMMAND.search(line)] == []


@pytest.mark.parametrize("text", ["\x1b[2Ja", "a\x9b2J", "a\u202eb", "a\x07"])
def test_no_text_moves_the_screen(capsys: pytest.CaptureFixture[str], text: str) -> None:
    console = Console(verbose=True)
    console.info(text)
    console.say_kept(text, text)
    with console.stage(text) as stage:
        stage.update(text)
    shown = capsys.readouterr().err
    assert [letter for letter in shown if not letter.isprintable() and letter != "\n"] == []


def test_outside_of_ci_a_text_is_shown_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("CI", "GITHUB_ACTIONS", "TF_BUILD"):
        monkeypatch.delenv(name, raising=False)
    for text in HOSTILE:
        Console().out(text)
    assert capsys.readouterr().out.splitlines() == [*HOSTILE]


def test_numbers_are_rounded_before_their_unit_is_chosen() -> None:
    assert [console.size(count) for count in (999, 999_949, 999_950, 10**15)] == [
        "999 B", "999.9 kB", "1.0 MB", "1000.0 TB",
    ]  # fmt: skip
    assert [console.clock(seconds) for seconds in (59.94, 59.96, 60.9, 125)] == [
        "59.9 s", "1 min 00 s", "1 min 00 s", "2 min 05 s",
    ]  # fmt: skip
