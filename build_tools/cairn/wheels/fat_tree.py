"""Finding libraries in a ROCm tree, however it is laid out, and in the folders of the system."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cairn.errors import UsageError
from cairn.wheels.fat_recipe import plain

_FIRST = ("lib", "lib64", "bin")
_SDK_PREFIX = "_rocm_sdk_"
_SYSTEM = ("/usr/lib64", "/lib64", "/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu", "/usr/lib", "/lib")
_VERSION_FILE = ".info/version"
_LIBRARY = re.compile(r"(?P<stem>.+?)\.so(?:\.(?P<version>[0-9.]+))?")
# hiprtc0702.dll, amdhip64_7.dll, hipblas.dll
_DLL = re.compile(r"(?P<stem>.+?)(?:[_-]?(?P<version>[0-9]+(?:[._][0-9]+)*))?\.dll", re.IGNORECASE)
_STEMS_WITH_DIGITS = re.compile(r"(?P<stem>.*64)(?:_(?P<version>[0-9]+))?\.dll", re.IGNORECASE)


@dataclass(kw_only=True, eq=False)
class Tree:
    """A ROCm tree: a prefix such as `/opt/rocm` or `/usr`, or an installed package of the SDK.

    Attributes:
        root: its folder. Beside an SDK package the other ones are searched too.
        system: folders that are searched for what the tree has not.
    """

    root: Path
    system: tuple[Path, ...] = ()
    _near: dict[str, Path] | None = None
    _all: dict[str, Path] | None = None
    _roots: tuple[Path, ...] = field(init=False)

    def __post_init__(self) -> None:
        if not self.root.is_dir():
            raise UsageError(f"there is no folder {self.root}", tip="name the ROCm to take libraries from")
        root = self.root.resolve()
        siblings = sorted(root.parent.glob(f"{_SDK_PREFIX}*")) if root.name.startswith(_SDK_PREFIX) else []
        self._roots = (root, *(folder for folder in siblings if folder != root))

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
        found = self._index_near().get(key) or self._index_all().get(key)
        if found is not None:
            return found
        return next((path for folder in self.system if (path := folder / name).is_file()), None)

    def find_stem(self, stem: str) -> Path | None:
        """The library of a stem, with or without `lib`, of its highest version."""
        for index in (self._index_near, self._index_all):
            paths = [path for path in index().values() if plain(stem_of(path.name)[0]) == plain(stem)]
            if paths:
                # The name with a version is the one that programs ask for.
                return max(paths, key=lambda path: stem_of(path.name)[1])
        return None

    def _index_near(self) -> dict[str, Path]:
        if self._near is None:
            folders = [root / name for root in self._roots for name in _FIRST]
            self._near = _indexed(path for f in folders if f.is_dir() for path in sorted(f.iterdir()))
        return self._near

    def _index_all(self) -> dict[str, Path]:
        if self._all is None:
            self._all = _indexed(path for root in self._roots for path in _walk(root))
        return self._all


def system_folders() -> tuple[Path, ...]:
    """Where Linux systems keep libraries."""
    return tuple(folder for folder in map(Path, _SYSTEM) if folder.is_dir())


def stem_of(name: str) -> tuple[str, tuple[int, ...]]:
    """The stem of a library's name, and its version; the name itself and () for what is no library."""
    match = _LIBRARY.fullmatch(name) or _STEMS_WITH_DIGITS.fullmatch(name) or _DLL.fullmatch(name)
    if match is None:
        return name, ()
    numbers = re.split(r"[._]", match["version"] or "")
    return match["stem"], tuple(int(number) for number in numbers if number)


def _key(name: str) -> str:
    """How names are compared: Windows takes no notice of case."""
    return name.lower() if name.lower().endswith(".dll") else name


def _indexed(paths: Iterator[Path]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for path in paths:
        key = _key(path.name)
        if key not in found and stem_of(path.name)[0] != path.name and path.is_file():
            found[key] = path
    return found


def _walk(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders.sort()
        yield from (
            Path(folder, name) for name in sorted(names) if ".so" in name or name.lower().endswith(".dll")
        )
