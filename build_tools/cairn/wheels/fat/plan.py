"""What a fat wheel will be, found out before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cairn.errors import WheelError
from cairn.formats.zip.reader import Archive
from cairn.targets import TargetId, in_order, parse_target_id
from cairn.wheels.contents import binaries
from cairn.wheels.fat import data_files, package_files, trim
from cairn.wheels.fat import libraries as fat_libraries
from cairn.wheels.fat import platform as fat_platform
from cairn.wheels.fat.binaries import Binary, Platform
from cairn.wheels.fat.data_files import Folder
from cairn.wheels.fat.libraries import Bundle, Place, Sought
from cairn.wheels.fat.recipe import Recipe, recipe
from cairn.wheels.fat.rocm_tree import Tree, system_folders
from cairn.wheels.metadata import wheel_info
from cairn.wheels.metadata.wheel_info import WheelInfo


@dataclass(frozen=True, kw_only=True)
class Request:
    """A fat wheel to be made.

    Attributes:
        wheel: the linked wheel.
        rocm: the ROCm tree to take from.
        output_dir: where the fat wheel goes.
        targets: the targets it shall serve; those that the wheel has code for when None.
        version: its version; by default the old one with `fat` before the rest of its local part.
        libraries: names or stems of libraries to take besides.
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
class Plan:
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
    platform: Platform
    recipe: Recipe
    own: tuple[Binary, ...]
    preloads: tuple[str, ...]
    targets: tuple[TargetId, ...]
    bundle: Bundle
    folders: tuple[Folder, ...]
    left_out: tuple[fat_libraries.LeftOut, ...]


def make_plan(request: Request, archive: Archive) -> Plan:
    """Read the wheel and the ROCm tree.

    Raises:
        UsageError: no such ROCm tree.
        WheelError: the wheel cannot be made fat.
    """
    info = wheel_info.read_archive(archive, wheel_info.parse_file_name(request.wheel.name))
    package_files.fat_version(info.version)  # refuses a wheel that is fat already
    platform = fat_platform.platform_of(info)
    package = package_files.package_of(archive, info)
    hooked = package_files.is_hooked(archive, package, needed=platform.name == "windows")
    own, preloads = platform.of_wheel(archive), package_files.preloads(archive, package)
    targets = request.targets or _targets_of(request.wheel, own)
    rules = recipe(platform.name)
    tree = Tree(root=request.rocm, system=system_folders() if platform.name == "linux" else ())
    bundle = _bundle(request, own, preloads, Place(tree=tree, recipe=rules, platform=platform))
    bundle = replace(bundle, libraries=tuple(trim.trimmed(b, targets) for b in bundle.libraries))
    folders, missing = data_files.collect(bundle, tree, rules, targets)
    return Plan(
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


def _bundle(request: Request, own: tuple[Binary, ...], preloads: tuple[str, ...], place: Place) -> Bundle:
    sought = Sought(
        own=own,
        preloads=preloads,
        extra=request.libraries,
        provided=request.provided,
        strict=request.strict,
    )
    found = fat_libraries.collect(sought, place)
    if not found.libraries:
        raise WheelError(f"{request.rocm} has no library for {request.wheel.name}", tip="name a ROCm tree")
    return found


def _targets_of(wheel: Path, own: Sequence[Binary]) -> tuple[TargetId, ...]:
    names = {name for binary in own for name in binary.sizes} or set(binaries.targets_of(wheel))
    if not names:
        raise WheelError(
            f"{wheel.name} has no device code that would tell its targets",
            tip="name them: --targets gfx942,gfx1100",
        )
    return tuple(parse_target_id(name) for name in in_order(names))
