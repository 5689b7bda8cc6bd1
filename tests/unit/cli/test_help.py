import argparse
import ast
import re
from pathlib import Path

import pytest

import cairn
from cairn import converters
from cairn.cli import main
from cairn.cli.upstream import build_prod_wheels
from helpers.parsers import all_parsers, below, leaves

PARSERS = all_parsers()
COMMANDS = [command for parser in PARSERS for command in below(parser)]
every_command = pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.prog)

UPSTREAMS_OWN = ("checkout_from_manifest", "fetch_artifacts", "build_python_packages", "sanity_check")
"""Scripts whose options are worded after upstream's pages."""

# Options that have the same name and, on purpose, another meaning where another thing is asked for.
SEVERAL_MEANINGS = {
    "--artifacts": "of a night, and of a run of TheRock",
    "--cache-store": "of a build by hand, and of a workflow, which has an empty one for none",
    "--rocm-index-url": "of a build, and of one whose SDK the store has",
    "--debug": "of every command, and upstream's of its tests",
    "--exclude": "artifacts, and libraries",
    "--families": "built side by side, of a matrix, of an SDK, and of artifacts",
    "--find-links": "pip's places, and folders that `wheel verify` reads",
    "--force": "local work in the way, and files that somebody has changed",
    "--image": "what a night builds in, and what to run",
    "--jobs": "compile jobs, and submodules",
    "--leg": "of a night, and a build for several of them",
    "--lines": "built side by side, of a matrix, and those that must have nights",
    "--matrix": "a matrix.toml, and the legs that a night expects",
    "--night": "one to go on with, and one to take back",
    "--notify": "of a promotion, and of a night",
    "--older-than": "objects of an index, and wheels of a cache",
    "--platform": "of wheels, and of artifacts",
    "--trim": "an SDK, and a cache",
    "--python": "an interpreter, an environment, or versions",
    "--pythons": "interpreters, and versions of a matrix",
    "--pytorch-version": "of a run to come, and instead of the wheel's",
    "--reason": "of a bypass, a yank, or what the log alone says",
    "--release": "of ROCm, and the branch of a release of triton",
    "--release-type": "of the SDK, and of a run",
    "--require": "of a wheel, of a set, or to be mirrored",
    "--gpu": "to install for, and whether a container sees GPUs",
    "--rocm-version": "to be installed, to be packaged, and in a version",
    "--set": "to be published, and to be tested",
    "--timeout": "of a run of pytest, and of a probe",
    "--to": "an index, and a generation",
    "--trust": "signers of wheels, and of test records",
    "--version": "of the program, and of a wheel",
    "--work-dir": "of a whole trail, and of one job of a night",
}


@every_command
def test_every_command_has_help_and_the_general_options(command: argparse.ArgumentParser) -> None:
    assert command.description
    assert "SUPPRESS" not in command.format_help()
    for action in command._actions:
        assert action.help or isinstance(action, argparse._SubParsersAction), action
        assert action.help != argparse.SUPPRESS, action
    assert not command.allow_abbrev
    assert {"-h", "-q", "--quiet", "-v", "--verbose", "--debug"} <= command._option_string_actions.keys()


@every_command
def test_the_example_is_of_this_command_and_has_its_options_alone(command: argparse.ArgumentParser) -> None:
    example = str(command.epilog)
    assert example.startswith("example: ")
    words = example.removeprefix("example: ").removeprefix("python ").split(" -- ")[0].split()
    path = command.prog.split()
    assert words[: len(path)] == path
    known = {o for parser in below(command) for o in parser._option_string_actions}
    assert {word.split("=")[0] for word in words if word.startswith("-")} <= known


@every_command
def test_names_of_options_are_of_one_kind(command: argparse.ArgumentParser) -> None:
    for action in command._actions:
        for name in action.option_strings:
            assert re.fullmatch(r"-[a-zA-Z]|--[a-z0-9]+(-[a-z0-9]+)*", name)
        if (
            action.metavar == "DIR"
            and action.option_strings
            and "append" not in type(action).__name__.lower()
        ):
            names = ("--prefix", "--artifacts", "--output-path")  # of ROCm, and upstream's
            assert action.option_strings[0].endswith("-dir") or action.option_strings[0] in names


