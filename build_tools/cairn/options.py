"""Options of commands, each written once: as a field of the request that the command carries out.

A request is a frozen dataclass. Its fields name their flag, help and conversion here; `cairn.cli.binder`
makes the parser of them, and the request of what was parsed. The library's own requests use it too, so that a
flag and the field that it fills are one thing.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar

Kind: TypeAlias = Literal["value", "flag", "switch", "repeated", "argument"]
Completer: TypeAlias = Callable[..., Iterable[str]]
Target = TypeVar("Target")

KEY = "cairn.option"
"""Where a field's metadata has its `Option`, or the request whose options are part of this one."""


@dataclass(frozen=True, kw_only=True)
class Exclusive:
    """Options of which only one may be given. Each group is an object of its own, compared by identity.

    Attributes:
        required: one of them must be given.
    """

    required: bool = False
    __hash__ = object.__hash__
    __eq__ = object.__eq__


@dataclass(frozen=True, kw_only=True)
class Option:
    """How a command line gives a field its value.

    Attributes:
        kind: `value`: an option with one; `flag`: one without, true where it stands; `switch`: a flag with
            its `--no-` form; `repeated`: one that may stand several times; `argument`: one without dashes.
        help: what it does, without a full stop; `%(default)s` stands for the default.
        flags: its names; the field's with dashes where there are none.
        convert: makes the value of the text, and raises ArgumentTypeError where it cannot.
        metavar: what stands for the value in the help; by default what follows from `convert`: FILE, DIR.
        choices: the only values there are.
        nargs: how many words it takes, in argparse's way: `?`, `*`, `+`.
        completer: says what there is for it to a shell.
        group: the options that exclude it.
        required: it must be given.
    """

    kind: Kind
    help: str
    flags: tuple[str, ...] = ()
    convert: Callable[[str], object] | None = None
    metavar: str | None = None
    choices: tuple[str, ...] | None = None
    nargs: str | None = None
    completer: Completer | None = None
    group: Exclusive | None = None
    required: bool = False


# What follows gives `Any`, as `dataclasses.field` does: a field is declared with its own type.


def option(help: str, *flags: str, default: Any = None, required: bool = False, **more: Any) -> Any:
    """An option with a value; `more` are attributes of `Option`."""
    chosen = Option(kind="value", help=help, flags=flags, required=required, **more)
    return _field(chosen, dataclasses.MISSING if required else default)


def flag(help: str, *flags: str, **more: Any) -> Any:
    """An option without a value, false where it is not given."""
    return _field(Option(kind="flag", help=help, flags=flags, **more), default=False)


def switch(help: str, *flags: str, default: bool | None = False, **more: Any) -> Any:
    """A flag with its `--no-` form."""
    return _field(Option(kind="switch", help=help, flags=flags, **more), default)


def repeated(help: str, *flags: str, **more: Any) -> Any:
    """An option that may be given several times, as a tuple."""
    text = f"{help}; may be repeated"
    return _field(Option(kind="repeated", help=text, flags=flags, **more), default=())


def argument(metavar: str, help: str, *, nargs: str | None = None, default: Any = None, **more: Any) -> Any:
    """A word that stands on the command line without dashes, or several: then it is a tuple."""
    chosen = Option(kind="argument", help=help, metavar=metavar, nargs=nargs, **more)
    if nargs in ("*", "+"):
        return _field(chosen, default=() if nargs == "*" else dataclasses.MISSING)
    return _field(chosen, default if nargs == "?" else dataclasses.MISSING)


def part(request: type[object]) -> Any:
    """A field that holds a request of its own, whose options are given beside the others.

    Without them, it is what the request is by its own defaults.
    """
    return dataclasses.field(default_factory=request, metadata={KEY: request})


def fill(target: type[Target], request: object, **more: Any) -> Target:
    """Make a value of what a command was asked for: each field takes the option of its own name.

    So an option is named where it is declared, and nowhere between there and the code that uses it.

    Args:
        target: the class of the value, such as the request of a library's function.
        request: the command's.
        more: fields that the request does not have, or has in a different form.
    """
    names = inspect.signature(target).parameters.keys() - more.keys()
    return target(**{name: value for name, value in vars(request).items() if name in names}, **more)


def _field(chosen: Option, default: Any) -> Any:
    return dataclasses.field(default=default, metadata={KEY: chosen})
