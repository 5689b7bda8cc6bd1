"""The allowlist of patches-policy: the commits that may be on top of a hipified checkout, why, until when."""

from __future__ import annotations

import datetime as dt
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cairn.errors import UsageError
from cairn.sources.git.command import COMMIT_ID

SCHEMA = "cairn.patches/1"
DEFAULT = Path("patches-policy", "allowlist.toml")

# tomllib does not say on which line a value was: where an entry begins is searched in the text.
_TABLE = re.compile(r"[ \t]*\[\[[ \t]*[\"']?patch[\"']?[ \t]*\]\]")
_SHAPES: Mapping[str, tuple[re.Pattern[str], str]] = {
    "commit": (COMMIT_ID, "a full commit id, in lower case"),
    "why": (re.compile(r"\S.{9,}", re.DOTALL), "a sentence"),
    "upstream": (re.compile(r"https://\S+/(pull|merge_requests)/\d+\S*"), "the URL of a pull request"),
    "owner": (re.compile(r"\S.*"), "a name"),
    "expires": (re.compile(r"\d{4}-\d{2}-\d{2}"), "a date, YYYY-MM-DD"),
    "project": (re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*"), "the name of a project of the stack"),
    "path": (re.compile(r"[^/\s][^\n]*[^/\s]|[^/\s]"), "the path of a submodule"),
    "patch": (re.compile(r"[0-9a-f]{64}"), "a sha256, as `cairn patches audit` shows it"),
}
_REQUIRED = ("project", "commit", "why", "upstream", "owner", "expires")


@dataclass(frozen=True, kw_only=True)
class Allowed:
    """One entry.

    Attributes:
        project: whose checkout it is for, as the stack calls it.
        commit: its id, where it comes from.
        why: what breaks without it.
        upstream: the pull request that will make it unnecessary.
        owner: who is responsible for it.
        expires: the last day on which it is allowed.
        path: of the submodule it is for; empty for the root.
        patch: digest of what it changes (`local_commits.digest`), which is the same on a different base.
        where: file and line of the entry.
    """

    project: str
    commit: str
    why: str
    upstream: str
    owner: str
    expires: dt.date
    path: str = ""
    patch: str | None = None
    where: str = ""


def find(start: Path) -> Path | None:
    """The allowlist of `start` or of the nearest folder above it."""
    folders = (start.absolute(), *start.absolute().parents)
    return next((folder / DEFAULT for folder in folders if (folder / DEFAULT).is_file()), None)


def load(path: Path) -> tuple[Allowed, ...]:
    """Read an allowlist.

    Raises:
        UsageError: it cannot be read or is malformed, with the file, the line and the reason.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        data = tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise UsageError(f"{path}:{line}: not UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}:{_line_of(error, text)}: {error}", tip="correct the file") from error
    except (ValueError, RecursionError) as error:  # a number too long, or tables nested too deep
        raise UsageError(f"{path}: {error}", tip="correct the file") from error
    if data.get("schema") != SCHEMA:
        raise UsageError(f"{path}:1: schema is {data.get('schema')!r}, expected {SCHEMA!r}")
    if unknown := sorted(data.keys() - {"schema", "patch"}):
        raise UsageError(f"{path}:{_line_with(text, unknown[0])}: unknown key {unknown[0]}")
    entries = tuple(_entries(path, text, data.get("patch", [])))
    _refuse_duplicates(entries)
    return entries


def _entries(path: Path, text: str, tables: object) -> Iterator[Allowed]:
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise UsageError(f"{path}:{_line_with(text, 'patch')}: patch is not an array of tables: [[patch]]")
    starts = [number for number, line in enumerate(text.splitlines(), 1) if _TABLE.match(line)]
    for number, table in enumerate(tables):
        # They differ where `[[patch]]` is in a text of several lines, or the tables are written inline.
        start = starts[number] if len(starts) == len(tables) else 1
        yield _entry(path, text, start, table)


def _entry(path: Path, text: str, start: int, table: Mapping[str, object]) -> Allowed:
    def refuse(key: str, reason: str) -> UsageError:
        return UsageError(f"{path}:{_line_with(text, key, start=start)}: {reason}")

    for key in sorted(table.keys() - _SHAPES.keys()):
        raise refuse(key, f"unknown key {key}")
    if missing := [key for key in _REQUIRED if key not in table]:
        raise UsageError(f"{path}:{start}: {missing[0]} is missing")
    fields: dict[str, str] = {}
    for key, value in table.items():
        shape, meaning = _SHAPES[key]
        # `type`, since a datetime is a date too, and a last day has no time.
        plain = value.isoformat() if type(value) is dt.date else value
        if not isinstance(plain, str) or not shape.fullmatch(plain):
            raise refuse(key, f"{key} is {plain!r}, expected {meaning}")
        fields[key] = plain
    try:
        expires = dt.date.fromisoformat(fields.pop("expires"))
    except ValueError as error:
        raise refuse("expires", f"expires: {error}") from error
    return Allowed(**fields, expires=expires, where=f"{path}:{start}")


def _refuse_duplicates(entries: tuple[Allowed, ...]) -> None:
    seen: dict[tuple[str, str, str], Allowed] = {}
    for entry in entries:
        first = seen.setdefault((entry.project, entry.path, entry.commit), entry)
        if first is not entry:
            raise UsageError(f"{entry.where}: {entry.commit[:12]} is allowed at {first.where} already")


def _line_with(text: str, key: str, *, start: int = 1) -> int:
    """The line, from `start` on, that sets a key; `start` itself when none is found."""
    pattern = re.compile(rf"\s*(\[\[?\s*)?[\"']?{re.escape(key)}[\"']?\s*[=.\]]")
    lines = enumerate(text.splitlines()[start - 1 :], start)
    return next((number for number, line in lines if pattern.match(line)), start)


def _line_of(error: tomllib.TOMLDecodeError, text: str) -> int:
    match = re.search(r"at line (\d+)", str(error))
    return int(match[1]) if match else text.count("\n") + 1
