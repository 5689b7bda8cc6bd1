"""How every program begins and ends: an interrupt at any moment, and what nobody foresaw."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPTS = ROOT / "external-builds" / "pytorch"
CAIRN = [sys.executable, "-m", "cairn"]
# Stands in for a slow disk: the import of one module takes until somebody presses Ctrl-C.
_SLOW = """
import importlib.abc, os, sys, time
class Slow(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == os.environ["SLOW_MODULE"]:
            os.write(2, b"importing\\n")
            time.sleep(60)
sys.meta_path.insert(0, Slow())
"""
_BROKEN = """
import builtins, importlib.abc, sys
class Broken(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "cairn.cli.doctored":
            raise {error}
sys.meta_path.insert(0, Broken())
import cairn.cli.main
def parser():
    import cairn.cli.doctored
cairn.cli.main.make_parser = parser
"""


def environment(folder: Path, code: str, **more: str) -> Mapping[str, str]:
    (folder / "sitecustomize.py").write_text(code)
    return {**os.environ, "PYTHONPATH": str(folder), **more}


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("module", ["cairn.cli.main", "cairn.wheels"])
def test_an_interrupt_is_one_line(tmp_path: Path, module: str, sign: signal.Signals) -> None:
    (tmp_path / "x.whl").touch()
    variables = environment(tmp_path, _SLOW, SLOW_MODULE=module)
    command = [*CAIRN, "wheel", "show", "x.whl"]
    with subprocess.Popen(command, cwd=tmp_path, env=variables, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        assert child.stderr.readline() == "importing\n"
        child.send_signal(sign)
        output = child.stderr.read()
    assert child.returncode == 130
    assert output.splitlines()[0] == "error: interrupted"
    assert "Traceback" not in output


def test_a_page_of_help_that_cannot_be_made_is_one_line() -> None:
    command, variables = [*CAIRN, "help", "settings"], {**os.environ, "CAIRN_CONFIG": "~nobody-x/a"}
    ended = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert (ended.returncode, len(ended.stderr.splitlines())) == (2, 2)
    assert ended.stderr.startswith("error: CAIRN_CONFIG: ~nobody-x/a: the home folder is not known\n")


def test_a_job_in_the_background_of_a_shell_is_not_interrupted(tmp_path: Path) -> None:
    variables = environment(tmp_path, _SLOW.replace("60", "0.5"), SLOW_MODULE="cairn.cli.main")
    background = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh", *CAIRN, "--version"]
    with subprocess.Popen(
        background, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stderr is not None
        assert child.stdout is not None
        child.stderr.readline()
        child.send_signal(signal.SIGINT)
        assert child.stdout.read().startswith("cairn ")
    assert child.returncode == 0


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        ("RecursionError('too\\ndeep')", 12, r"error: internal error: RecursionError: too\ndeep"),
        ("KeyError('a')", 12, "error: internal error: KeyError: 'a'"),
        ("UnicodeDecodeError('utf-8', b'x', 0, 1, 'bad')", 12, "error: internal error: UnicodeDecodeError: "),
        ("ExceptionGroup('x', [ValueError(1)])", 12, "error: internal error: ExceptionGroup: "),
        ("AssertionError", 12, "error: internal error: AssertionError: "),
        ("ImportError('no', name='rich.text')", 3, "error: rich.text, which Cairn needs, cannot be imported"),
        ("ImportError('no', name='cairn.x')", 12, "error: internal error: ImportError: no"),
        ("MemoryError", 11, "error: not enough memory"),
        ("OSError(28, 'No space left on device', 'f')", 11, "error: No space left on device: f"),
        ("KeyboardInterrupt", 130, "error: interrupted"),
        ("BrokenPipeError(32, 'Broken pipe')", 130, ""),
    ],
)
def test_what_nobody_foresaw_is_one_line_with_a_code_of_its_own(
    tmp_path: Path, error: str, code: int, said: str
) -> None:
    variables = environment(tmp_path, _BROKEN.format(error=error))
    done = subprocess.run(CAIRN, env=variables, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(said)
    assert "Traceback" not in done.stderr
    if code == 12:
        assert "--debug" in done.stderr


def test_debug_shows_the_traceback_of_what_nobody_foresaw(tmp_path: Path) -> None:
    variables = environment(tmp_path, _BROKEN.format(error="KeyError('a')"))
    done = subprocess.run([*CAIRN, "--debug"], env=variables, capture_output=True, text=True, check=False)
    assert "Traceback" in done.stderr
    assert done.returncode == 1


def test_output_that_nobody_reads_is_no_traceback() -> None:
    done = subprocess.run(
        ["sh", "-c", '"$@" --help | true; "$@" --help > /dev/full', "sh", *CAIRN],
        capture_output=True,
        text=True,
        check=False,
    )
    tip = "  what to do: free some space and run the same command again\n"
    assert (done.returncode, done.stderr) == (11, f"error: No space left on device\n{tip}")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_has_enough_is_told_nothing(tmp_path: Path, unbuffered: str) -> None:
    files = [str(tmp_path / f"{number}.xml") for number in range(3_000)]
    done = subprocess.run(
        ["bash", "-c", '"$@" | head -1; echo ${PIPESTATUS[0]}', "sh", *CAIRN, "test", "report", *files],
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.splitlines()[1:], done.stderr) == (["130"], "")


def test_help_is_shown_where_the_screen_has_no_such_letters() -> None:
    variables = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run(
        [*CAIRN, "diff", "--help"], env=variables, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u2026" in done.stdout
