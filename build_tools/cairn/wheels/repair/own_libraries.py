"""Run paths by which the binaries of a wheel find libraries of the same wheel.

Some projects load their libraries from Python before what needs them (torchaudio its `libtorchaudio.so`), and
give no run paths. That works, but only Python knows of it: to auditwheel the library is nowhere.
"""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Collection

from cairn.wheels.contents.binaries import Binary
from cairn.wheels.rewrite.elf import BinaryEdit

_ORIGIN = ("$ORIGIN", "${ORIGIN}")


def edits(binaries: Collection[Binary]) -> dict[str, BinaryEdit]:
    """For each binary that needs a library of its wheel and does not look where it is: its run paths.

    They come after those that it has. A library of which the wheel has several, in different folders, could
    be any of them, and is left alone.
    """
    folders: dict[str, set[str]] = defaultdict(set)
    for binary in binaries:
        folders[posixpath.basename(binary.path)].add(posixpath.dirname(binary.path))
    edits: dict[str, BinaryEdit] = {}
    for binary in binaries:
        here = posixpath.dirname(binary.path)
        reached = {_folder(path, here) for path in binary.run_paths}
        targets = [folders[name] for name in binary.needed if name in folders]
        missing = dict.fromkeys(min(each) for each in targets if len(each) == 1 and each.isdisjoint(reached))
        if missing:
            paths = (_from(here, folder) for folder in missing)
            edits[binary.path] = BinaryEdit(run_path=(*binary.run_paths, *paths))
    return edits


def _folder(run_path: str, here: str) -> str | None:
    """The folder of the wheel that a run path leads to; None for one outside."""
    start, _, rest = run_path.partition("/")
    if start not in _ORIGIN:
        return None
    folder = posixpath.normpath(posixpath.join(here, rest))
    return "" if folder == "." else folder


def _from(here: str, folder: str) -> str:
    relative = posixpath.relpath(folder or ".", here or ".")
    return "$ORIGIN" if relative == "." else f"$ORIGIN/{relative}"
