"""The entry point: the parser of the program, and the run of one command line.

Imports are lazy: a command's module is imported when the command is named, and imports what it needs when it
runs, so that `--help` and `--version` stay fast, and `cairn checkout` loads nothing that builds.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Sequence

from cairn import __version__
from cairn.cli import binder, topics
from cairn.cli.commands import PROGRAM, Group
from cairn.cli.guard import guarded
from cairn.cli.parser import Parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run `cairn` with these arguments (default: the command line's).

    Returns:
        The exit code: 0 only on success.
    """
    return guarded(make_parser().parse_args(_meant(sys.argv[1:] if argv is None else argv)))


def _meant(words: Sequence[str]) -> Sequence[str]:
    """Read `help build` as `build --help`, and `version` as `--version`."""
    first, options = next((word for word in words if not word.startswith("-")), None), list(words)
    if first in ("help", "version"):
        options.remove(first)
    if first == "help":
        return topics.words_for(options)
    return ["--version", *options] if first == "version" else words


def make_parser(*, whole: bool = False) -> Parser:
    """Make the parser of the program, with the options of the named command or, if `whole`, of all."""
    parser = Parser(prog="cairn")
    parser.add_argument("-V", "--version", action="version", version=f"cairn {__version__}")
    _add_commands(parser, PROGRAM, "cairn.cli")
    parser.elsewhere = {"help": ("help",), "version": ("version",), **_commands_below(PROGRAM)}
    if whole:
        parser.fill(everything=True)
    return parser


def _commands_below(group: Group, above: str = "") -> dict[str, list[str]]:
    """By the name of each command of a group of `cairn`: the ways to it, such as `release yank`."""
    ways: dict[str, list[str]] = {}
    for name, entry in group.commands.items():
        way = f"{above} {name}".lstrip()
        if above and name not in PROGRAM.commands:
            ways.setdefault(name, []).append(way)
        if isinstance(entry, Group):
            for inner, more in _commands_below(entry, way).items():
                ways.setdefault(inner, []).extend(more)
    return ways


def _add_commands(parser: Parser, group: Group, room: str) -> None:
    """Add the commands of a group, whose modules are in `room`; each gets its options when it is named."""
    parser.description = group.description or f"{binder.sentence(group.about)}."
    parser.epilog = f"example: {group.example}"
    parser.default_command = group.default
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=Parser)
    for name, entry in group.commands.items():
        below = commands.add_parser(name, help=entry if isinstance(entry, str) else entry.about)
        if isinstance(entry, Group):
            below.fill_later = functools.partial(_add_commands, below, entry, f"{room}.{name}")
        else:
            module = group.module_of(name, room)
            below.fill_later = functools.partial(_add_options, below, module, name, about=entry)


def _add_options(parser: Parser, module: str, name: str, *, about: str) -> None:
    command: binder.Command = importlib.import_module(module).COMMANDS[name]
    command.add_to(parser, about=about)
