"""Give options of a parser what `cairn.settings` has for them, where the command line gives nothing."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from cairn import converters

if TYPE_CHECKING:
    from cairn.cli.parser import Parser
    from cairn.settings import Setting, Settings

BELOW = " below"
"""Ends the name under which a parser keeps what it adds to the list of the parser above."""
_LEFT = "cairn_leaves_to_parent"  # an attribute of actions
_PATHS = (
    *(
        converters.file,
        converters.folder,
        converters.file_or_folder,
        converters.program,
        converters.private_key,
    ),
    *(converters.new_file, converters.new_folder, converters.any_path, Path),
)
_KEYS = ("sign-key", "root-key", "builder-key")  # options of private keys
_PLACES = ("URL", "PLACE", "KEY")  # the metavars of what may be a path too
_LISTS = ("+", "*")


def leave_to_parent(action: argparse.Action) -> None:
    """Mark an option that the parser above has too: that one takes the setting."""
    setattr(action, _LEFT, True)


def name_of(action: argparse.Action) -> str:
    """The name of an option in files of settings: its first long flag without the dashes."""
    long = next((flag for flag in action.option_strings if flag.startswith("--")), action.dest)
    if long == "--debug" and action.dest != "debug":  # upstream's `run_pytorch_tests.py` has one of its own
        long = action.dest
    return long.lstrip("-").replace("_", "-")


def can_be_set(action: argparse.Action) -> bool:
    """Whether a setting may stand for it: for every option, but `--help` and `--version` of the program."""
    shows = isinstance(action, argparse._HelpAction | argparse._VersionAction)  # noqa: SLF001
    return bool(action.option_strings) and not shows and not getattr(action, _LEFT, False)


def is_flag(action: argparse.Action) -> bool:
    """Whether it takes no value."""
    return action.nargs == 0


def _conceal_keys(loaded: Settings) -> None:
    """Keep private keys that the user's file names from foreign code, whichever command they are for."""
    user = loaded.user
    for section in ("", *user.sections()) if user else ():
        for setting in user.settings(section) if user else ():
            if setting.name in _KEYS:
                from cairn import isolation, settings

                for word in settings.words_of(setting, several=True):
                    isolation.conceal((setting.folder or Path()) / Path(word).expanduser())


