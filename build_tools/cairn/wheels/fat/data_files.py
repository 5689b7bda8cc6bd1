"""The files that libraries look for at run time, for the wanted targets: kernels, tuning databases, lists."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

import msgspec

from cairn.errors import WheelError
from cairn.targets import TargetId
from cairn.wheels.fat.libraries import LeftOut, LibraryBundle
from cairn.wheels.fat.recipe import Data, Recipe, serves, targets_named
from cairn.wheels.fat.rocm_tree import RocmTree


class DataFolder(msgspec.Struct, frozen=True, kw_only=True):
    """The files of one library.

    Attributes:
        target: where they go, counted from the package's folder.
        files: path in the wheel, counted from the package's folder, to the file.
        sizes: target to bytes of the files that are for it; `any` for those that serve all.
        left_out: how many files were left out, since no wanted target uses them.
        left_out_size: their bytes.
        lacking: wanted targets that no file is for, though other files name targets.
    """

    target: str
    files: Mapping[str, Path]
    sizes: Mapping[str, int]
    left_out: int = 0
    left_out_size: int = 0
    lacking: tuple[str, ...] = ()


def collect(
    bundle: LibraryBundle, tree: RocmTree, recipe: Recipe, targets: Sequence[TargetId]
) -> tuple[tuple[DataFolder, ...], tuple[LeftOut, ...]]:
    """The data of every library that is bundled, and what of it the tree lacks.

    Raises:
        WheelError: a library's data is missing that it does not work without.
    """
    folders, missing = [], []
    for entry in recipe.data:
        library = bundle.find(entry.library)
        if library is None:
            continue
        # Beside the library first: in a tree of several SDK packages each has its own data.
        bases = (Path(library.binary.path).parent, tree.root)
        place = next(_places(entry, bases), None)
        if place is not None:
            folders.append(_folder(entry, *place, targets))
        elif entry.required:
            raise WheelError(
                f"{tree.root} has no {entry.sources[0]} for {library.name}",
                tip="name a whole ROCm, with the data of its libraries",
            )
        else:
            missing.append(LeftOut(name=entry.target, reason=f"the ROCm tree has none for {library.name}"))
    return tuple(folders), tuple(missing)


def _places(entry: Data, bases: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """The folders, or files, of an entry that are below these folders, and where they go."""
    for source, base in itertools.product(entry.sources, bases):
        before, any_, behind = source.partition("*")
        if not any_:
            if (base / source).exists():
                yield base / source, entry.target
            continue
        for place in sorted((base / before).glob(f"*{behind}")):
            parts = PurePosixPath(entry.target).parts
            at = len(parts) - behind.count("/")
            version = place.relative_to(base / before).parts[0]
            yield place, str(PurePosixPath(*parts[:at], version, *parts[at:]))


def _folder(entry: Data, source: Path, target: str, targets: Sequence[TargetId]) -> DataFolder:
    files: dict[str, Path] = {}
    sizes: dict[str, int] = {}
    served_targets: set[TargetId] = set()
    left_out: list[int] = []
    names_targets = False
    for path, relative in _files(source):
        named = targets_named(relative, entry.names)
        names_targets = names_targets or bool(named)
        size = path.stat().st_size
        if not serves(named, targets):
            left_out.append(size)
            continue
        files[str(PurePosixPath(target) / relative)] = path
        # A file may name several targets, and counts for each: the sizes say what a target needs.
        for name in map(str, named) if named else ("any",):
            sizes[name] = sizes.get(name, 0) + size
        served_targets |= {target for target in targets if named and serves(named, (target,))}
    lacking = tuple(str(target) for target in targets if target not in served_targets)
    return DataFolder(
        target=target,
        files=files,
        sizes=sizes,
        left_out=len(left_out),
        left_out_size=sum(left_out),
        lacking=lacking if names_targets else (),
    )


def _files(source: Path) -> Iterator[tuple[Path, PurePosixPath]]:
    """Every file and its path from `source`, which may be a single file.

    Links are followed: /opt/rocm is full of them, and a wheel cannot have any.
    """
    if source.is_file():
        yield source, PurePosixPath()
        return
    seen: set[Path] = set()
    for folder, folders, names in os.walk(source, followlinks=True):
        real = Path(folder).resolve()
        if real in seen:  # a link to a folder above
            folders.clear()
            continue
        seen.add(real)
        folders.sort()
        for name in sorted(names):
            path = Path(folder, name)
            if path.is_file():
                yield path, PurePosixPath(path.relative_to(source).as_posix())
