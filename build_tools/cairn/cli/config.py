"""`cairn config`: what options have where the command line does not give them, and where that stands."""

from __future__ import annotations

import argparse
import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn import converters
from cairn.cli import common_options as common
from cairn.cli import setting_names, setting_values
from cairn.cli.answer import Answer, Note, Piece, Table, Warn
from cairn.cli.binder import command
from cairn.errors import UsageError
from cairn.options import argument, flag
from cairn.output import safe_text, wording

if TYPE_CHECKING:
    from cairn.settings import Setting, Settings

_KEY_HELP = "an option without its dashes, for all commands; or COMMAND.OPTION, such as build.targets"


@dataclass(frozen=True, kw_only=True)
class List:
    """Options of `cairn config list`.

    Variables hide the project's file, which hides your own.

        cairn config list
    """


def _list(_request: List) -> Answer:
    from cairn import settings

    here = settings.load()
    in_force = list(_in_force(here))
    plain = {"schema": "cairn.settings/1", "settings": [_plain(setting) for setting in in_force]}
    rows = [(_key(s), _shown(s), s.origin) for s in in_force]
    empty = Note("nothing is set; `cairn config set NAME VALUE` sets an option of every command")
    pieces: list[Piece] = [Table(("option", "value", "where"), rows)] if rows else [empty]
    if here.project is not None and not here.project.is_trusted:
        refused = {s.name for s in in_force if s.place == "project"} - setting_names.FREE
        tip = f"cairn config set trusted-folders {here.project.path.parent}"
        text = f"{here.project.path} may not set {wording.some(sorted(refused))}: {tip}"
        pieces += [Warn(text)] if refused else []
    return Answer(plain, pieces)


@dataclass(frozen=True, kw_only=True)
class Get:
    """Options of `cairn config get`.

    cairn config get build.targets
    """

    name: str = argument("NAME", _KEY_HELP)


def _get(request: Get) -> Answer:
    from cairn import settings

    section, name = _split(request.name)
    _actions(section, name)
    here = settings.load()
    setting = here.of_variable(name) or here.of_files(section).get(name)
    if setting is None:
        raise UsageError(f"{request.name} is not set", tip=f"cairn config set {request.name} VALUE")
    return Answer(
        {"schema": "cairn.setting/1", **_plain(setting)}, [_shown(setting), Note(f"from {setting.origin}")]
    )


@dataclass(frozen=True, kw_only=True)
class Set:
    """Options of `cairn config set`.

    Without --local it is your own file that is written. Without a value, the setting is removed. A flag is
    set to true or false; an option that may be repeated takes several values. The value of trusted-folders
    joins those that it has: folders whose cairn.toml may also name stores, indexes and programs.

        cairn config set store s3://my-wheels/pytorch
    """

    name: str = argument("NAME", _KEY_HELP)
    values: tuple[str, ...] = argument("VALUE", "what the option has without being given", nargs="*")
    local: bool = flag("write the project's file: the one that holds here, else cairn.toml in this folder")
    dry_run: bool = common.dry_run()


def _set(request: Set) -> Iterator[Piece]:
    from cairn import settings

    section, name = _split(request.name)
    if (section, name) == ("", settings.TRUSTED):
        yield from _trust(request)
        return
    path = _file_to_write(local=request.local)
    value: object = None
    if request.values:
        value = _checked_value(_actions(section, name), request, path)
    if request.local:
        place = settings.Setting(name=name, value=" ".join(request.values), place="project", origin=str(path))
        setting_names.refuse_untrusted(place, is_trusted=True)
    if not request.dry_run:
        _write(path, section, name, value)
    verb = "is written into" if request.values else "is taken out of"
    yield f"{request.name} {verb} {path}"
    if request.local and request.values and name not in setting_names.FREE:
        here = settings.load().project
        if here is None or not here.is_trusted:
            yield Note(
                f"it holds once that folder is trusted: cairn config set trusted-folders {path.parent}"
            )
    variable = settings.variable_of(name)
    if os.environ.get(variable) and name not in settings.NOT_SETTINGS:
        yield Warn(f"the variable {variable} is set, and goes before it")


