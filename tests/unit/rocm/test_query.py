"""What an SDK answers of itself, however its program prints it."""

from pathlib import Path

import pytest

from cairn import venv
from cairn.errors import PrerequisiteError
from cairn.rocm import install

ANSWER = """
import atexit, os, subprocess, sys
def answer():
    words = sys.argv[1:]
    return {"version": "7.10.0", "targets": "gfx942;gfx1100"}.get(words[0]) or f"/sdk/{words[1][2:]}"
"""
PRINTS = {
    "by print": "print(answer())",
    "and ends": "print(answer()); sys.exit()",
    "and ends well": "print(answer()); sys.exit(0)",
    "without a line end": "os.write(1, answer().encode())",
    "by a buffer": "sys.stdout.buffer.write(answer().encode())",
    "by a child": "subprocess.run(['echo', answer()], check=True)",
    "and a warning": "print('beware', file=sys.stderr); print(answer())",
    "and a word at the end": "print(answer()); atexit.register(print, 'bye')",
}
FAILS = {
    "a text": ("sys.exit('rocm-sdk: error: no devel files')", "no devel files"),
    "a number": ("print('rocm-sdk: error: broken', file=sys.stderr); sys.exit(3)", "broken"),
    "nothing": ("", "rocm-sdk failed without a message"),
    "an early end": ("print(answer(), flush=True); os._exit(0)", "rocm-sdk failed without a message"),
    "another program": ("os.execv('/bin/true', ['true'])", "rocm-sdk failed without a message"),
    "an exception": ("raise OSError('no such file')", "no such file"),
    "one question": (
        "sys.exit('rocm-sdk: error: no cmake') if '--cmake' in sys.argv else print(answer())",
        "no cmake",
    ),
    "no output": ("sys.stdout.close()", "closed file"),
}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> venv.VirtualEnvironment:
    environment = venv.create(tmp_path_factory.mktemp("sdk") / "env")
    (environment.site_packages / "rocm_sdk").mkdir()
    return environment


def write(environment: venv.VirtualEnvironment, program: str) -> Path:
    path = environment.site_packages / "rocm_sdk" / "__main__.py"
    path.write_text(f"{ANSWER}{program}\n")
    return environment.python


@pytest.mark.parametrize("way", PRINTS)
def test_an_answer_is_read_however_it_is_printed(environment: venv.VirtualEnvironment, way: str) -> None:
    info = install.query(write(environment, PRINTS[way]))
    assert (info.version, info.targets) == ("7.10.0", ("gfx942", "gfx1100"))
    assert [path.as_posix() for path in (info.root, info.bin, info.cmake)] == [
        *("/sdk/root", "/sdk/bin", "/sdk/cmake")
    ]


@pytest.mark.parametrize("way", FAILS)
def test_an_sdk_that_does_not_answer_is_one_line(environment: venv.VirtualEnvironment, way: str) -> None:
    program, message = FAILS[way]
    with pytest.raises(PrerequisiteError, match=message):
        install.query(write(environment, program))


def test_an_environment_without_an_sdk_is_named(tmp_path: Path) -> None:
    environment = venv.create(tmp_path / "env")
    with pytest.raises(PrerequisiteError, match="there is no ROCm SDK in the environment"):
        install.query(environment.python)
