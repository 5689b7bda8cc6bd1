"""Paths that people name: what is not there, or of another kind, is said before a command begins.

Each function is a `type` of argparse: it gives the path, or raises what argparse shows beside the argument.
"""

from __future__ import annotations

import os
from argparse import ArgumentTypeError
from pathlib import Path

from cairn import files
from cairn.errors import UsageError


def file(text: str) -> Path:
    """A file that is there and can be read."""
    path = _there(text, "file")
    if path.is_dir():
        raise ArgumentTypeError(f"{text} is a folder, not a file")
    return _readable(path, os.R_OK)


def folder(text: str) -> Path:
    """A folder that is there and can be read."""
    path = _there(text, "folder")
    if not path.is_dir():
        raise ArgumentTypeError(f"{text} is a file, not a folder")
    return _readable(path, os.R_OK | os.X_OK)


def program(text: str) -> Path:
    """A program that can be run, such as an interpreter."""
    path = _there(text, "program")
    if path.is_dir():
        raise ArgumentTypeError(f"{text} is a folder, not a program")
    if not os.access(path, os.X_OK):
        raise ArgumentTypeError(f"{text} is not a program: it may not be run")
    return path


def file_or_folder(text: str) -> Path:
    """Either, as long as it is there."""
    path = _there(text, "file or folder")
    return _readable(path, os.R_OK)


def new_file(text: str) -> Path:
    """A file to write: its folder is made where it is missing."""
    path = _expanded(text)
    if path.is_dir():
        raise ArgumentTypeError(f"{text} is a folder, not a file to write")
    _refuse_file_above(path)
    return path


def new_folder(text: str) -> Path:
    """A folder to write into: it is made where it is missing."""
    path = _expanded(text)
    if path.exists() and not path.is_dir():
        raise ArgumentTypeError(f"{text} is a file, not a folder to write into")
    _refuse_file_above(path)
    return path


def _expanded(text: str) -> Path:
    try:
        return files.expanded(text)
    except UsageError as error:
        raise ArgumentTypeError(str(error)) from error


def _there(text: str, what: str) -> Path:
    path = _expanded(text)
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        if path.is_symlink():
            said = f"{text} is a link to {path.readlink()}, which is not there"
        elif any(sign in text for sign in "*?["):
            said = f"no {what} matches {text}"
        else:
            said = f"there is no {what} {text}"
        raise ArgumentTypeError(said) from error
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
