"""The parser of every command, the options that all of them accept, and adding commands to a group."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

from cairn.cli import setting_values
from cairn.errors import UsageError
from cairn.output import console, wording

_NUMBER = re.compile(r"-\d+|-\d*\.\d+")  # what argparse takes for a value, not for an option

# argparse has no public name for what `add_subparsers` gives.
Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001


class Parser(argparse.ArgumentParser):
    """A parser that names what was mistyped and says what may have been meant.

    It takes no abbreviation of an option, since a new option could change its meaning, and accepts the
    options of the program before and after the name of a command. argparse makes the parsers of the commands
    below of the same class.
    """

    default_command: str | None = None
    """The command below that is meant where none is named: `mirror FILE` is `mirror sync FILE`."""

    takes_rest = False
    """What follows `--` is not ours to read: it becomes the list `rest`, wherever options stand before it."""

    elsewhere: Mapping[str, Sequence[str]]
    """By a word that is no command here: what it is a command of, from here."""

    general = frozenset({"verbose", "quiet", "debug", "json"})
    """Where the values of the general options are kept."""

    fill_later: Callable[[], None] | None = None
    """Adds the options or the commands below when they are needed: `--help` of a group needs none of them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, "formatter_class": _formatter, **kwargs})
        self.elsewhere = {}
        self._values: dict[argparse.Action, list[str]] = {}
        group = self.add_argument_group("general options")
        # SUPPRESS: argparse parses a command into a namespace of its own and copies that over ours, so a
        # default of the command would overwrite what was given before its name.
        for names, text in (
            (("-v", "--verbose"), "show every line of the programs that are run"),
            (("-q", "--quiet"), "show nothing but results, warnings and errors"),
            (("--debug",), "show the traceback of an error"),
            (("--json",), "print the answer as JSON"),
        ):
            group.add_argument(*names, action="store_true", default=argparse.SUPPRESS, help=text)

    def fill(self, words: Sequence[str] = (), *, everything: bool = False) -> None:
        """Add the options of this parser, and of the commands below it that `words` name, or of all."""
        if self.fill_later is not None:
            fill_later, self.fill_later = self.fill_later, None
            fill_later()
        commands = self._commands()
        if commands is None:
            return
        first = next((word for word in words if word in commands.choices), self.default_command)
        for name, below in commands.choices.items():
            if isinstance(below, Parser) and (everything or (words and name == first)):
                after = words[words.index(name) + 1 :] if name in words else words
                below.fill(after, everything=everything)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the command line of a program, or answer a shell that asks what may follow on it."""
        if is_completion():
            import argcomplete

            self.fill(completion_words())  # argcomplete looks at all of it before it parses
            argcomplete.autocomplete(self, always_complete_options="long")  # ends the program
        return super().parse_args(args, namespace)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse unknown options by name before argparse misses the arguments they were to be."""
        # argparse calls this for the program and then, with the words that are left, for each command below.
        self.fill()
        words = list(sys.argv[1:] if args is None else args)
        if is_completion():  # a line that is not finished may still be wrong
            return super().parse_known_args(words, namespace)
        words = self._with_command(words)
        self._refuse_unknown(words)
        rest: list[str] = []
        if self.takes_rest and "--" in words:
            at = words.index("--")
            words, rest = words[:at], words[at + 1 :]
        self._values.clear()
        values = setting_values.SettingValues(self, words)
        with values.instead_of_required():
            namespace, unread = super().parse_known_args(words, namespace)
        values.fill(namespace)
        if self.takes_rest:
            namespace.rest = rest
        # argparse reports what is left over from the top, under the name of the whole program: too far away.
        if unread and self._commands() is None:
            unexpected = next((word for word in unread if word != "--"), unread[0])
            takes = [str(a.metavar) for a in self._actions if not a.option_strings]
            only = f"one argument, {takes[0]}" if takes else "options alone"
            tip = f"`{self.prog} --help` shows what it takes, and where"
            self.fail(
                f"unexpected argument {unexpected!r}",
                tip=tip if len(takes) > 1 else f"leave it out: {self.prog} takes {only}",
            )
        return namespace, unread

    def error(self, message: str) -> NoReturn:
        """Say in one line what is wrong with the command line, and exit."""
        tip = f"`{self.prog} --help` shows how to use it"
        if "required" in message and (example := str(self.epilog or "").removeprefix("example: ")):
            tip = f"for example: {example}"
        self.fail(message, tip=tip)

    def _print_message(self, message: str, file: Any = None) -> None:
        """What argparse prints help with; its own ignores that it could not be written."""
        (file or sys.stderr).write(message)

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """What argparse calls for a value; before Python 3.13 it takes `--name=--` for an empty list."""
        if action.option_strings and action.nargs is None:
            name, earlier = action.option_strings[-1], self._values.setdefault(action, arg_strings)
            if arg_strings == ["--"]:
                self.fail(f"{name} cannot be '--'", tip=f"`{self.prog} --help` shows how to use it")
            is_one = isinstance(action, argparse._StoreAction)  # noqa: SLF001
            if earlier != arg_strings and is_one and self.prog.startswith("cairn "):  # upstream's are silent
                tip = f"{name} is given twice: {arg_strings[0]} counts, and not {earlier[0]}"
                console.current().warn(f"{self.prog}: {tip}")
        return super()._get_values(action, arg_strings)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """What argparse calls to compare a value with an option's choices, or with the commands."""
        # Replaced because its own message quotes every choice and guesses none.
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - see `Subparsers`
            self.fail(f"there is no command {value!r}", tip=self._command_meant(str(value), choices))
        name = "/".join(action.option_strings) or str(action.metavar or action.dest)
        self.fail(
            f"{name} cannot be {value!r}",
            tip=wording.did_you_mean(str(value), choices, what="the choices are"),
        )

    def _command_meant(self, word: str, choices: list[str]) -> str:
        close = (word,) if word in self.elsewhere else wording.nearest(word, [*choices, *self.elsewhere])
        meant = dict.fromkeys(way for name in close for way in self.elsewhere.get(name, [name]))
        names = [name if " " not in name else f"`{self.prog} {name}`" for name in meant]
        return (
            f"did you mean {' or '.join(names[:3])}?" if names else f"the commands are: {', '.join(choices)}"
        )

    def fail(self, message: str, *, tip: str) -> NoReturn:
        """Say in one line what is wrong and what to do, and exit."""
        console.current().error(f"{self.prog}: {message}", tip=tip)
        sys.exit(UsageError.exit_code)

    def _with_command(self, words: list[str]) -> list[str]:
        """Return the words, with the default command before them if they name none."""
        commands = self._commands()
        if self.default_command is None or commands is None:
            return words
        # Options of the program, which have no values, may stand before a command.
        first = next((word for word in words if word not in self._option_string_actions), None)
        # One that is mistyped is not the first argument of the default.
        names = list(commands.choices)
        names_command = first is None or first in names or wording.nearest(first, names)
        return words if names_command else [self.default_command, *words]

    def _commands(self) -> Subparsers | None:
        actions = (a for a in self._actions if isinstance(a, argparse._SubParsersAction))  # noqa: SLF001
        return next(actions, None)

    def _refuse_unknown(self, words: Sequence[str]) -> None:
        arguments = list(self._arguments_of(words))
        names = [w.partition("=")[0] if w.startswith("--") else w for w in arguments if _is_option(w)]
        asks_more = {"-h", "--help", "-V", "--version"}.isdisjoint(names)
        options = self._option_string_actions
        if unknown := [name for name in names if name not in options and name[:2] not in options]:
            self.fail(f"unknown option {', '.join(unknown)}", tip=self._suggestion(unknown[0]))
        names_command = len(arguments) < len(words)
        if self._commands() is not None and not names_command and asks_more:
            # The exit code is not 0: a script whose variable for the command is empty did not succeed.
            self.print_help(sys.stderr)
            sys.exit(UsageError.exit_code)

    def _suggestion(self, name: str) -> str:
        shown = [n for n, action in self._option_string_actions.items() if action.help != argparse.SUPPRESS]
        if close := wording.nearest(name, shown):
            return f"did you mean {' or '.join(close)}?"
        if self._commands() is not None:
            return f"options of a command follow its name; `{self.prog} --help` lists the commands"
        return f"`{self.prog} --help` lists the options"

    def _arguments_of(self, words: Sequence[str]) -> Iterator[str]:
        """Return the words up to `--` or to the name of a command, without the values of options."""
        value = False  # whether this word is the value of the option before it
        for word in words:
            option = _is_option(word)
            if word == "--" or (self._commands() is not None and not option and not value):
                return
            if option or not value:
                yield word
            # `nargs` None is argparse's for one value; our options have one or none. `--name=value` is not a
            # key of the table, so no word after it is skipped.
            action = self._option_string_actions.get(word)
            value = option and action is not None and action.nargs is None