def _trust(request: Set) -> Iterator[Piece]:
    """Let the files of projects set every option, also those that name stores, indexes and programs."""
    from cairn import settings

    if not request.values:
        raise UsageError("no folder is named", tip=f"cairn config set {settings.TRUSTED} DIR")
    path = _file_to_write(local=False)
    table = settings.read_table(path) if path.is_file() else {}
    folders = [str(converters.folder(value).resolve()) for value in request.values]
    if not request.dry_run:
        _write(path, "", settings.TRUSTED, list(dict.fromkeys([*table.get(settings.TRUSTED, []), *folders])))
    yield f"{wording.some(folders)} is trusted, by {path}"


def _file_to_write(*, local: bool) -> Path:
    from cairn import settings

    if local:
        return settings.project_file(Path.cwd()) or Path.cwd() / settings.PROJECT_FILE
    path = settings.user_file()
    if path is None:
        raise UsageError(
            "there is no place for your own file of settings",
            tip="name it in CAIRN_CONFIG, or write the project's with --local",
        )
    return path


def _split(key: str) -> tuple[str, str]:
    """The command and the option that a setting is for; the dot of a script's name stays."""
    section, _, name = key.rpartition(".")
    return re.sub(r"\.(?!py\b)", " ", section).strip(), name.removeprefix("--").replace("_", "-")


def _actions(section: str, name: str) -> list[argparse.Action]:
    """The options of this name in a command, a group or (empty) in all.

    Raises:
        UsageError: there is none.
    """
    from cairn.cli import upstream
    from cairn.cli.main import make_parser
    from cairn.settings import NOT_SETTINGS

    actions: dict[str, list[argparse.Action]] = {}
    commands: list[str] = []
    for name_of_command, all_actions in itertools.chain(
        _walk(make_parser(whole=True)), *map(_walk, upstream.parsers())
    ):
        commands.append(name_of_command)
        if f"{name_of_command} ".startswith(f"{section} ".lstrip()):
            for action in filter(setting_values.can_be_set, all_actions):
                actions.setdefault(setting_values.name_of(action), []).append(action)
    if section not in commands:
        raise UsageError(
            f"there is no command {section!r}",
            tip=wording.did_you_mean(section, [c for c in commands if c], what="the commands are"),
        )
    if name not in actions or name in NOT_SETTINGS:
        where = "any command"
        if section:
            where = f"`{section}`" if section.partition(" ")[0].endswith(".py") else f"`cairn {section}`"
        close = wording.nearest(name.removeprefix("CAIRN-"), actions)
        raise UsageError(
            f"{name!r} is no option of {where}",
            tip=f"did you mean {' or '.join(close)}?" if close else "name it as `--help` does",
        )
    return actions[name]


def _walk(parser: argparse.ArgumentParser) -> Iterator[tuple[str, list[argparse.Action]]]:
    """Each command, and what its own parser takes."""
    actions = parser._actions  # noqa: SLF001 - argparse has no public name
    below = [action for action in actions if isinstance(action, argparse._SubParsersAction)]  # noqa: SLF001
    yield parser.prog.removeprefix("cairn").strip(), [action for action in actions if action not in below]
    for group in below:
        for each in group.choices.values():
            yield from _walk(each)


