"""Make parsers from the fields of requests, and requests from parsed options (`cairn.options`)."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from cairn import converters, extras
from cairn.cli import setting_values
from cairn.cli.answer import Result, show
from cairn.cli.parser import Parser
from cairn.options import KEY, Exclusive, Option

Request = TypeVar("Request")
_ACTIONS: Mapping[str, Any] = {
    "flag": "store_true",
    "switch": argparse.BooleanOptionalAction,
    "repeated": "append",
}
_METAVARS: Mapping[object, str] = {
    converters.file: "FILE",
    converters.new_file: "FILE",
    converters.program: "FILE",
    converters.folder: "DIR",
    converters.new_folder: "DIR",
    converters.seconds: "SECONDS",
}


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command of `cairn`: the class of its requests, and the function that carries one out.

    The docstring of the class is its help: behind the line that says what it is, paragraphs for `--help`,
    then an example of a command line.

    Attributes:
        request: the class.
        run: carries one out. What it needs is imported when it runs: a parser
            is also made for `--help`.
        omit: fields of the request without an option.
        takes_rest: what follows `--` is not read, and becomes the field `rest`.
        needs: the extra that must be installed before it begins.
    """

    request: type[object]
    run: Callable[[Any], Result]
    omit: Collection[str] = ()
    takes_rest: bool = False
    needs: extras.Extra | None = None

    def add_to(self, parser: Parser, *, about: str) -> None:
        """Have a parser take the options, and show the help; `about` is its line in the help of its group."""
        more, parser.epilog = _help(self.request)
        parser.description = f"{sentence(about)}. {more}".strip()
        parser.takes_rest = self.takes_rest
        bind(parser, self.request, self._run, omit=self.omit)

    def _run(self, request: object) -> Result:
        if self.needs is not None:
            extras.demand(self.needs)
        return self.run(request)


def command(request: type[Request], run: Callable[[Request], Result], **more: Any) -> Command:
    """Make a command whose `run` takes such a request; `more` are attributes of `Command`."""
    return Command(request=request, run=run, **more)


def script(
    path: Path,
    request: type[Request],
    run: Callable[[Request], Result],
    *,
    defaults: Mapping[str, object] | None = None,
    **more: Any,
) -> Parser:
    """Make the parser of a script without commands; its help is the docstring of its request.

    Args:
        path: of the script.
        request: the class of its requests.
        run: carries one out.
        defaults: for `add_options`.
        more: for `Parser`.
    """
    parser = Parser(prog=path.name, **more)
    parser.description, parser.epilog = _help(request)
    bind(parser, request, run, defaults=defaults)
    return parser


def _help(request: type[object]) -> tuple[str, str]:
    """Split the docstring of a request into paragraphs for `--help` and the example at its end."""
    paragraphs = [" ".join(text.split()) for text in str(request.__doc__).split("\n\n")]
    return " ".join(paragraphs[1:-1]), f"example: {paragraphs[-1]}"


def sentence(text: str) -> str:
    """Return the text with a capital first letter."""
    return f"{text[0].upper()}{text[1:]}"


def bind(
    parser: argparse.ArgumentParser,
    request: type[Request],
    run: Callable[[Request], Result],
    **how: Any,
) -> None:
    """Have a parser take the options of a request, and carry it out; `how` is for `add_options`."""
    add_options(parser, request, **how)
    parser.set_defaults(
        run=lambda options: carry_out(make(request, options), run, json=getattr(options, "json", False)),
        program=parser.prog,
    )


def carry_out(request: Request, run: Callable[[Request], Result], *, json: bool = False) -> int:
    """Run a command, and show its answer, for programs if `json`; returns the exit code."""
    acting: Callable[[], AbstractContextManager[None]] = getattr(request, "acting", contextlib.nullcontext)
    with acting():
        return show(run(request), json=json)


def add_options(
    parser: argparse.ArgumentParser,
    request: type[object],
    *,
    inherited: Collection[str] = (),
    omit: Collection[str] = (),
    defaults: Mapping[str, object] | None = None,
) -> None:
    """Add an option for each field of a request, and of the requests that it is made of.

    Args:
        parser: what gets them.
        request: whose fields.
        inherited: fields that the parent parser has too: an option given there is not required here, and a
            repeatable one is added to.
        omit: fields that this parser has no option for; they keep their defaults.
        defaults: values of fields that need not be given here, or have a different default.
    """
    groups: dict[Exclusive, argparse._ActionsContainer] = {}
    values = defaults or {}
    for field, option in _options(request):
        if field.name in omit:
            continue
        into: argparse._ActionsContainer = parser
        if option.group is not None:
            if option.group not in groups:
                groups[option.group] = parser.add_mutually_exclusive_group(required=option.group.required)
            into = groups[option.group]
        if field.name in (*inherited, *values):
            option = dataclasses.replace(option, required=False)  # noqa: PLW2901
        below = setting_values.BELOW if option.kind == "repeated" and field.name in inherited else ""
        action = _add(into, field.name, option, values.get(field.name, field.default), below=below)
        if field.name in inherited:
            setting_values.leave_to_parent(action)
    parser.set_defaults(**values)


def make(request: type[Request], options: argparse.Namespace) -> Request:
    """Make the request from parsed options; other fields have values from `set_defaults` or defaults."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(request):  # type: ignore[arg-type]  # a bound cannot say: a dataclass
        declared = field.metadata.get(KEY)
        if isinstance(declared, type):
            values[field.name] = make(declared, options)
            continue
        value, more = (
            getattr(options, name, None) for name in (field.name, field.name + setting_values.BELOW)
        )
        if isinstance(value or more, list):
            value = (*(value or ()), *(more or ()))
        if value is not None:
            values[field.name] = value
    return request(**values)


def _options(request: type[object]) -> Iterator[tuple[dataclasses.Field[Any], Option]]:
    for field in dataclasses.fields(request):  # type: ignore[arg-type]  # as above
        declared = field.metadata.get(KEY)
        if isinstance(declared, type):
            yield from _options(declared)
        elif declared is not None:
            yield field, declared


def _add(
    into: argparse._ActionsContainer, name: str, option: Option, default: object, *, below: str = ""
) -> argparse.Action:
    # argparse has no defaults: it would convert those that are texts, and one of a command would replace what
    # was given before the command's name. The request has them.
    words: dict[str, Any] = {
        "help": option.help.replace("%(default)s", str(default).replace("%", "%%")),
        "action": _ACTIONS.get(option.kind),
        "type": option.convert,
        "metavar": option.metavar or _METAVARS.get(option.convert),
        "choices": option.choices,
        "nargs": option.nargs,
        "required": option.required or None,
    }
    words = {key: value for key, value in words.items() if value is not None}
    if option.kind == "argument":
        action = into.add_argument(name, **words)
        action.required &= option.nargs != "*"  # argparse names it among what is missing
    else:
        flags = option.flags or (f"--{name.replace('_', '-')}",)
        action = into.add_argument(*flags, dest=name + below, default=argparse.SUPPRESS, **words)
    if option.completer is not None:
        action.completer = option.completer  # type: ignore[attr-defined]  # where argcomplete looks for it
    return action