def test_a_private_key_that_an_option_names_is_kept_from_foreign_code() -> None:
    options = [action for command in COMMANDS for action in command._actions if action.option_strings]
    keys = [action for action in options if "private key" in str(action.help)]
    assert {action.option_strings[0] for action in keys} == {"--sign-key", "--root-key", "--builder-key"}
    assert {action.type for action in keys} == {converters.private_key}


def test_commands_and_options_do_not_grow_unseen() -> None:
    """There were 88 commands with 718 options: what adds one looks for one that it can take away."""
    commands = [*leaves(PARSERS[0])]
    general = {"help", "verbose", "quiet", "debug", "json"}
    options = [a for c in commands for a in c._actions if a.option_strings and a.dest not in general]
    assert (len(commands) <= 73, len(options) <= 632) == (True, True), (len(commands), len(options))


def test_an_option_has_one_wording_wherever_it_is() -> None:
    wordings: dict[str, set[str]] = {}
    ours = [command for command in COMMANDS if not command.prog.startswith(UPSTREAMS_OWN)]
    for command in ours:
        for action in command._actions:
            for name in action.option_strings:
                wordings.setdefault(name, set()).add(str(action.help).partition(" (default: ")[0])
    several = {name for name, texts in wordings.items() if len(texts) > 1}
    assert several == SEVERAL_MEANINGS.keys()
    for name in ("--json", "--output-dir", "--dry-run", "--stack", "--targets", "--index", "--store"):
        assert len(wordings[name]) == 1, name


def test_what_writes_wheels_or_packages_asks_for_the_folder_by_one_name() -> None:
    writing = ("set-version", "repair", "fat", "split", "join")
    for words in (*(f"wheel {word}" for word in writing), "rocm package"):
        (command,) = (c for c in COMMANDS if c.prog == f"cairn {words}")
        assert command._option_string_actions["--output-dir"].required


@pytest.mark.parametrize("command", [*leaves(PARSERS[0])], ids=lambda command: command.prog)
def test_a_command_has_the_same_help_where_it_alone_is_loaded(
    command: argparse.ArgumentParser, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main.make_parser().parse_args([*command.prog.split()[1:], "--help"])
    assert capsys.readouterr().out == command.format_help()


def test_links_before_and_after_the_command_are_all_kept() -> None:
    parser = build_prod_wheels.make_parser(Path("build_prod_wheels.py"))
    given = ["--find-links", "a", "build", "--find-links", "b", "--find-links", "c", "--output-dir", "out"]
    assert build_prod_wheels._request(parser.parse_args(given)).sdk_request().source.find_links == (
        "a",
        "b",
        "c",
    )
    alone = build_prod_wheels._request(parser.parse_args(given[2:3] + given[-2:]))
    assert alone.sdk_request().source.find_links == ()


def test_upstreams_release_types_are_taken() -> None:
    parser = build_prod_wheels.make_parser(Path("build_prod_wheels.py"))
    for kind in ("ci", "dev", "dev-bkc", "nightly", "nightly-bkc", "prerelease", "stable"):
        given = parser.parse_args(["build", "--release-type", kind, "--output-dir", "out"])
        assert given.release_type == kind


def test_what_the_program_says_to_type_can_be_typed() -> None:
    """Advice in errors, docstrings and pages names commands that there are, with options that they have."""
    commands = {command.prog: command for command in COMMANDS if command.prog.startswith("cairn ")}
    groups = {prog.rpartition(" ")[0] for prog in commands} | {"cairn"}
    wrong = []
    for path in sorted((Path(cairn.__file__).parent).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for line in _text(node).splitlines():
                for words in re.findall(r"(?<![\w./-])cairn((?: [a-z][a-z-]*\b)+[^;:,()`]*)", line):
                    prog, rest = "cairn", words.split()
                    while rest and prog in groups and f"{prog} {rest[0]}" in {*groups, *commands}:
                        prog = f"{prog} {rest.pop(0)}"
                    named = (commands[one] for one in (prog, f"{prog} run") if one in commands)
                    known = {option for command in named for option in command._option_string_actions}
                    options = {match[0] for word in rest if (match := re.match(r"--[a-z-]+", word))}
                    if options - known:
                        wrong.append(f"{path.name}:{node.lineno}: cairn{words}")  # type: ignore[attr-defined]
    assert wrong == []


def _text(node: ast.AST) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_text(part) or "X" for part in parts)
    return ""
