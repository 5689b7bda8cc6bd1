"""CMake's settings compared with those of the stack, while the build runs.

CMake switches off, or on, what it believes to be right for the machine, and says so in one line among
thousands: a wheel without ROCm is noticed after two hours, one with a library of the build machine (MPI,
NUMA) later still. Its `CMakeCache.txt` is written when it has configured, before the first file is compiled:
looked for with each line that the build writes, so it does not matter which program calls CMake.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cairn.errors import BuildError
from cairn.output import console

_FILE = "CMakeCache.txt"
_DEEP = 3  # folders between that of the build and the file: `build/lib.linux-x86_64/x/CMakeCache.txt`
_SHARE = 20  # looking may take a 20th of the time: there are builds that write thousands of lines a second
# What `if()` takes for a constant (CMake's manual, "if", "Basic Expressions").
_TRUE = frozenset({"1", "ON", "YES", "TRUE", "Y"})
_FALSE = frozenset({"0", "OFF", "NO", "FALSE", "N", "IGNORE", "NOTFOUND", ""})


@dataclass(kw_only=True)
class Watch:
    """Checks the CMakeCache.txt files of one build.

    Attributes:
        project: its name, for messages.
        settings: name of a cache entry to its value.
        homes: the folders whose CMakeLists.txt is the project's own; others are of what it contains.
        folders: where build folders appear.
        log: of the build.
    """

    project: str
    settings: Mapping[str, str]
    homes: Sequence[Path]
    folders: Sequence[Path]
    log: Path
    _seen: dict[Path, tuple[int, int]] = field(default_factory=dict)
    _next: float = 0.0
    _unknown: set[str] = field(default_factory=set)

    def look(self, *, now: bool = False) -> None:
        """Compare new or changed caches; cheap enough to be called with each line of output.

        Raises:
            BuildError: CMake has other settings than the stack asks for.
        """
        began = time.monotonic()
        if not self.settings or (not now and began < self._next):
            return
        for path in (path for folder in self.folders for path in _below(folder, _DEEP)):
            with contextlib.suppress(OSError):  # it was removed meanwhile, as builds do
                info = path.stat()
                if self._seen.get(path) != (info.st_mtime_ns, info.st_size):
                    self._seen[path] = (info.st_mtime_ns, info.st_size)
                    self._compare(path)
        # No fixed pause: after the line that follows a configure there may be no other for a long time.
        self._next = began + _SHARE * (time.monotonic() - began)

    def _compare(self, path: Path) -> None:
        entries = read(path)
        # A program in a folder that a link leads to knows the folder by its own path.
        if os.path.realpath(entries.get("CMAKE_HOME_DIRECTORY", "")) not in map(os.path.realpath, self.homes):
            return
        unknown = sorted(self.settings.keys() - entries.keys() - self._unknown)
        if unknown:
            self._unknown |= set(unknown)
            console.current().warn(f"{self.project}: its CMake knows no {', '.join(unknown)}")
        other = [
            f"{name} is {entries[name] or 'empty'}, and {value} was asked"
            for name, value in sorted(self.settings.items())
            if name in entries and not same(entries[name], value)
        ]
        if other:
            raise BuildError(
                f"CMake has configured {self.project} differently: {'; '.join(other)}",
                log=self.log,
                tip="the log says why CMake chose so; `--clean` forgets what an earlier build had chosen",
            )


def read(path: Path) -> dict[str, str]:
    """The entries of a CMakeCache.txt: lines of `NAME:TYPE=VALUE`."""
    entries = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        left, sign, value = line.partition("=")
        name, colon, _ = left.rpartition(":")
        if sign and colon and not line.startswith(("//", "#")):
            entries[name.strip('"')] = value
    return entries


def same(one: str, other: str) -> bool:
    """Whether two values mean the same to CMake: all words for true are one value, and those for false."""
    return _meaning(one) == _meaning(other)


def _meaning(value: str) -> str:
    upper = value.upper()
    if upper in _TRUE:
        return "ON"
    return "OFF" if upper in _FALSE or upper.endswith("-NOTFOUND") else value


def _below(folder: Path, deep: int) -> Iterator[Path]:
    try:
        with os.scandir(folder) as listing:
            entries = list(listing)
    except OSError:  # it is not there yet, or just gone
        return
    for entry in entries:
        if entry.name == _FILE:
            yield Path(entry.path)
        # CMake's own trials have caches below CMakeFiles.
        elif deep and entry.name != "CMakeFiles" and entry.is_dir(follow_symlinks=False):
            yield from _below(Path(entry.path), deep - 1)
