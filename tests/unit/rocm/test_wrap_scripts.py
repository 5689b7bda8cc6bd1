"""The small shell scripts through which programs of the machine appear in the SDK's tools."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from cairn.errors import UsageError
from cairn.rocm import packages_toml, write_packages
from cairn.rocm.packages_toml import Wrap

AWKWARD = ["plain", "two words", "it's", 'a "quote"', "$HOME `id` $(id)", "back\\nslash", "two\nlines"]
AWKWARD += ["ünï ✓", "-n", "*"]
SAYING = '#!/bin/sh\nprintf \'%s|\' "$VALUE" "${GONE-unset}" "$@"\n'


def wrapped(folder: Path, wrap: Wrap) -> Path:
    path = folder / "wrapper"
    path.write_bytes(write_packages._wrapper(wrap))
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("text", AWKWARD)
def test_a_wrapper_runs_its_program_whatever_is_in_its_path_and_variables(text: str, tmp_path: Path) -> None:
    folder = tmp_path / text.replace("/", "")
    folder.mkdir()
    program = folder / "real program"
    program.write_text(SAYING)
    program.chmod(0o755)
    script = wrapped(
        tmp_path, Wrap(path="bin/x", program=str(program), environment={"VALUE": text}, unset=("GONE",))
    )
    env = {**os.environ, "GONE": "here"}
    done = subprocess.run([script, text, ""], capture_output=True, text=True, check=True, env=env)
    assert done.stdout == f"{text}|unset|{text}||"


@pytest.mark.parametrize("text", AWKWARD)
def test_a_wrapper_says_what_is_missing_as_it_is_written(text: str, tmp_path: Path) -> None:
    program = tmp_path / text / "no program"
    script = wrapped(tmp_path, Wrap(path="bin/it's", program=str(program), hint=text))
    done = subprocess.run([script], capture_output=True, text=True, check=False)
    assert done.returncode == 127
    assert done.stderr == f"it's: no {program} on this machine; {text}\n"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ('environment = { "A B" = "x" }', "'A B'"),
        ('environment = { "A=1; id" = "x" }', "'A=1; id'"),
        ('unset = ["A; id"]', "'A; id'"),
        ('path = "../outside"', "'../outside'"),
        ('program = "hipcc"', "'hipcc'"),
    ],
)
def test_what_cannot_be_a_wrapper_is_refused_when_it_is_read(given: str, named: str, tmp_path: Path) -> None:
    lines = {"path": 'path = "bin/x"', "program": 'program = "/usr/bin/x"'}
    lines[given.split(maxsplit=1)[0]] = given
    path = tmp_path / "packages.toml"
    head = 'schema = "cairn.rocm-packages/1"\n[core]\n[libraries]\n[devel]\n[[wrap]]\n'
    path.write_text(head + "\n".join(lines.values()))
    with pytest.raises(UsageError, match="wrap") as caught:
        packages_toml.read(path)
    assert named in str(caught.value)
