"""What a fat wheel takes from a ROCm tree: recipe.toml, read into values.

Upstream keeps these lists in a script (pytorch, .ci/manywheel/build_rocm.sh: ROCM_SO_FILES, OS_SO_FILES, and
what is copied out of lib/ and share/), with a condition for each ROCm version that brought or lost one.
"""

from __future__ import annotations

import functools
import importlib.resources
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import msgspec
from packaging.version import Version

from cairn import datafile

Naming: TypeAlias = Literal["whole", "prefix", "none"]


class ListedLibrary(datafile.Value):
    """A library that is taken where the tree has it.

    Attributes:
        stem: its name up to the version.
        since: the first ROCm version that has it; empty for the first of all.
        until: the last one; empty for the latest.
    """

    stem: str
    since: str = ""
    until: str = ""

    def belongs_to(self, rocm_version: str | None) -> bool:
        """Whether that ROCm version should have it; yes when the version is not known."""
        try:
            release = Version(rocm_version or "").release
        except ValueError:
            return True
        # `until = "7.2"` includes 7.2.4, and `since = "7.14"` a nightly 7.14.0a20261101.
        late_enough = not self.since or release >= Version(self.since).release
        return late_enough and (not self.until or release[:2] <= Version(self.until).release)


class OpenedLibrary(datafile.Value):
    """A library that a different one opens by name.

    Attributes:
        library: who opens it.
        opened: what it opens; both without `lib`.
        required: whether it does not work without.
    """

    library: str
    opened: str
    required: bool


class Data(datafile.Value):
    """Files that a library needs at run time.

    Attributes:
        library: whose they are, without `lib`.
        sources: where they may be: counted from the library's folder, then from the tree's root.
        target: where they go, counted from the package's folder.
        names: how their names say which GPU target they are for.
        required: whether the library does not work without.
    """

    library: str
    sources: tuple[str, ...] = msgspec.field(name="from")
    target: str = msgspec.field(name="to")
    names: Naming
    required: bool


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All of it, for one platform.

    Attributes:
        libraries: what is taken whether it is needed or not.
        aliases: library to further names it is opened by.
        opened: who opens what by name.
        shortnames: the names of `_rocm_init.py` to stems without `lib`.
        data: the files that libraries need at run time.
    """

    libraries: tuple[ListedLibrary, ...]
    aliases: Mapping[str, tuple[str, ...]]
    opened: tuple[OpenedLibrary, ...]
    shortnames: Mapping[str, str]
    data: tuple[Data, ...]

    def opened_by(self, stem: str) -> Iterator[OpenedLibrary]:
        """What the library of that stem (with or without `lib`) opens by name."""
        return (entry for entry in self.opened if entry.library.lower() == plain(stem))


def plain(stem: str) -> str:
    """A stem in lower case without `lib`, as names are compared."""
    return stem.lower().removeprefix("lib")


class _Platform(datafile.Value):
    libraries: tuple[ListedLibrary, ...]
    aliases: Mapping[str, tuple[str, ...]]


class _File(datafile.Value):
    linux: _Platform
    windows: _Platform
    opens: tuple[OpenedLibrary, ...]
    shortnames: Mapping[str, str]
    data: tuple[Data, ...]


@functools.cache
def recipe(platform: Literal["linux", "windows"]) -> Recipe:
    """The recipe of a platform."""
    name = "recipe.toml"
    text = importlib.resources.files("cairn.wheels.fat").joinpath(name).read_bytes()
    recipe = datafile.from_plain(datafile.parse_toml(text, name=name), _File, name=name)
    own = recipe.linux if platform == "linux" else recipe.windows
    return Recipe(
        libraries=own.libraries,
        aliases=own.aliases,
        opened=recipe.opens,
        shortnames=recipe.shortnames,
        data=recipe.data,
    )
