"""The extras of pyproject.toml, and what is said where one is not installed."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import cairn
from cairn import extras, venv
from cairn.errors import CairnError, PrerequisiteError
from cairn.rocm import install as rocm
from helpers.trail import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
IMPORTED_AS = {"gitpython": "git", "griffelib": "griffe"}
IMPORTED_AS |= {"dask-jobqueue": "dask_jobqueue", "pypi-attestations": "pypi_attestations"}


@pytest.mark.parametrize("extra", extras.PACKAGES)
def test_the_table_has_what_pyproject_has(extra: extras.Extra) -> None:
    named = [Requirement(text) for text in PROJECT["optional-dependencies"][extra]]
    inner = {name for each in named if each.name == cairn.DISTRIBUTION for name in each.extras}
    names = {each.name.lower() for each in named} - {cairn.DISTRIBUTION}
    assert {IMPORTED_AS.get(name, name) for name in names} == set(extras.PACKAGES[extra])
    assert inner == set(extras.INCLUDED.get(extra, ()))


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
        "import shutil\n"  # a uv beside the interpreter would do, too
        "which = shutil.which\n"
        f"shutil.which = lambda name, **more: None if name in {packages!r} else which(name, **more)\n"
        "sys.argv[0] = 'cairn'\n"
        "from cairn.__main__ import main\n"
        "sys.exit(main())\n"
    )
    return subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=cwd,
        # A uv or patchelf of the machine would do.
        env={**os.environ, "PATH": str(cwd)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("package", "words", "extra"),
    [
        ("cryptography", ("ci", "run", "--stack", "sample"), "release"),
        ("aiohttp", ("index", "serve", "store"), "serve"),
        ("build", ("build", "--stack", "sample", "--gpu", "cpu"), "build"),
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
    assert said[1].endswith(f"pip install --editable '{ROOT}[{extra}]'")
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_belongs_to_no_extra_and_neither_does_what_nobody_has() -> None:
    assert extras.extra_of("pytest") is None
    assert extras.extra_of("no_such_package") is None


def test_a_repository_of_nights_is_checked_with_the_core_alone(tmp_path: Path) -> None:
    absent = (*extras.PACKAGES["build"], *extras.PACKAGES["release"], "pluggy", "pytest")
    done = without(*absent, words=("ci", "check"), cwd=tmp_path)
    assert f"error: {tmp_path} is not set up for nights" in done.stderr


def test_doctor_needs_no_extra_and_names_that_of_the_job(tmp_path: Path) -> None:
    absent = ("cryptography", "build", "git")
    done = without(*absent, words=("doctor", "--for", "build", "--json"), cwd=tmp_path)
    findings = {each["check"]: each for each in json.loads(done.stdout)["findings"]}
    assert findings["Cairn"]["text"] == "its extra build is not installed: build, git"
    assert findings["Cairn"]["fix"].endswith(f"'{ROOT}[build]'")


def test_a_build_names_all_that_is_missing_and_one_line(tmp_path: Path) -> None:
    words = ("build", "--stack", "pytorch", "--root-checkout-dir", "none", "--output-dir", "out")
    (tmp_path / "none").mkdir()
    done = without("build", "git", "uv", words=words, cwd=tmp_path)
    assert done.returncode == PrerequisiteError.exit_code, done.stderr
    assert "this needs what the core of Cairn does without: build, git, uv" in done.stderr
    assert "this machine lacks git, a C++ compiler" in done.stderr
    assert "no ROCm SDK is installed" in done.stderr
    assert "there is nothing to build: no checkout" in done.stderr
    assert done.stderr.splitlines()[-1].count("pip install --editable") == 1


@pytest.mark.parametrize(
    ("receipt", "begins"),
    [
        ("", f"{sys.executable} -m pip install --editable '{ROOT}[build]'"),
        ("uv-receipt.toml", f"uv tool install --editable '{ROOT}[build,"),
        ("pipx_metadata.json", f"pipx install --force --editable '{ROOT}[build,"),
    ],
)
def test_the_line_is_for_how_cairn_was_installed(
    receipt: str, begins: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if receipt:
        (tmp_path / receipt).touch()
        monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert extras.line("build").startswith(begins)


RUNS_MODULES = {
    "venv": lambda folder: venv.create(folder / "env"),
    "pip": lambda _: subprocess.run([*extras.pip(), "--version"], check=True),
    "rocm_sdk": lambda _: rocm.available_libraries(Path(sys.executable), ["amdhip64"]),
}


@pytest.mark.parametrize("module", RUNS_MODULES)
def test_no_module_of_the_current_folder_is_taken_for_the_one_that_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    """A checkout of somebody else's, in which a user types a command that has nothing to do with it."""
    for name in ("__init__.py", "__main__.py"):
        (tmp_path / "checkout" / module).mkdir(parents=True, exist_ok=True)
        (tmp_path / "checkout" / module / name).write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path / "checkout")
    with contextlib.suppress(CairnError):  # where there is no SDK
        RUNS_MODULES[module](tmp_path)
    assert not (tmp_path / "ran").exists()


SHOWN = {"build/job.py", "release/pages/targets_file.py"}
"""Where a line is written that a user types."""


def test_python_is_never_given_a_module_that_may_be_of_the_current_folder() -> None:
    package = ROOT / "build_tools" / "cairn"
    for path in sorted(package.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in (n for n in ast.walk(tree) if isinstance(n, ast.List | ast.Tuple)):
            words = [word.value if isinstance(word, ast.Constant) else None for word in node.elts]
            if "-m" in words[1:3] and path.relative_to(package).as_posix() not in SHOWN:
                assert {"-I", "-P"} & set(words), f"{path}:{node.lineno}"
