"""A request declares its options; its parser, and the request of a command line, follow from it."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import pytest

from cairn import converters
from cairn.cli import binder, common_options
from cairn.cli.parser import Parser
from cairn.options import Exclusive, argument, flag, option, part, repeated, switch

_ONE = Exclusive(required=True)


@dataclass(frozen=True, kw_only=True)
class How:
    depth: int | None = option("how deep", convert=converters.positive)
    submodules: bool = switch("them too", default=True)


@dataclass(frozen=True, kw_only=True)
class Request(common_options.StackOptions):
    names: tuple[str, ...] = argument("NAME", "what", nargs="+")
    kind: str = option("which", "--of-kind", default="a", choices=("a", "b"))
    output_dir: Path = common_options.output_dir()
    extra: tuple[str, ...] = repeated("more", metavar="WORD")
    force: bool = flag("anyway")
    low: str | None = option("low", group=_ONE)
    high: str | None = option("high", group=_ONE)
    how: How = part(How)
    folder: str = "unset"


def made(*words: str) -> Request:
    parser = Parser(prog="program")
    requests: list[Request] = []
    binder.bind(parser, Request, lambda request: requests.append(request) or 0)
    parser.set_defaults(folder="known before")
    options = parser.parse_args(words)
    assert options.run(options) == 0
    return requests[0]


LEAST = ("x", "--stack", "s", "--output-dir", "o", "--low", "1")


def test_what_is_not_given_has_its_default() -> None:
    assert made(*LEAST) == Request(
        names=("x",), stack=Path("s"), output_dir=Path("o"), low="1", folder="known before"
    )


def test_what_is_given_is_converted_and_lists_are_tuples() -> None:
    request = made(
        *("x", "y", "--stack=s", "--line", "main", "--output-dir", "o", "--high", "2", "--force"),
        *("--of-kind", "b", "--extra", "p", "--extra", "q", "--depth", "3", "--no-submodules"),
    )
    assert (request.names, request.extra, request.kind) == (("x", "y"), ("p", "q"), "b")
    assert (request.line, request.force, request.high) == ("main", True, "2")
    assert request.how == How(depth=3, submodules=False)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (LEAST[1:], "NAME"),
        (LEAST[:3], "--output-dir"),
        (LEAST[:5], "--low --high is required"),
        ((*LEAST, "--high", "2"), "not allowed with argument --low"),
        ((*LEAST, "--depth", "0"), "'0' is not a positive number"),
        ((*LEAST, "--of-kind", "c"), "the choices are: a, b"),
        ((*LEAST, "--stack", ""), "--stack"),
    ],
)
def test_what_is_wrong_is_named(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        made(*words)
    assert end.value.code == 2
    assert message in capsys.readouterr().err


def test_an_option_of_the_parser_above_stays_where_the_command_is_not_given_it() -> None:
    parser = Parser(prog="program")
    binder.add_options(parser, How)
    below = parser.add_subparsers().add_parser("command")
    binder.add_options(below, How, inherited={"depth", "submodules"})
    below.set_defaults(run=lambda options: binder.make(How, options))

    def run(*words: str) -> object:
        options: argparse.Namespace = parser.parse_args(words)
        return options.run(options)

    assert run("--depth", "2", "--no-submodules", "command") == How(depth=2, submodules=False)
    assert run("--depth", "2", "command", "--depth", "5") == How(depth=5)
    assert run("command") == How()