def _formatter(prog: str) -> argparse.HelpFormatter:
    """Make the formatter of help, with the width that `shutil.get_terminal_size` returns.

    argparse would load shutil for it, and so bz2 and lzma, which takes longer than all else that help needs.
    """
    try:
        columns = int(os.environ.get("COLUMNS", ""))
    except ValueError:
        columns = 0
    if columns <= 0:
        with contextlib.suppress(AttributeError, ValueError, OSError):  # no standard output, or no terminal
            columns = os.get_terminal_size(sys.__stdout__.fileno()).columns  # type: ignore[union-attr]
    return argparse.HelpFormatter(prog, width=(columns if columns > 0 else 80) - 2)


def _is_option(word: str) -> bool:
    # argparse's own rules (`_parse_optional`): a word with a space, or a negative number, is a value.
    name = word.partition("=")[0]
    return len(name) > 1 and name.startswith("-") and " " not in name and not _NUMBER.fullmatch(word)


def is_completion() -> bool:
    """Whether a shell asks for completions: its argcomplete script has then set this variable."""
    return "_ARGCOMPLETE" in os.environ


def completion_words() -> list[str]:
    """Return the words of the line to be completed, up to the cursor."""
    import shlex

    # bash's names for the line and the cursor's place in it; argcomplete sets them for other shells too.
    line = os.environ.get("COMP_LINE", "")
    try:
        return shlex.split(line[: int(os.environ.get("COMP_POINT", len(line)))])[1:]
    except ValueError:  # an open quote
        return line.split()[1:]
