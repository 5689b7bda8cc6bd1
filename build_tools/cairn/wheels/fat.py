"""Making a fat wheel: a linked wheel with the ROCm libraries and data that it needs inside.

What is in the wheel already is copied compressed; only what is added or must change is packed. The fat wheel
needs no SDK package, says so in its METADATA, and has a version of its own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.utils import canonicalize_name

from cairn import files
from cairn.errors import WheelError
from cairn.targets import TargetId, parse_target_id
from cairn.wheels import (
    edit,
    fat_bundle,
    fat_data,
    fat_edits,
    fat_loader,
    fat_platform,
    fat_report,
    fat_sbom,
    fat_trim,
    fat_version,
    inspect,
    metadata,
)
from cairn.wheels.archive import Archive
from cairn.wheels.edit import Edit
from cairn.wheels.fat_binaries import Binary, Platform
from cairn.wheels.fat_bundle import Bundle, Sought
from cairn.wheels.fat_data import Folder
from cairn.wheels.fat_recipe import Recipe, plain, recipe
from cairn.wheels.fat_report import Report
from cairn.wheels.fat_tree import Tree, stem_of, system_folders
from cairn.wheels.metadata import WheelInfo


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
class _Plan:
    """All that was found out before anything is written."""

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
    left_out: tuple[fat_bundle.LeftOut, ...]


def make(request: Request) -> Report:
    """Write the fat wheel into `output_dir`.

    Raises:
        UsageError: no such ROCm tree.
        WheelError: the wheel cannot be made fat: a library, its data or the place that loads them is missing.
    """
    with Archive.open(request.wheel) as archive:
        plan = _plan(request, archive)
        request.output_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fat.", dir=request.output_dir) as folder:
            change = _edit(plan, request, archive, Path(folder))
            made = edit.apply_to(archive, plan.info, change, request.output_dir)
    return _report(plan, change, made)


def _plan(request: Request, archive: Archive) -> _Plan:
    info = metadata.read_archive(archive, metadata.parse_file_name(request.wheel.name))
    fat_version.fat_version(info.version)  # refuses a wheel that is fat already
    platform = fat_platform.platform_of(info)
    package = fat_loader.package_of(archive, info)
    hooked = fat_loader.is_hooked(archive, package, needed=platform.name == "windows")
    preloads = fat_loader.preloads(archive, package)
    own = platform.of_wheel(archive)
    targets = request.targets or _targets_of(request.wheel, own)
    rules = recipe(platform.name)
    tree = Tree(root=request.rocm, system=system_folders() if platform.name == "linux" else ())
    sought = Sought(
        own=own,
        preloads=preloads,
        extra=request.libraries,
        provided=request.provided,
        strict=request.strict,
    )
    bundle = fat_bundle.collect(sought, tree, rules, platform)
    if not bundle.libraries:
        raise WheelError(f"{request.rocm} has no library for {info.file_name}", tip="name a ROCm tree")
    bundle = replace(bundle, libraries=tuple(fat_trim.trimmed(b, targets) for b in bundle.libraries))
    folders, missing = fat_data.collect(bundle, tree, rules, targets)
    return _Plan(
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


def _edit(plan: _Plan, request: Request, archive: Archive, folder: Path) -> Edit:
    """All changes of the wheel; `folder` gets the libraries that must not stay as the tree has them."""
    version = str(metadata.parsed_version(request.version or fat_version.fat_version(plan.info.version)))
    libraries = dict(fat_edits.added(plan.bundle, plan.recipe, plan.package, plan.targets, folder))
    digests = {path: files.sha256_of(source) for path, source in libraries.items()}
    new: dict[str, Path | bytes] = dict(libraries)
    for data in plan.folders:
        new |= {f"{plan.package}/{path}": source for path, source in data.files.items()}
    replaced: dict[str, Path | bytes] = {}
    replaced |= fat_version.version_file(archive, plan.package, plan.info.version, version)
    sbom = f"{plan.info.dist_info}/{metadata.SBOM}"
    text = fat_sbom.document(archive, plan.info, version, plan.rocm_version, digests)
    (replaced if sbom in archive else new)[sbom] = text
    if plan.hooked:
        module = f"{plan.package}/{fat_loader.MODULE}"
        text = fat_loader.module_text(_preloads(plan)).encode()
        (replaced if module in archive else new)[module] = text
    return Edit(
        version=version,
        tags=fat_platform.tags_of(plan.info, plan.platform, plan.own, plan.bundle, request.provided),
        remove_requirements=_sdk_requirements(plan.info),
        add_files=new,
        replace_files=replaced,
        digests=digests,
        binaries=dict(fat_edits.own_edits(plan.own, plan.bundle, plan.package)),
    )


def _targets_of(wheel: Path, own: Sequence[Binary]) -> tuple[TargetId, ...]:
    names = {name for binary in own for name in binary.sizes} or set(inspect.targets_of(wheel))
    if not names:
        raise WheelError(
            f"{wheel.name} has no device code that would tell its targets",
            tip="name them: --targets gfx942,gfx1100",
        )
    return tuple(parse_target_id(name) for name in sorted(names))


def _sdk_requirements(info: WheelInfo) -> tuple[str, ...]:
    names = {canonicalize_name(metadata.requirement(text).name) for text in info.requires_dist}
    return tuple(sorted(name for name in names if name == "rocm" or name.startswith("rocm-sdk-")))


def _preloads(plan: _Plan) -> list[str]:
    """What is loaded at import, in order of need: what the linked wheel loaded, and all opened by name."""
    opened = {entry.opened.lower() for entry in plan.recipe.opened}
    wanted = {plain(plan.recipe.shortnames.get(name, name)) for name in plan.preloads}
    wanted = wanted or {plain(entry.stem) for entry in plan.recipe.libraries}
    return [b.name for b in plan.bundle.libraries if plain(stem_of(b.name)[0]) in wanted | opened]


def _report(plan: _Plan, change: Edit, made: Path) -> Report:
    parts = fat_report.parts_of(plan.bundle, plan.folders)
    return Report(
        wheel=str(made),
        version=str(change.version),
        targets=tuple(map(str, plan.targets)),
        parts=parts,
        sizes=fat_report.totals(parts),
        changed=tuple(change.binaries),
        dropped=change.remove_requirements,
        left_out=(*plan.left_out, *fat_report.shortfalls(plan.bundle, plan.folders, plan.targets)),
        size=made.stat().st_size,
    )
