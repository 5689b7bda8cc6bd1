"""Cairn as its wheel brings it: the program, the stacks in it, and its judgement of a wheel."""

import re
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

VERSION = metadata.version("cairn-wheels")


def cairn(*words: str, cwd: Path, code: int = 0) -> str:
    run = subprocess.run(
        [sys.executable, "-m", "cairn", *words], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert run.returncode == code, run.stderr
    return run.stdout + run.stderr


def test_the_program_has_the_version_of_its_wheel(tmp_path: Path) -> None:
    said = cairn("--version", cwd=tmp_path)
    assert re.fullmatch(r"cairn (\S+)\n", said)
    assert VERSION.startswith(said.split()[1])


def test_its_stacks_are_in_it(tmp_path: Path) -> None:
    assert "gfx94X-dcgpu" in cairn("matrix", "--stack", "pytorch", "--trigger", "nightly", cwd=tmp_path)


def test_it_judges_a_wheel(tmp_path: Path) -> None:
    path = tmp_path / "demo-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("demo.py", "")
    said = cairn("wheel", "verify", str(path), cwd=tmp_path, code=7)
    assert "demo-1.0-py3-none-any.whl" in said


def test_what_is_not_installed_is_named(tmp_path: Path) -> None:
    said = cairn("ci", "run", "--stack", "sample", cwd=tmp_path, code=3)
    assert "pip install 'cairn-wheels[release]'" in said
