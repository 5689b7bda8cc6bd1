"""Settings: values that options have where the command line does not give them.

They stand in `CAIRN_*` variables, in the project's file and in the user's, and the first of those that has an
option wins; a value for one command goes before one for all. That is pip's order of precedence
(pip's documentation, "Configuration").

What a project's file may say is limited, since a checkout of somebody else's may bring one:
see `cairn.cli.setting_names`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from cairn.errors import UsageError

Place: TypeAlias = Literal["environment", "project", "user"]
Value: TypeAlias = "str | bool | tuple[str, ...]"

FILE_VARIABLE = "CAIRN_CONFIG"
"""Names the file that is read instead of the user's; the null device stands for no file, as in pip."""
PROJECT_FILE = "cairn.toml"
TRUSTED = "trusted-folders"
"""The key of the user's file with the folders whose project files may set anything."""
COMMANDS = "command"
"""The table of both files whose tables hold for one command or one group: `[command."build run"]`."""
NOT_SETTINGS = frozenset({"config", "cache-dir", "set"})
"""Names whose variable means something else: the file of settings, the folder of the cache, and the set that
`cairn bisect` tells the command it runs."""
PERSONAL = frozenset({"sign-key"})
"""Options that no project's file sets, trusted or not: a secret is a person's."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A value of an option, and where it stands.

    Attributes:
        name: of the option, without dashes: `sign-key`.
        value: words of a command line, or whether a flag is set.
        place: which of the places it is in.
        origin: the variable, or the file.
        folder: what a relative path in it counts from; None for the current folder.
        section: the command it holds for; empty for all.
    """

    name: str
    value: Value
    place: Place
    origin: str
    folder: Path | None = None
    section: str = ""


@dataclass(frozen=True, kw_only=True)
class File:
    """A file of settings.

    Attributes:
        place: the project's, or the user's.
        path: where it is, or would be.
        table: what is in it; None where there is none.
        is_trusted: it may set every option.
        folders: those whose files are trusted, if this is the user's.
    """

    place: Place
    path: Path
    table: Mapping[str, Any] | None = None
    is_trusted: bool = True
    folders: tuple[Path, ...] = ()

    def settings(self, section: str = "") -> Iterator[Setting]:
        """What it says for a command or a group, or for all.

        Raises:
            UsageError: a value is of no kind that options have.
        """
        table = self.table or {}
        if section:
            commands = table.get(COMMANDS, {})
            table = commands.get(section, {}) if isinstance(commands, Mapping) else {}
            if not isinstance(table, Mapping):
                raise UsageError(f'{self.path}: [{COMMANDS}."{section}"] is not a table')
        for name, value in table.items():
            if section or name not in (COMMANDS, TRUSTED):
                words = _value(value, f"{self.path}: {name}")
                yield Setting(
                    name=name,
                    value=words,
                    place=self.place,
                    origin=str(self.path),
                    folder=self.path.parent,
                    section=section,
                )

    def sections(self) -> tuple[str, ...]:
        """The commands and groups that it has tables for.

        Raises:
            UsageError: `command` is no table.
        """
        commands = (self.table or {}).get(COMMANDS, {})
        if not isinstance(commands, Mapping):
            raise UsageError(f"{self.path}: {COMMANDS} is not a table", tip=f'write [{COMMANDS}."build run"]')
        return tuple(commands)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What can be set where a command runs: the variables, the project's file and the user's.

    Attributes:
        variables: the environment.
        project: the project's file, if one is above the current folder.
        user: the user's file; None where there are none.
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    project: File | None = None
    user: File | None = None

    def files(self) -> tuple[File, ...]:
        """The files, the one that goes first before the other."""
        return tuple(file for file in (self.project, self.user) if file is not None)

    def of_variable(self, name: str) -> Setting | None:
        """What the variable of an option says. One that is empty is not set: so CI passes those it lacks."""
        variable = variable_of(name)
        if name in NOT_SETTINGS or not (text := self.variables.get(variable)):
            return None
        return Setting(name=name, value=text, place="environment", origin=variable)

    def of_files(self, command: str) -> dict[str, Setting]:
        """By name, what the files say for a command such as `build run`; what they say for all commands, too.

        Raises:
            UsageError: a file cannot be read that way.
        """
        for file in self.files():
            file.sections()
        words = command.split()
        values: dict[str, Setting] = {}
        # The table of a command goes before that of its group, and that before what holds for all.
        for section in [" ".join(words[:end]) for end in range(len(words), -1, -1)]:
            for file in self.files():
                for setting in file.settings(section):
                    values.setdefault(setting.name, setting)
        return values


def variable_of(name: str) -> str:
    """The variable that sets an option: `CAIRN_SIGN_KEY` for `sign-key`."""
    return "CAIRN_" + name.upper().replace("-", "_")


def user_file() -> Path | None:
    """The user's file, which need not be there; None where no file is to be read.

    `CAIRN_CONFIG`, else `cairn/cairn.toml` where the system keeps what users set (`System.config_home`).

    Raises:
        UsageError: the variable names one below a home folder that is not known.
    """
    from cairn import platforms  # noqa: PLC0415 - help is shown without any setting

    chosen = os.environ.get(FILE_VARIABLE)
    if chosen == os.devnull:
        return None
    if chosen:
        return _expanded(chosen, FILE_VARIABLE, tip="name a file by its whole path").absolute()
    try:
        return Path(platforms.here.config_home(), "cairn", PROJECT_FILE).expanduser()
    except RuntimeError:  # no home, as in a container without users
        return None


