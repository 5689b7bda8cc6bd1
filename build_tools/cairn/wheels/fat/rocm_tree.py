"""Finding libraries in a ROCm tree, however it is laid out, and in the folders of the system."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from cairn.errors import UsageError
from cairn.wheels.fat.recipe import plain

_FIRST = ("lib", "lib64", "bin")  # on Windows DLLs are in bin
_SDK_PREFIX = "_rocm_sdk_"  # what the SDK's packages are called in site-packages: core, libraries, devel
_SYSTEM = ("/usr/lib64", "/lib64", "/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu", "/usr/lib", "/lib")
# No libraries are here, but half of all files.
_PASSED_OVER = frozenset(("__pycache__", "cmake", "doc", "docs", "include", "man", "share", "src"))
_VERSION_FILE = ".info/version"
_LONGEST_NAME = 255
_MAYBE = re.compile(r"\.so(?:\.[0-9.]+)?$|\.dll$", re.IGNORECASE)
_LIBRARY = re.compile(r"(?P<stem>.+?)\.so(?:\.(?P<version>[0-9.]+))?")
# hiprtc0702.dll, amdhip64_7.dll, hipblas.dll
_DLL = re.compile(r"(?P<stem>.+?)(?:[_-]?(?P<version>[0-9]+(?:[._][0-9]+)*))?\.dll", re.IGNORECASE)
_STEMS_WITH_DIGITS = re.compile(r"(?P<stem>.*64)(?:_(?P<version>[0-9]+))?\.dll", re.IGNORECASE)


class RocmTree:
    """A ROCm tree: a prefix such as `/opt/rocm` or `/usr`, or an installed package of the SDK."""

    def __init__(self, root: Path, *, system: tuple[Path, ...] = ()) -> None:
        """Find its folders.

        Args:
            root: its folder. For an SDK package its sibling packages are searched too.
            system: folders that are searched for what the tree lacks.

        Raises:
            UsageError: there is no such folder.
        """
        if not root.is_dir():
            raise UsageError(f"there is no folder {root}", tip="name the ROCm to take libraries from")
        self.root = root
        self._system = system
        real = root.resolve()
        siblings = sorted(real.parent.glob(f"{_SDK_PREFIX}*")) if real.name.startswith(_SDK_PREFIX) else []
        self._roots = (real, *(folder for folder in siblings if folder != real))

    @property
    def rocm_version(self) -> str | None:
        """The version that the tree says it is, or None."""
        for root in self._roots:
            path = root / _VERSION_FILE
            if path.is_file():
                return path.read_text(encoding="utf-8", errors="replace").strip()
        return None

    def find(self, name: str) -> Path | None:
        """A library by its exact name: in lib, lib64 and bin, then anywhere, then on the system."""
        key = _key(name.rpartition("/")[2])
        # Most libraries are in the first folders: the walk through the whole tree is only made for the rest.
        known_path = self._near.names.get(key) or self._all.names.get(key)
        if known_path is not None:
            return known_path
        return next((path for folder in self._system if (path := folder / key).is_file()), None)

    def find_stem(self, stem: str) -> Path | None:
        """The library of a stem, with or without `lib`, of its highest version."""
        key = plain(stem)
        paths = self._near.stems.get(key) or self._all.stems.get(key)
        # libamdhip64.so.7 rather than libamdhip64.so, which is there for linkers (ld(1), -l).
        return max(paths, key=lambda path: stem_of(path.name)[1]) if paths else None

    @functools.cached_property
    def _near(self) -> _Index:
        folders = [root / name for root in self._roots for name in _FIRST]
        return _indexed(path for f in folders if f.is_dir() for path in sorted(f.iterdir()))

    @functools.cached_property
    def _all(self) -> _Index:
        return _indexed(path for root in self._roots for path in _walk(root))


class _Index(NamedTuple):
    """Libraries by name and by stem."""

    names: dict[str, Path]
    stems: dict[str, list[Path]]


def system_folders() -> tuple[Path, ...]:
    """Where Linux systems keep libraries."""
    return tuple(folder for folder in map(Path, _SYSTEM) if folder.is_dir())


def stem_of(name: str) -> tuple[str, tuple[int, ...]]:
    """The stem of a library's name, and its version; the name itself and () for any other file."""
    if len(name) > _LONGEST_NAME:  # no file has it, and the pattern for DLLs is slow on long numbers
        return name, ()
    # A number is a version, except in names that end in 64: amdhip64.dll has none, amdhip64_7.dll has 7.
    match = _LIBRARY.fullmatch(name) or _STEMS_WITH_DIGITS.fullmatch(name) or _DLL.fullmatch(name)
    if match is None:
        return name, ()
    numbers = re.split(r"[._]", match["version"] or "")
    return match["stem"], tuple(int(number) for number in numbers if number)


def key_of(name: str) -> str:
    """The stem of a library's name as the recipe and others' names are compared with it."""
    return plain(stem_of(name)[0])


def _key(name: str) -> str:
    """A file name as names are compared: Windows ignores case."""
    return name.lower() if name.lower().endswith(".dll") else name


def _indexed(paths: Iterable[Path]) -> _Index:
    index = _Index({}, {})
    for path in paths:
        stem, key = stem_of(path.name)[0], _key(path.name)
        if stem != path.name and key not in index.names and path.is_file():
            index.names[key] = path
            index.stems.setdefault(plain(stem), []).append(path)
    return index


def _walk(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in _PASSED_OVER)
        yield from (Path(folder, name) for name in sorted(names) if _MAYBE.search(name))
