"""The flags of TheRock's scripts: ours take them, or a table says why not."""

import argparse
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from cairn.cli import binder, main
from cairn.cli.upstream import pytorch_tests
from helpers.wheels import build_wheel

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/reference/therock.md").read_text(encoding="utf-8")
PYTORCH = "external-builds/pytorch/"
UPSTREAM = tomllib.loads((ROOT / "tests/upstream/flags.toml").read_text(encoding="utf-8"))
FLAGS = UPSTREAM["flags"]


def _commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from _commands(child)


@pytest.mark.parametrize(("command", "flags"), FLAGS.items(), ids=list(FLAGS))
def test_each_flag_of_theirs_is_taken_or_in_the_table(command: str, flags: str) -> None:
    script, *words = command.split()
    command = " ".join([Path(script).name, *words])
    answer = subprocess.run(
        [sys.executable, ROOT / script, *words, "--help"], capture_output=True, text=True, check=True
    )
    usage = answer.stdout.partition("\n\n")[0]
    taken = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", usage))
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and command in line]
    refused = {
        flag
        for row in rows
        if "not there" in row
        for flag in re.findall(r"--?[a-z][a-z-]*", row.split("|")[1])
    }
    assert set(flags.split()) - taken == refused & set(flags.split())


@pytest.mark.parametrize(
    ("words", "one", "all_of_them"),  # what a configuration's tests see that need one GPU, or all
    [
        ("", "one", "all"),
        ("--device-query all", "one", "all"),
        ("--device-query unique", "one", "one-of-each"),
        ("--gpu-policy single --device-query all", "one", "one"),
        ("--gpu-policy all", "one-of-each", "all"),
        ("--gpu-policy all --device-query unique", "one-of-each", "one-of-each"),
        ("--gpu-policy all --device-query all", "all", "all"),
    ],
)
def test_gpus_are_queried_and_then_chosen_as_upstream_has_it(words: str, one: str, all_of_them: str) -> None:
    parser = pytorch_tests.run_pytorch_tests(Path("run_pytorch_tests.py"))
    request = binder.make(
        pytorch_tests.RunTests, parser.parse_args(["--pytorch-dir", str(ROOT), *words.split()])
    )
    assert pytorch_tests.gpu_choice(request, "one") == one
    assert pytorch_tests.gpu_choice(request, "all") == all_of_them


def test_each_script_for_github_actions_has_a_row() -> None:
    below = PAGE.partition("## Scripts for GitHub Actions")[2]
    rows = [line.strip("| ").split(" | ") for line in below.splitlines() if line.startswith("| `")]
    scripts = UPSTREAM["scripts"]["build_tools/github_actions"].split()
    assert sorted(row[0].strip("`") for row in rows) == sorted(scripts)
    parsers = {" ".join(parser.prog.split()) for parser in _commands(main.make_parser(whole=True))}
    for name, ours, *_ in rows:
        for command in re.findall(r"`(cairn [a-z ]+[a-z])", ours):
            assert command in parsers, (name, command)


def test_the_wheels_of_a_folder_are_verified(tmp_path: Path) -> None:
    script = [sys.executable, str(ROOT / PYTORCH / "sanity_check_wheel.py"), str(tmp_path)]
    answer = subprocess.run(script, capture_output=True, text=True, check=False)
    assert (answer.returncode, "has no wheels" in answer.stderr) == (2, True)
    build_wheel(tmp_path, requires=())
    assert subprocess.run(script, capture_output=True, check=False).returncode == 0
    (tmp_path / "torch-2.9.0-py3-none-any.whl").write_bytes(bytes(200_000))
    answer = subprocess.run(script, capture_output=True, text=True, check=False)
    assert answer.returncode != 0
    assert "torch-2.9.0" in answer.stdout + answer.stderr