def project_file(start: Path) -> Path | None:
    """The project's file that holds in a folder: in it, or above it up to the root of its repository.

    A `cairn.toml` goes before a `pyproject.toml` beside it. Above the home folder none is looked for.
    """
    stop = _home()
    for folder in (start, *start.parents):
        for name in (PROJECT_FILE, "pyproject.toml"):
            path = folder / name
            if path.is_file() and (name == PROJECT_FILE or b"tool.cairn" in path.read_bytes()):
                return path
        if folder == stop or (folder / ".git").exists():
            return None
    return None


def load() -> Settings:
    """Read what there is here.

    Raises:
        UsageError: a file is no TOML, or cannot be read.
    """
    path = user_file()
    user = None
    if path is not None:
        table = read_table(path) if path.is_file() else None
        names = _texts((table or {}).get(TRUSTED, []), path)
        folders = tuple(_expanded(each, f"{path}: {TRUSTED}", tip="correct the file") for each in names)
        user = File(place="user", path=path, table=table, folders=folders)
    elif os.environ.get(FILE_VARIABLE):
        return Settings(variables=os.environ)
    project = None
    try:
        beside = project_file(Path.cwd())
    except OSError:  # the current folder is gone, or may not be read
        beside = None
    if beside is not None and not (path is not None and path.exists() and beside.samefile(path)):
        folders = user.folders if user else ()
        is_trusted = any(beside.parent.resolve().is_relative_to(folder.resolve()) for folder in folders)
        if not is_trusted and not _is_ours(beside):
            # Somebody else may write into a folder above, as into /tmp: git calls that dubious ownership.
            raise UsageError(
                f"{beside} belongs to somebody else",
                tip=f"if you trust it: cairn config set trusted-folders {beside.parent}",
            )
        project = File(place="project", path=beside, table=read_table(beside), is_trusted=is_trusted)
    return Settings(variables=os.environ, project=project, user=user)


def words_of(setting: Setting, *, several: bool) -> tuple[str, ...]:
    """The words of a setting: one, unless the option takes several.

    A variable has several between spaces, and quotes keep a word with spaces together.
    """
    value = setting.value
    if isinstance(value, bool):
        raise UsageError(f"{setting.origin}: {setting.name} takes a value, not true or false")
    if isinstance(value, tuple):
        return value if several else (",".join(value),)
    if not several or setting.place != "environment":
        return (value,)
    import shlex  # noqa: PLC0415 - few variables are lists

    lexer = shlex.shlex(value, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters, lexer.escape = True, "", ""
    try:
        return tuple(lexer)
    except ValueError as error:
        raise UsageError(f"{setting.origin}: a quote in it is not closed") from error


def truth_of(setting: Setting) -> bool:
    """Whether a flag is set.

    Raises:
        UsageError: it says neither yes nor no.
    """
    if isinstance(setting.value, bool):
        return setting.value
    text = str(setting.value).strip().lower()
    if text in ("1", "true", "yes", "on", "y", "t"):  # what pip takes
        return True
    if text in ("0", "false", "no", "off", "n", "f"):
        return False
    raise UsageError(f"{setting.origin}: {setting.name} is true or false, not {str(setting.value)[:40]!r}")


def read_table(path: Path) -> Mapping[str, Any]:
    """Read a file of settings; of a `pyproject.toml`, what `[tool.cairn]` has.

    Raises:
        UsageError: it cannot be read, or is no TOML.
    """
    from cairn import datafile  # noqa: PLC0415 - most runs have no file

    table = datafile.read_toml(path)
    if path.name != "pyproject.toml":
        return table
    tool = table.get("tool", {})
    cairn_table = tool.get("cairn", {}) if isinstance(tool, Mapping) else {}
    if not isinstance(cairn_table, Mapping):
        raise UsageError(f"{path}: tool.cairn is not a table", tip="write [tool.cairn]")
    return cairn_table


def _value(value: object, where: str) -> Value:
    if isinstance(value, bool | str):
        return value
    if isinstance(value, list):
        if all(isinstance(each, str | int | float) and not isinstance(each, bool) for each in value):
            return tuple(map(str, value))
        raise UsageError(f"{where} is a list of something else than texts and numbers")
    if isinstance(value, Mapping):
        tip = f'what holds for one command stands in [{COMMANDS}."build run"]'
        if where.endswith(f"{PROJECT_FILE}: tool"):
            tip = f"in {PROJECT_FILE} options stand at the top: [tool.cairn] is of pyproject.toml"
        raise UsageError(f"{where} is a table, not the value of an option", tip=tip)
    return str(value)  # a number, a date


def _texts(value: object, path: Path) -> Sequence[str]:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return value
    raise UsageError(f"{path}: {TRUSTED} is not a list of folders", tip=f'write {TRUSTED} = ["/a/folder"]')


def _expanded(text: str, origin: str, *, tip: str) -> Path:
    from cairn import files  # noqa: PLC0415 - most runs have no such path

    try:
        return files.expanded(text)
    except UsageError as error:
        raise UsageError(f"{origin}: {error}", tip=tip) from error


def _home() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:
        return None


def _is_ours(path: Path) -> bool:
    return not hasattr(os, "geteuid") or path.stat().st_uid in (os.geteuid(), 0)
