"""The digests that say by which policy tests ran and a set was judged.

Whoever has the same stack elsewhere comes to the same digests: no folder of a machine is in them.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable
from pathlib import Path

import msgspec

from cairn import files
from cairn.stack.model import Stack

SKIPS = "skip-tests"
"""The folder beside a stack.toml with the tests that are left out."""

# Fields that stacks did not always have. Records name the digest of a stack, so one that says nothing by them
# keeps the digest that it had before. A new field goes here too.
_ADDED = {
    "consumers": ("index",),
    "budgets": ("import_seconds",),
    "": ("budgets", "consumers"),
    "gate": ("rebuilds", "rebuilders"),
}


def digest_of(stack: Stack) -> str:
    """The digest of all that a stack says.

    The line and what of the projects follows from it are not in it: tests are not asked which line they are
    for, and a set names its line, and the commits by its manifest.
    """
    plain = msgspec.to_builtins(msgspec.structs.replace(stack, folder="", line=""))
    del plain["costs"]  # they are told, and decide nothing
    for project in plain["projects"]:
        del project["origin"], project["hashtag"]
    for owner, names in _ADDED.items():
        fields = plain[owner] if owner else plain
        several = fields if owner == "consumers" else fields.values() if owner == "budgets" else [fields]
        for one, name in itertools.product(several, names):
            if not one[name]:
                del one[name]
    if stack.folder:
        plain = _below(plain, Path(stack.folder))
    return hashlib.sha256(msgspec.json.encode(plain, order="sorted")).hexdigest()


def digest_of_files(places: Iterable[Path], pattern: str = "*") -> str | None:
    """The digest of files, and of those in folders, by their paths there; None where there is none.

    Args:
        places: the files and folders.
        pattern: which files of the folders, whose caches and hidden files do not count.
    """
    lines = []
    for place in places:
        for path in place.rglob(pattern) if place.is_dir() else [place]:
            inside = path.relative_to(place) if place.is_dir() else Path(place.name)
            hidden = any(part == "__pycache__" or part.startswith(".") for part in inside.parts)
            if path.is_file() and not hidden:
                lines.append(f"{inside.as_posix()} {files.sha256_of(path)}\n")
    return hashlib.sha256("".join(sorted(lines)).encode()).hexdigest() if lines else None


def skips_digest(places: Iterable[Path]) -> str | None:
    """The digest of lists of tests that are left out; None where there is none."""
    return digest_of_files(places, "*.toml")


def _below(value: object, root: Path) -> object:
    """Plain values with the paths below `root` as seen from there."""
    if isinstance(value, dict):
        return {key: _below(one, root) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_below(one, root) for one in value]
    if isinstance(value, str) and value.startswith(str(root)) and Path(value).is_relative_to(root):
        return Path(value).relative_to(root).as_posix()
    return value
