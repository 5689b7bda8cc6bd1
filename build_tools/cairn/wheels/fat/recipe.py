"""What a fat wheel takes from a ROCm tree: recipe.toml, read into values, and the targets that files are for.

Upstream keeps these lists in a script (recipe.toml names it: ROCM_SO_FILES, OS_SO_FILES, and
what is copied out of lib/ and share/), with a condition for each ROCm version that brought or lost one.

Names of files say which GPU targets they are for, matched by whole words. Source: LLVM's AMDGPU usage guide,
"Generic Processor Versions" and "Target ID"; MIOpen's names of databases.
"""

from __future__ import annotations

import functools
import importlib.resources
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Literal, TypeAlias

import msgspec
from packaging.version import Version

from cairn import datafile
from cairn.errors import UsageError
from cairn.targets import (
    CPU,
    TargetId,
    generic_targets,
    known_targets,
    parse_target_id,
    parse_targets,
    unbuilt_targets,
)

Naming: TypeAlias = Literal["whole", "prefix", "none"]
# In file names a dash stands for the colon of a target ID: Kernels_gfx90a-xnack+.hsaco. A whole name alone
# counts: upstream's substring match takes gfx90a for gfx90, and misses gfx11-generic for gfx1100.
_NAME = re.compile(
    r"(?<![0-9A-Za-z])(?P<processor>gfx(?:[0-9]+(?:-[0-9]+)?-generic|[0-9a-f]+(?:-strict)?))"
    r"(?P<features>(?:[:-](?:xnack|sramecc)[+-])*)(?![0-9A-Za-z])"
)
_FEATURE = re.compile(r"(?:xnack|sramecc)[+-]")
# MIOpen's databases: the target and, without a separator, the number of compute units: gfx90a68, gfx1030_36.
_DATABASE = re.compile(r"(?P<name>gfx[0-9a-f]+)(?![0-9A-Za-z])")


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
        library: the library that opens the other one.
        opened: the library that it opens; both names are without `lib`.
        required: whether the library fails without it.
    """

    library: str
    opened: str
    required: bool


class Data(datafile.Value):
    """Files that a library needs at run time.

    Attributes:
        library: whose they are, without `lib`.
        sources: where they may be: counted from the library's folder, then from the tree's root.
        target: where they go, counted from the package's folder; what a `*` of the source is, is put at the
            same place from its end.
        names: how their names say which GPU target they are for.
        required: whether the library does not work without.
    """

    library: str
    sources: tuple[str, ...] = msgspec.field(name="from")
    target: str = msgspec.field(name="to")
    names: Naming
    required: bool


class Recipe(datafile.Value):
    """The recipe for one platform.

    Attributes:
        libraries: what is taken whether it is needed or not.
        aliases: library to further names it is opened by.
        opened: who opens what by name.
        shortnames: the names of `_rocm_init.py` to stems without `lib`.
        data: the files that libraries need at run time.
    """

    libraries: tuple[ListedLibrary, ...]
    aliases: Mapping[str, tuple[str, ...]]
    opened: tuple[OpenedLibrary, ...] = msgspec.field(name="opens")
    shortnames: Mapping[str, str]
    data: tuple[Data, ...]

    def opened_by(self, stem: str) -> Iterator[OpenedLibrary]:
        """The libraries that the one of a stem (with or without `lib`) opens by name."""
        return (entry for entry in self.opened if entry.library.lower() == plain(stem))


def plain(stem: str) -> str:
    """A stem in lower case without `lib`, as names are compared."""
    return stem.lower().removeprefix("lib")


@functools.cache
def recipe(platform: Literal["linux", "windows"]) -> Recipe:
    """The recipe of a platform."""
    name = "recipe.toml"
    text = importlib.resources.files("cairn.wheels.fat").joinpath(name).read_bytes()
    plain = datafile.parse_toml(text, name=name)
    systems = {system: plain.pop(system) for system in ("linux", "windows")}
    return datafile.from_plain(plain | systems[platform], Recipe, name=name)


def targets_named(path: PurePosixPath, naming: Naming) -> tuple[TargetId, ...]:
    """The targets that a file's name, or else a folder's name, gives; none when it serves all targets.

    Args:
        path: counted from the folder of the data.
        naming: how its name says so.
    """
    if naming == "none":
        return ()
    for part in reversed(path.parts):
        if naming == "prefix":
            if match := _DATABASE.match(part):
                known = (*known_targets(), *unbuilt_targets())
                processors = [name for name in known if match["name"].startswith(name)]
                return (TargetId(processor=max(processors, key=len, default=match["name"])),)
        elif matches := list(_NAME.finditer(part)):
            return tuple(
                TargetId(processor=match["processor"], features=tuple(_FEATURE.findall(match["features"])))
                for match in matches
            )
    return ()


def serves(targets: Sequence[TargetId], chosen: Iterable[TargetId]) -> bool:
    """Whether a file for these targets is usable on at least one of the chosen targets."""
    return not targets or any(_runs(code, target) for code in targets for target in chosen)


def _runs(code: TargetId, chosen: TargetId) -> bool:
    """Whether code for one target may be run by GPUs of the other; a feature that is not named is any."""
    # gfx1100 runs the code of gfx11-generic, and gfx11-generic stands for every GPU that it covers.
    generic = generic_targets()
    processors = {chosen.processor, *generic.get(chosen.processor, ())}
    served = {code.processor, *generic.get(code.processor, ())}
    opposite = {feature[:-1] + ("-" if feature[-1] == "+" else "+") for feature in chosen.features}
    return bool(processors & served) and opposite.isdisjoint(code.features)


def parse_fat_targets(text: str) -> tuple[TargetId, ...]:
    """Targets as users name them, generic ones included.

    Raises:
        UsageError: an unknown name, or cpu.
    """
    words = [word for word in re.split(r"[,;\s]+", text) if word]
    generic = [word for word in words if word in generic_targets()]
    rest = [word for word in words if word not in generic_targets()]
    names = [*generic, *(parse_targets(rest) if rest or not generic else ())]
    if CPU in names:
        raise UsageError("a fat wheel is for GPUs, not for cpu", tip="name targets such as gfx942")
    return tuple(map(parse_target_id, names))
