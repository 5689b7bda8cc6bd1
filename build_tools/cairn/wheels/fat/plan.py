"""What a fat wheel will be, found out before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cairn.errors import WheelError
from cairn.formats.zip.reader import Archive
from cairn.targets import TargetId, parse_target_id
from cairn.wheels.contents import binaries
from cairn.wheels.contents.binaries import Binary
from cairn.wheels.fat import data_files, library_edits, package_files
from cairn.wheels.fat.data_files import DataFolder
from cairn.wheels.fat.libraries import Collector, LeftOut, LibraryBundle
from cairn.wheels.fat.platform import WheelPlatform, platform_of
from cairn.wheels.fat.recipe import Recipe, recipe
from cairn.wheels.fat.rocm_tree import RocmTree, stem_of, system_folders
from cairn.wheels.metadata import wheel_info
from cairn.wheels.metadata.wheel_info import WheelInfo


@dataclass(frozen=True, kw_only=True)
class FatRequest:
    """A fat wheel to be made.

    Attributes:
        wheel: the linked wheel.
        rocm: the ROCm tree to take from.
        output_dir: where the fat wheel goes.
        targets: the targets it is to serve; None for those that the wheel has code for.
        version: its version; by default the old one with `fat` before the rest of its local part.
        libraries: names or stems of further libraries to take.
        provided: globs of libraries that other wheels supply.
        strict: whether a listed library that the tree lacks is an error, though nothing needs it.
    """

    wheel: Path
    rocm: Path
    output_dir: Path
    targets: tuple[TargetId, ...] | None = None
    version: str | None = None
    libraries: tuple[str, ...] = ()
    provided: tuple[str, ...] = ()
    strict: bool = False


@dataclass(frozen=True, kw_only=True)
class FatPlan:
    """All that is found out before anything is written.

    Attributes:
        info: what the wheel says about itself.
        rocm_version: of the ROCm tree, where it says.
        package: the package that gets the libraries.
        hooked: whether it calls `_rocm_init` when it is imported.
        platform: what the wheel is for.
        recipe: the lists of what is taken.
        own: the binaries of the wheel.
        preloads: the shortnames of what the linked wheel loads.
        targets: the targets to serve.
        bundle: the libraries that come in.
        folders: the data that comes in.
        left_out: what does not.
    """

    info: WheelInfo
    rocm_version: str | None
    package: str
    hooked: bool
    platform: WheelPlatform
    recipe: Recipe
    own: tuple[Binary, ...]
    preloads: tuple[str, ...]
    targets: tuple[TargetId, ...]
    bundle: LibraryBundle
    folders: tuple[DataFolder, ...]
    left_out: tuple[LeftOut, ...]


def make_plan(request: FatRequest, archive: Archive) -> FatPlan:
    """Read the wheel and the ROCm tree.

    Raises:
        UsageError: no such ROCm tree.
        WheelError: the wheel cannot be made fat.
    """
    info = wheel_info.read_archive(archive)
    package_files.fat_version(info.version)  # refuses a wheel that is fat already
    platform = platform_of(info)
    package = package_files.package_of(archive, info)
    # DLLs have no run path: only the hook can add their folder to where Windows looks.
    hooked = package_files.is_hooked(archive, package, needed=platform.system == "windows")
    own, preloads = platform.read_wheel(archive), package_files.preloads(archive, package)
    targets = request.targets or _targets_of(request.wheel)
    rules = recipe(platform.system)
    tree = RocmTree(root=request.rocm, system=system_folders() if platform.system == "linux" else ())
    collector = Collector(own, tree, rules, platform, provided=request.provided)
    bundle = _collected(collector, request, preloads, tree, rules)
    if not bundle.libraries:
        raise WheelError(f"{request.rocm} has no library for {request.wheel.name}", tip="name a ROCm tree")
    # Only marked here: the libraries are changed when they are written.
    trimmed = tuple(library_edits.trimmed(library, targets) for library in bundle.libraries)
    bundle = replace(bundle, libraries=trimmed)
    folders, missing = data_files.collect(bundle, tree, rules, targets)
    return FatPlan(
        info=info,
        rocm_version=tree.rocm_version,
        package=package,
        hooked=hooked,
        platform=platform,
        recipe=rules,
        own=own,
        preloads=preloads,
        targets=targets,
        bundle=bundle,
        folders=folders,
        left_out=(*bundle.left_out, *missing),
    )


def _collected(
    collector: Collector, request: FatRequest, preloads: Sequence[str], tree: RocmTree, rules: Recipe
) -> LibraryBundle:
    """The libraries that the wheel gets: what must be there comes first, then what the tree has besides.

    Raises:
        WheelError: libraries are missing (all are named), or one cannot be read.
    """
    collector.follow_own()
    for shortname in preloads:
        stem = rules.shortnames.get(shortname, shortname)
        collector.open(stem, f"the wheel's _rocm_init.py (as {shortname})", required=True)
    for name in request.libraries:
        collector.open(stem_of(name)[0], "the command line", required=True)
    for listed in rules.libraries:
        known = listed.belongs_to(tree.rocm_version)
        if not collector.open(listed.stem, "--strict", required=known and request.strict):
            reason = "the ROCm tree has none, and nothing in the wheel needs it"
            collector.leave_out(listed.stem, reason if known else f"not part of ROCm {tree.rocm_version}")
    return collector.finish()


def _targets_of(wheel: Path) -> tuple[TargetId, ...]:
    names = binaries.targets_of(wheel)
    if not names:
        raise WheelError(
            f"{wheel.name} has no device code to take the targets from",
            tip="name them: --targets gfx942,gfx1100",
        )
    return tuple(map(parse_target_id, names))
