"""The entry point: the parser of the program, the run of one command line, and the topics of `cairn help`.

Imports are lazy: a command's module is imported when the command is named, and imports what it needs when it
runs, so that `--help` and `--version` stay fast, and `cairn checkout` loads nothing that builds.
"""

from __future__ import annotations

import functools
import importlib
import sys
import textwrap
from collections.abc import Iterable, Sequence

from cairn import __version__
from cairn.cli import binder
from cairn.cli.commands import PROGRAM, Group
from cairn.cli.guard import guarded
from cairn.cli.parser import Parser

_WIDTH = 80


def words_for(topic: Sequence[str]) -> Sequence[str]:
    """Return the command line that shows a topic; a page is shown at once, and ends the program.

    Raises:
        SystemExit: a page was shown.
    """
    names = [word for word in topic if not word.startswith("-")]
    if len(names) == 1 and (page := _PAGES.get(names[0])) is not None:
        sys.stdout.write("\n".join(page()) + "\n")
        sys.exit(0)
    return [*topic, "--help"]


def _settings() -> Iterable[str]:
    from cairn import settings

    yield "An option that is not given has its value from the first of these that sets it:"
    yield ""
    yield "  a variable      CAIRN_STORE for --store"
    yield "  cairn.toml      here or above, up to the root of the repository; or"
    yield "                  [tool.cairn] in pyproject.toml"
    yield f"  your own file   {settings.user_file() or 'none here'}"
    yield ""
    yield "cairn config set        set an option: cairn config set store s3://my-wheels"
    yield "cairn config list       the settings that hold here, and where each stands"


def _options() -> Iterable[str]:
    from cairn.cli import setting_names

    yield "Every option that some command has; `cairn COMMAND --help` says what it does:"
    yield ""
    names = " ".join(f"--{name}" for name in sorted(setting_names.FREE | setting_names.GUARDED))
    yield from textwrap.wrap(names, _WIDTH, break_on_hyphens=False)


def _exit_codes() -> Iterable[str]:
    from cairn import errors, start

    yield "  0   success"
    kinds = [each for each in vars(errors).values() if isinstance(each, type)]
    for kind in sorted(
        (k for k in kinds if k is not errors.CairnError), key=lambda k: getattr(k, "exit_code", 0)
    ):
        if issubclass(kind, errors.CairnError) and "exit_code" in vars(kind):
            yield f" {kind.exit_code:>2}   {str(kind.__doc__).splitlines()[0]}"
    yield f" {start.EXIT_INTERNAL}   A defect of Cairn."
    yield f"{start.EXIT_INTERRUPTED}   Interrupted."


_PAGES = {"settings": _settings, "options": _options, "exit-codes": _exit_codes}


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
        return words_for(options)
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