def _checked_value(actions: list[argparse.Action], request: Set, path: Path) -> object:
    """The value as TOML has it, which some command takes.

    Raises:
        UsageError: none does.
    """
    if actions and all(setting_values.is_flag(action) for action in actions):
        from cairn import settings

        text = " ".join(request.values)
        return settings.truth_of(
            settings.Setting(name=request.name, value=text, place="user", origin=str(path))
        )
    reasons = []
    for action in actions:
        several = isinstance(action, argparse._AppendAction) or action.nargs in ("*", "+")  # noqa: SLF001
        if len(request.values) > 1 and not several:
            reasons.append("it takes one value")
            continue
        try:
            for value in request.values if callable(action.type) else ():
                action.type(value)  # type: ignore[misc,operator]
        except (argparse.ArgumentTypeError, ValueError) as error:
            reasons.append(str(error))
            continue
        choices = action.choices or request.values
        if not set(request.values) <= set(choices):
            reasons.append(f"the choices are: {', '.join(map(str, choices))}")
            continue
        return list(request.values) if several else request.values[0]
    if reasons:
        raise UsageError(
            f"{request.name} cannot be {' '.join(request.values)[:60]!r}: {reasons[0]}",
            tip=f"`cairn help` names the commands, whose --help says what --{request.name} takes",
        )
    return request.values[0] if len(request.values) == 1 else list(request.values)


def _write(path: Path, section: str, name: str, value: object) -> None:
    """Change one key of a file, and nothing else in it; without a value, remove it."""
    import tomlkit

    from cairn import files, settings

    if path.is_file():
        settings.read_table(path)  # says what is wrong with it
    document = tomlkit.parse(path.read_text(encoding="utf-8-sig") if path.is_file() else "")
    names = ("tool", "cairn") if path.name == "pyproject.toml" else ()
    table = _table(document, (*names, *((settings.COMMANDS, section) if section else ())))
    if value is None:
        if table.pop(name, None) is None:
            _actions(section, name)
            raise UsageError(f"{name} is not set in {path}", tip=f"cairn config set {name} VALUE")
    elif name in table or not isinstance(table, tomlkit.TOMLDocument):
        table[name] = value
    else:  # before the first table: behind it, the key would be one of the table's
        tables = {k: table.pop(k) for k in list(table) if isinstance(table[k], Mapping)}
        table[name] = value
        for key, each in tables.items():
            table.add(key, each)
    path.parent.mkdir(parents=True, exist_ok=True)
    is_new = not path.exists()
    files.write_text(path, tomlkit.dumps(document))
    if is_new and names == () and path.parent.name == "cairn":
        path.chmod(0o600)  # an address in it may have a password


def _table(document: Any, keys: Sequence[str]) -> Any:
    """The table below these keys; made where there is none."""
    import tomlkit

    from cairn import settings

    for key in keys:
        if key not in document:
            document.add(key, tomlkit.table(is_super_table=key in ("tool", settings.COMMANDS)))
        document = document[key]
    return document


def _in_force(here: Settings) -> Iterator[Setting]:
    """Every setting that no other one hides: variables first, then the project's file, then the user's.

    Raises:
        UsageError: a file names an option or a command that does not exist.
    """
    names = sorted(setting_names.FREE | setting_names.GUARDED)
    of_variables = {name: s for name in names if (s := here.of_variable(name)) is not None}
    yield from of_variables.values()
    hidden = {("", name) for name in of_variables}
    for file in here.files():
        for section in ("", *sorted(file.sections())):
            for setting in sorted(file.settings(section), key=lambda s: s.name):
                _actions(section, setting.name)
                if setting.name not in of_variables and (section, setting.name) not in hidden:
                    yield setting
                    hidden.add((section, setting.name))


def _key(setting: Setting) -> str:
    return ".".join((*setting.section.split(), setting.name))


def _shown(setting: Setting) -> str:
    value = setting.value
    text = " ".join(value) if isinstance(value, tuple) else str(value)
    return safe_text.mask(text.lower() if isinstance(value, bool) else text)


def _plain(setting: Setting) -> dict[str, object]:
    value = setting.value
    shown: object = [safe_text.mask(v) for v in value] if isinstance(value, tuple) else value
    return {
        "option": setting.name,
        "command": setting.section or None,
        "value": safe_text.mask(shown) if isinstance(shown, str) else shown,
        "place": setting.place,
        "origin": setting.origin,
    }


COMMANDS = {
    "list": command(List, _list),
    "get": command(Get, _get),
    "set": command(Set, _set),
}
