"""Folders of a wheel as the run paths of its binaries write them: counted from the binary (ld.so(8))."""

from __future__ import annotations

import posixpath

ORIGIN = "$ORIGIN"


def folder_of(member: str, run_path: str) -> str | None:
    """The folder, counted from the top of the wheel, that a run path of a member leads to.

    It begins with `..` where it leads out of the wheel; None where the path does not count from the binary.
    """
    start, _, rest = run_path.replace("${ORIGIN}", ORIGIN).partition("/")
    if start != ORIGIN:
        return None
    folder = posixpath.normpath(posixpath.join(posixpath.dirname(member), rest))
    return "" if folder == "." else folder


def to_folder(member: str, folder: str) -> str:
    """The run path by which a member finds a folder."""
    relative = posixpath.relpath(folder or ".", posixpath.dirname(member) or ".")
    return ORIGIN if relative == "." else f"{ORIGIN}/{relative}"
