"""What a program loads: help is fast, and a command does without the rooms that it does not pass through."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cairn.cli import commands, main
from helpers import stacks
from helpers.build import repository
from helpers.wheels import build_wheel

SCRIPTS = Path(__file__).parents[3] / "external-builds" / "pytorch"
WINGS = tuple(
    f"cairn.{wing}"
    for wing in ("build", "pipeline", "release", "rocm", "sources", "store", "testing", "wheels", "formats")
)
# A wing declares the options of its requests in a module of its own, which loads nothing else of the wing.
OPTIONS = re.compile(r"cairn(\.\w+)*[._]options")
# Each takes longer to load than everything that is needed to say how a command is used.
HEAVY = (
    "rich", "requests", "git", "packaging", "msgspec", "tomllib", "difflib", "argcomplete", "asyncio",
    "jinja2", "subprocess",
)  # fmt: skip

PROGRAM = """
import runpy, sys
answer, *sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as ended:
    code = ended.code
with open(answer, "w") as file:
    print(code, *sys.modules, file=file)
"""


def loaded(folder: Path, script: Path, *words: str | Path) -> set[str]:
    """The modules that a program, which must succeed, has loaded when it ends."""
    answer = folder / "answer"
    subprocess.run(
        [sys.executable, "-c", PROGRAM, answer, script, *words],
        cwd=folder,
        env={**os.environ, "CAIRN_CACHE_DIR": str(folder / "cache")},
        capture_output=True,
        check=True,
    )
    code, *names = answer.read_text().split()
    assert code == "0"
    return set(names)


def wings(names: set[str]) -> set[str]:
    """The modules of wings among these, but for declared options and the packages on the way to them."""
    options = {name for name in names if OPTIONS.fullmatch(name)}
    packages = {name for name in names if any(option.startswith(f"{name}.") for option in options)}
    return {name for name in names - options - packages if name.startswith(WINGS)}


def cairn(folder: Path, *words: str | Path) -> set[str]:
    return loaded(folder, Path(main.__file__).parents[1] / "__main__.py", *words)


@pytest.mark.parametrize(
    "words",
    [
        ["--version"],
        ["--help"],
        *([group, "--help"] for group in commands.PROGRAM.commands),
        ["manifest", "create", "--help"],
        ["wheel", "show", "--help"],
        ["test", "smoke", "--help"],
        ["index", "publish", "--help"],
        ["release", "promote", "--help"],
        ["ci", "run", "--help"],
        ["image", "build", "--help"],
    ],
    ids=" ".join,
)
def test_help_loads_no_wing_and_nothing_heavy(tmp_path: Path, words: list[str]) -> None:
    names = cairn(tmp_path, *words)
    assert not wings(names) | names.intersection(HEAVY)


@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("*.py")), ids=lambda path: path.name)
def test_help_of_a_script_loads_no_wing_and_nothing_heavy(tmp_path: Path, script: Path) -> None:
    names = loaded(tmp_path, script, "--help")
    assert not wings(names) | names.intersection(HEAVY)


def test_help_of_a_build_loads_the_stack_alone_whose_projects_it_has_flags_for(tmp_path: Path) -> None:
    names = loaded(tmp_path, SCRIPTS / "build_prod_wheels.py", "build", "--help")
    assert "cairn.stack" in names
    assert not wings(names) | names.intersection(("rich", "requests", "git", "difflib", "asyncio"))


def test_a_checkout_loads_nothing_that_builds_or_knows_wheels(tmp_path: Path) -> None:
    origin = repository(tmp_path / "origin", {"version.txt": "1.0\n"})
    torch = stacks.project("torch", origin, hashtag="HEAD")
    (tmp_path / "stack.toml").write_text(stacks.stack(torch))
    names = cairn(tmp_path, "checkout", "torch", "--stack", tmp_path)
    assert (tmp_path / "torch" / "version.txt").read_text() == "1.0\n"
    assert not names.intersection(set(WINGS) - {"cairn.sources"})
    assert not names.intersection(("requests", "git", "asyncio", "jinja2"))


def test_changing_a_version_loads_neither_msgspec_nor_what_judges(tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path, files={"demo.py": b""})
    names = cairn(
        tmp_path, "wheel", "set-version", wheel, "--version", "2.0", "--output-dir", tmp_path / "out"
    )
    assert list((tmp_path / "out").glob("*.whl"))
    assert not names.intersection(("msgspec", "cairn.wheels.verify", "requests"))


def test_looking_at_a_wheel_loads_what_reads_wheels_alone(tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path, files={"demo.py": b""})
    names = cairn(tmp_path, "wheel", "show", wheel)
    assert not names.intersection(set(WINGS) - {"cairn.wheels", "cairn.formats"})
