"""Makes the parser of a request's fields, and the request of what was parsed (`cairn.options`)."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeVar

from cairn.cli.parser import Subparsers
from cairn.options import KEY, Exclusive, Option

Request = TypeVar("Request")

_ACTIONS: Mapping[str, Any] = {
    "flag": "store_true",
    "switch": argparse.BooleanOptionalAction,
    "repeated": "append",
}


def add_command(  # noqa: PLR0913 - what a command is
    commands: Subparsers,
    name: str,
    request: type[Request],
    run: Callable[[Request], int],
    *,
    about: str,
    more: str = "",
    example: str,
) -> argparse.ArgumentParser:
    """Add a command to its group.

    Args:
        commands: the group.
        name: of the command.
        request: its options.
        run: carries the request out, and gives the exit code. What it needs is imported when it runs: a
            parser is also made for `--help`.
        about: what it does, in words that begin with a small letter and end without a full stop.
        more: sentences that its own help says besides.
        example: a command line.
    """
    description = f"{about[0].upper()}{about[1:]}. {more}".strip()
    parser = commands.add_parser(name, help=about, description=description, epilog=f"example: {example}")
    bind(parser, request, run)
    return parser


def bind(parser: argparse.ArgumentParser, request: type[Request], run: Callable[[Request], int]) -> None:
    """Have a parser take the options of a request, and carry it out."""
    add_options(parser, request)
    parser.set_defaults(run=lambda options: run(make(request, options)))


def add_options(
    parser: argparse.ArgumentParser, request: type[object], *, inherited: Collection[str] = ()
) -> None:
    """Add an option for each field of a request, and of the requests that it is made of.

    Args:
        parser: what gets them.
        request: whose fields.
        inherited: fields that the parser above has too: without the option, what was given there stays.
    """
    groups: dict[Exclusive, argparse._ActionsContainer] = {}
    for field, option in _options(request):
        into: argparse._ActionsContainer = parser
        if option.group is not None:
            if option.group not in groups:
                groups[option.group] = parser.add_mutually_exclusive_group(required=option.group.required)
            into = groups[option.group]
        _add(into, field, option, inherited=field.name in inherited)


def make(request: type[Request], options: argparse.Namespace) -> Request:
    """The request that was parsed; what has no option is what `set_defaults` says, or its own default."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(request):  # type: ignore[arg-type]  # a bound cannot say: a dataclass
        declared = field.metadata.get(KEY)
        if isinstance(declared, type):
            values[field.name] = make(declared, options)
        elif hasattr(options, field.name):
            value = getattr(options, field.name)
            values[field.name] = tuple(value) if isinstance(value, list) else value
    return request(**values)


def _options(request: type[object]) -> Iterator[tuple[dataclasses.Field[Any], Option]]:
    for field in dataclasses.fields(request):  # type: ignore[arg-type]  # as above
        declared = field.metadata.get(KEY)
        if isinstance(declared, type):
            yield from _options(declared)
        elif declared is not None:
            yield field, declared


def _add(
    into: argparse._ActionsContainer, field: dataclasses.Field[Any], option: Option, *, inherited: bool
) -> None:
    default = None if field.default is dataclasses.MISSING else field.default
    given: dict[str, Any] = {
        "help": option.help.replace("%(default)s", str(default)) if inherited else option.help,
        "action": _ACTIONS.get(option.kind),
        "type": option.convert,
        "metavar": option.metavar,
        "choices": option.choices,
        "nargs": option.nargs,
        "required": (option.required and not inherited) or None,
    }
    words = {name: value for name, value in given.items() if value is not None}
    words["default"] = argparse.SUPPRESS if inherited else [] if option.kind == "repeated" else default
    if option.kind == "argument":
        action = into.add_argument(field.name, **words)
    else:
        flags = option.flags or (f"--{field.name.replace('_', '-')}",)
        action = into.add_argument(*flags, dest=field.name, **words)
    if option.completer is not None:
        action.completer = option.completer  # type: ignore[attr-defined]  # where argcomplete looks for it