class SettingValues:
    """The settings of one run of a parser."""

    def __init__(self, parser: Parser, words: Sequence[str]) -> None:
        self._parser = parser
        self._settings: dict[argparse.Action, Setting] = {}
        self._is_trusted = False  # the project's file
        actions = [action for action in parser._actions if can_be_set(action)]  # noqa: SLF001
        # A group hands its general options on to its commands.
        is_leaf = not any(isinstance(a, argparse._SubParsersAction) for a in parser._actions)  # noqa: SLF001
        has_own = any(action.dest not in parser.general for action in actions)
        if (is_leaf or has_own) and {"-h", "--help"}.isdisjoint(words):
            self._find(actions)

    def _find(self, actions: Sequence[argparse.Action]) -> None:
        from cairn import settings
        from cairn.errors import UsageError

        command = self._parser.prog.removeprefix("cairn").strip()
        try:
            loaded = settings.load()
            self._is_trusted = loaded.project is not None and loaded.project.is_trusted
            of_files = loaded.of_files(command)
            self._refuse_unknown(loaded, of_files, command)
            _conceal_keys(loaded)
            for action in actions:
                name = name_of(action)
                if (setting := loaded.of_variable(name) or of_files.get(name)) is not None:
                    self._settings[action] = setting
            for action in [each for each in self._settings if is_flag(each)]:
                is_switch = isinstance(action, argparse.BooleanOptionalAction)
                if not is_switch and not settings.truth_of(self._settings[action]):
                    del self._settings[action]  # as if it were not there
        except UsageError as error:
            if not command.startswith("config"):  # which shows what is wrong, and mends it
                self._fail(error)

    def _refuse_unknown(self, loaded: Settings, of_files: dict[str, Setting], command: str) -> None:
        if not loaded.files():
            return
        from cairn.cli import setting_names

        settable = {name_of(action) for action in self._parser._actions if can_be_set(action)}  # noqa: SLF001
        for setting in of_files.values():
            setting_names.check(setting, options=settable if setting.section == command else None)

    @contextlib.contextmanager
    def instead_of_required(self) -> Iterator[None]:
        """Do not ask for an option that has a setting."""
        parts: list[Any] = list(self._settings)
        groups = self._parser._mutually_exclusive_groups  # noqa: SLF001 - argparse has no public name
        parts += [g for g in groups if any(a in self._settings for a in g._group_actions)]  # noqa: SLF001
        parts = [part for part in parts if part.required]
        for part in parts:
            part.required = False
        try:
            yield
        finally:
            for part in parts:
                part.required = True

    def fill(self, namespace: argparse.Namespace) -> None:
        """Set what the command line left out. Of options that exclude each other, the first place's stays."""
        from cairn.errors import UsageError

        for action, setting in self._settings.items():
            if not self._is_given(namespace, action) and not self._yields(namespace, action):
                try:
                    value = self._value(action, setting)
                except (argparse.ArgumentTypeError, UsageError) as error:
                    self._fail(error)
                setattr(namespace, action.dest, value)

    def _is_given(self, namespace: argparse.Namespace, action: argparse.Action) -> bool:
        if getattr(namespace, action.dest + BELOW, None):
            return True
        value = getattr(namespace, action.dest, None)
        return value is not None and value is not self._parser.get_default(action.dest)

    def _yields(self, namespace: argparse.Namespace, action: argparse.Action) -> bool:
        """Whether it gives way to a different option of its group."""
        groups = self._parser._mutually_exclusive_groups  # noqa: SLF001
        for group in (g._group_actions for g in groups if action in g._group_actions):  # noqa: SLF001
            others = [rival for rival in group if rival is not action]
            if any(self._is_given(namespace, rival) for rival in others):
                return True
            own_rank = _rank(self._settings[action])
            rivals = {rival: _rank(self._settings[rival]) for rival in others if rival in self._settings}
            if any(rank < own_rank for rank in rivals.values()):
                return True
            if same := [name_of(rival) for rival, rank in rivals.items() if rank == own_rank]:
                origin = self._settings[action].origin
                self._parser.fail(
                    f"{origin}: {name_of(action)} and {', '.join(same)} exclude each other",
                    tip="take one of them out",
                )
        return False

    def _value(self, action: argparse.Action, setting: Setting) -> object:
        from cairn import settings
        from cairn.cli import setting_names

        setting_names.refuse_untrusted(setting, is_trusted=self._is_trusted)
        if is_flag(action):
            return settings.truth_of(setting)
        is_list = isinstance(action, argparse._AppendAction)  # noqa: SLF001
        several = is_list or action.nargs in _LISTS
        values = [self._converted(action, setting, w) for w in settings.words_of(setting, several=several)]
        if several and not is_list and not values:
            raise argparse.ArgumentTypeError(f"{setting.origin}: {setting.name} is an empty list")
        return values if several else values[0]

    def _converted(self, action: argparse.Action, setting: Setting, word: str) -> object:
        is_path = action.type in _PATHS or (action.metavar in _PLACES and ":" not in word)
        text = word
        if setting.folder is not None and is_path and word and not word.startswith("~"):
            text = str(setting.folder / word)  # of an absolute path, that is all that stays
        try:
            if setting.place == "project" and is_path and word and not self._is_trusted:
                self._refuse_outside(setting, text)
            value = action.type(text) if callable(action.type) else text
        except (argparse.ArgumentTypeError, ValueError, TypeError) as error:
            why = (
                str(error) if isinstance(error, argparse.ArgumentTypeError) else f"it cannot be {word[:40]!r}"
            )
            raise argparse.ArgumentTypeError(f"{setting.origin}: {setting.name}: {why}") from error
        if action.choices is not None and value not in action.choices:
            from cairn.errors import UsageError
            from cairn.output import wording

            raise UsageError(
                f"{setting.origin}: {setting.name} cannot be {word[:40]!r}",
                tip=wording.did_you_mean(word, list(map(str, action.choices)), what="the choices are"),
            )
        return value

    def _refuse_outside(self, setting: Setting, text: str) -> None:
        """Keep a project that nobody trusts from naming folders beside its own."""
        from cairn.errors import UsageError

        folder = Path(setting.folder or "").resolve()
        if not converters.any_path(text).resolve().is_relative_to(folder):
            raise UsageError(
                f"{setting.origin}: {setting.name} leads out of {folder}, a folder that you do not trust",
                tip=f"read it; then `cairn config set trusted-folders {folder}`, or "
                f"give --{setting.name} yourself",
            )

    def _fail(self, error: Exception) -> NoReturn:
        tip = getattr(error, "tip", None) or "`cairn help settings` shows the files and variables"
        self._parser.fail(str(error), tip=tip)


def _rank(setting: Setting) -> tuple[int, int, int]:
    """The smaller, the earlier a setting goes."""
    places = ("environment", "project", "user")
    is_file = setting.place != "environment"
    return (int(is_file), -len(setting.section.split()), places.index(setting.place))
