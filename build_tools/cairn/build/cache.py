"""Built wheels kept by what went into them, so that nothing is built twice.

A folder per key, `ab/abcd…/`, with the wheel under its own name and `entry.json`. An entry appears whole (its
folder is renamed into place) and is never changed; one whose bytes do not have the noted sha256 is a miss.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cairn import datafile, files
from cairn.errors import UsageError

_FORMAT = "3"  # part of every key: raise it when a build of the same inputs gives a different wheel


class CacheEntry(datafile.Value, tag_field="schema", tag="cairn.cache-entry/1"):
    """What the cache notes of a wheel; the fields mean what they mean in `Hit`."""

    file_name: str
    sha256: str
    seconds: float
    identity: str


@dataclass(frozen=True, kw_only=True)
class Hit:
    """A wheel found in the cache.

    Attributes:
        wheel: its file; never to be changed.
        sha256: of the file.
        seconds: what its build took.
        identity: the key it was first built under, by which builds against it know it.
    """

    wheel: Path
    sha256: str
    seconds: float
    identity: str


def key_of(inputs: Mapping[str, object]) -> str:
    """The key of a build: a sha256 over everything that may change the wheel, as canonical JSON."""
    text = json.dumps({"format": _FORMAT, **inputs}, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


class WheelCache:
    """A folder of entries, each written whole; safe to share between runs."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def get(self, key: str) -> Hit | None:
        """The wheel built from these inputs; None when there is none or when its bytes were damaged."""
        folder = self._folder(key)
        try:
            entry = datafile.read(folder / "entry.json", CacheEntry)
            wheel = folder / entry.file_name
            # Read whole each time: a hard link of it lies in the output folder, where anyone may write to it.
            if files.sha256_of(wheel) != entry.sha256:
                return None
        except (UsageError, OSError):
            return None
        return Hit(wheel=wheel, sha256=entry.sha256, seconds=entry.seconds, identity=entry.identity)

    def put(self, key: str, wheel: Path, *, seconds: float, identity: str | None = None) -> Hit:
        """Keep a wheel, under its own name.

        Args:
            key: of its inputs.
            wheel: its file.
            seconds: what its build took.
            identity: the key it was first built under, when `key` is a second key of the same wheel.
        """
        entry = CacheEntry(
            file_name=wheel.name, sha256=files.sha256_of(wheel), seconds=seconds, identity=identity or key
        )
        with files.folder_beside(self._folder(key)) as folder:
            files.link_or_copy(wheel, folder / wheel.name)
            datafile.write(folder / "entry.json", entry)
        kept = self._folder(key) / wheel.name
        return Hit(wheel=kept, sha256=entry.sha256, seconds=seconds, identity=entry.identity)

    def _folder(self, key: str) -> Path:
        return self._root / key[:2] / key
