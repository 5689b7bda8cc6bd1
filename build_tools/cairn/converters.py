"""Values of the text of arguments: what is missing or of a different kind is said before a command begins.

Each is the `convert` of an option (`cairn.options`), and raises ArgumentTypeError: its text follows the name
of the option in the message.
"""

from __future__ import annotations

import math
import os
import re
from argparse import ArgumentTypeError
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.errors import UsageError

if TYPE_CHECKING:
    from datetime import datetime

_MOST_SECONDS = 1e9
_DAY = re.compile(r"\d{4}-\d\d-\d\d|\d{8}")


def nonempty(text: str) -> str:
    """A text for options whose default is wide: every target, the public index."""
    # As CI passes a variable that is not set.
    if not text.strip():
        raise ArgumentTypeError("it is empty; leave the option out for what applies without it")
    return text


def place(text: str) -> str:
    """A URL, or a folder."""
    from urllib.parse import urlsplit  # noqa: PLC0415 - no help needs it

    try:
        parts = urlsplit(text)
        _ = parts.scheme == "file" or parts.port  # on Windows, file://C:\x is written too
    except ValueError:  # whose text may have the password in it
        raise ArgumentTypeError("it is no URL: its host or its port cannot be read") from None
    return text


def url(text: str) -> str:
    """A URL, for options that mean something else where they are left out."""
    return place(nonempty(text))


def words(text: str) -> tuple[str, ...]:
    """Names that are joined by commas."""
    names = tuple(name.strip() for name in nonempty(text).split(","))
    if not all(names):
        raise ArgumentTypeError(f"{text!r} names nothing between two commas")
    return names


def positive(text: str) -> int:
    """A number of things."""
    return _number(text, "a positive number below a billion")


def days(text: str) -> int:
    """A number of days until now: dates of Python begin 740,000 days ago."""
    return _number(text, "a number of days from 1 to 99999", digits=5)


def shards(text: str) -> int:
    """A number of machines that share a suite; GitHub's matrix has 256 jobs."""
    return _number(text, "a number from 1 to 999", digits=3)


def floor(text: str) -> int:
    """A number of tests that must have run, which may be none."""
    return _number(text, "a number of tests below a billion", least=0)


def exact_version(text: str) -> str:
    """An exact version, perhaps with the comparison that upstream writes before it: `==7.10.0`."""
    return text.strip().removeprefix("==")


def seconds(text: str) -> float:
    """A time to wait."""
    # Nothing is later than `nan`, and `inf` is more than a lock or a pipe can wait for.
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < _MOST_SECONDS:
        raise ArgumentTypeError(f"{text[:40]!r} is not a positive number of seconds below a billion")
    return number


def moment(text: str) -> datetime:
    """A moment written as ISO 8601: UTC where no zone is given, the end of the day where no time is given."""
    from datetime import UTC, date, datetime, time  # noqa: PLC0415 - few lines name a moment

    try:
        if _DAY.fullmatch(text):
            return datetime.combine(date.fromisoformat(text), time.max, tzinfo=UTC)
        when = datetime.fromisoformat(text)
    except ValueError as error:
        raise ArgumentTypeError(
            f"{text!r} is not a valid date: write it as 2025-11-24, or with a time as 2025-11-24T06:00+00:00"
        ) from error
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def file(text: str) -> Path:
    """A file that is there and can be read."""
    path = _existing(text, "file")
    if path.is_dir():
        raise ArgumentTypeError(f"{text} is a folder, not a file")
    return _readable(path, os.R_OK)


def private_key(text: str) -> Path:
    """The file of a private key, which no foreign code can read from then on."""
    from cairn import isolation  # noqa: PLC0415 - no help needs it

    path = file(text)
    isolation.conceal(path)
    return path


def wheel(text: str) -> Path | str:
    """A wheel that is there, or the text of a URL or of `INDEX#NAME==VERSION`."""
    return file(text) if isinstance(where := place_of_wheel(text), Path) else place(where)


def place_of_wheel(text: str) -> Path | str:
    """A path, or what is no path but a URL or `INDEX#NAME==VERSION`."""
    return text if ("://" in text or "#" in text) and not Path(text).exists() else Path(text)


def folder(text: str) -> Path:
    """A folder that is there and can be read."""
    path = _existing(text, "folder")
    if not path.is_dir():
        raise ArgumentTypeError(f"{text} is a file, not a folder")
    return _readable(path, os.R_OK | os.X_OK)


def program(text: str) -> Path:
    """A program that can be run, such as an interpreter: its whole path, as it may run in another folder."""
    path = _existing(text, "program")
    if path.is_dir():
        raise ArgumentTypeError(f"{text} is a folder, not a program")
    if not os.access(path, os.X_OK):
        raise ArgumentTypeError(f"{text} is not a program: it may not be run")
    return path.absolute()  # links stay: an environment's interpreter is one


def file_or_folder(text: str) -> Path:
    """Either, as long as it is there."""
    path = _existing(text, "file or folder")
    return _readable(path, os.R_OK)


def new_file(text: str) -> Path:
    """A file to write: its folder is made where it is missing."""
    path = any_path(text)
    if path.is_dir():
        raise ArgumentTypeError(f"{text} is a folder, not a file to write")
    _refuse_file_above(path)
    return path


def new_folder(text: str) -> Path:
    """A folder to write into: it is made where it is missing."""
    path = any_path(text)
    if path.exists() and not path.is_dir():
        raise ArgumentTypeError(f"{text} is a file, not a folder to write into")
    _refuse_file_above(path)
    return path


def any_path(text: str) -> Path:
    """A path of which the command itself says more, where nothing is there."""
    from cairn import files  # noqa: PLC0415 - what it needs takes longer to import than most lines take to read

    try:
        return files.expanded(text)
    except UsageError as error:
        raise ArgumentTypeError(str(error)) from error


def _number(text: str, subject: str, *, least: int = 1, digits: int = 9) -> int:
    # Python makes no number of more than 4,300 digits, and no machine has use for one of ten.
    if not re.fullmatch(f"[0-9]{{1,{digits}}}", text) or int(text) < least:
        raise ArgumentTypeError(f"{text[:40]!r} is not {subject}")
    return int(text)


def _existing(text: str, subject: str) -> Path:
    path = any_path(text)
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        if path.is_symlink():
            problem = f"{text} is a link to {path.readlink()}, which is not there"
        elif any(sign in text for sign in "*?["):
            problem = f"no {subject} matches {text}"
        else:
            problem = f"there is no {subject} {text}"
        raise ArgumentTypeError(problem) from error
    except (OSError, ValueError) as error:  # a name with a NUL is a ValueError
        raise ArgumentTypeError(f"{text!r} cannot be read: {_reason(error)}") from error
    return path


def _readable(path: Path, mode: int) -> Path:
    if not os.access(path, mode):
        raise ArgumentTypeError(f"{path} cannot be read: permission denied")
    return path


def _refuse_file_above(path: Path) -> None:
    try:
        above = next(folder for folder in path.absolute().parents if folder.exists())
        if not above.is_dir():
            raise ArgumentTypeError(f"{path} cannot be made: {above} is a file")
    except (OSError, ValueError) as error:
        raise ArgumentTypeError(f"{str(path)!r} cannot be written: {_reason(error)}") from error


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
