"""Making a fat wheel: a linked wheel with the ROCm libraries and data that it needs inside.

What is in the wheel already is copied compressed; only what is added or must change is packed. The fat wheel
needs no SDK package, says so in its METADATA, and has a version of its own.
"""

from __future__ import annotations

import posixpath
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from cairn.errors import WheelError
from cairn.targets import TargetId, parse_target_id
from cairn.wheels import (
    edit,
    edit_elf,
    fat_bundle,
    fat_data,
    fat_loader,
    fat_platform,
    fat_report,
    inspect,
    metadata,
)
from cairn.wheels.archive import Archive
from cairn.wheels.edit import Edit
from cairn.wheels.edit_elf import BinaryEdit
from cairn.wheels.fat_binaries import Binary, Platform
from cairn.wheels.fat_bundle import Bundle, Sought
from cairn.wheels.fat_data import Folder
from cairn.wheels.fat_recipe import Recipe, plain, recipe
from cairn.wheels.fat_report import Report
from cairn.wheels.fat_tree import Tree, stem_of, system_folders
from cairn.wheels.metadata import WheelInfo

_MARK = "fat"
_SDK_FOLDER = "_rocm_sdk_"


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
    """

    wheel: Path
    rocm: Path
    output_dir: Path
    targets: tuple[TargetId, ...] | None = None
    version: str | None = None
    libraries: tuple[str, ...] = ()
    provided: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """All that was found out before anything is written."""

    info: WheelInfo
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
            change = _edit(plan, request, Path(folder))
            made = edit.apply_to(archive, plan.info, change, request.output_dir)
    return _report(plan, change, made)


def fat_version(version: str) -> str:
    """The version of the fat wheel of a linked one: `2.9.0+fat.rocm7.10.0` of `2.9.0+rocm7.10.0`.

    `fat` stands first, so that the ROCm versions behind it compare as before, and pip, where one index has
    both kinds, goes on to prefer the linked one.

    Raises:
        WheelError: it is the version of a fat wheel already.
    """
    parsed = metadata.parsed_version(version)
    local = parsed.local or ""
    if _MARK in local.split("."):
        raise WheelError(
            f"{version} is the version of a fat wheel already", tip="start from the linked wheel"
        )
    return f"{parsed.public}+{'.'.join(part for part in (_MARK, local) if part)}"


def _plan(request: Request, archive: Archive) -> _Plan:
    info = metadata.read_archive(archive, metadata.parse_file_name(request.wheel.name))
    fat_version(info.version)
    platform = fat_platform.platform_of(info)
    package = fat_loader.package_of(archive, info)
    hooked = fat_loader.is_hooked(archive, package, needed=platform.name == "windows")
    preloads = fat_loader.preloads(archive, package)
    own = platform.of_wheel(archive)
    targets = request.targets or _targets_of(request.wheel, own)
    rules = recipe(platform.name)
    tree = Tree(root=request.rocm, system=system_folders() if platform.name == "linux" else ())
    sought = Sought(own=own, preloads=preloads, extra=request.libraries, provided=request.provided)
    bundle = fat_bundle.collect(sought, tree, rules, platform)
    if not bundle.libraries:
        raise WheelError(f"{request.rocm} has no library for {info.file_name}", tip="name a ROCm tree")
    folders, missing = fat_data.collect(bundle, tree, rules, targets)
    return _Plan(
        info=info,
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


def _edit(plan: _Plan, request: Request, folder: Path) -> Edit:
    """All changes of the wheel; `folder` gets the libraries that must not stay as the tree has them."""
    module = f"{plan.package}/{fat_loader.MODULE}"
    text = {module: fat_loader.module_text(_preloads(plan)).encode()} if plan.hooked else {}
    is_there = any(row.path == module for row in plan.info.record)
    return Edit(
        version=request.version or fat_version(plan.info.version),
        tags=fat_platform.tags_of(plan.info, plan.platform, plan.own, plan.bundle, request.provided),
        remove_requirements=_sdk_requirements(plan.info),
        add_files=dict(_added(plan, folder)) | ({} if is_there else text),
        replace_files=text if is_there else {},
        binaries=dict(_own_edits(plan)),
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


def _own_edits(plan: _Plan) -> Iterator[tuple[str, BinaryEdit]]:
    """What must change in the wheel's own binaries, so that they find the libraries inside."""
    bundled = {binary.name for binary in plan.bundle.libraries}
    for binary in plan.own:
        if binary.library is None:
            continue
        parsed = binary.library.elf
        names = {name: plan.bundle.names.get(name, name) for name in parsed.needed}
        uses = not bundled.isdisjoint(names.values())
        paths = (*parsed.rpath, *parsed.runpath)
        if not uses and not any(_SDK_FOLDER in path for path in paths):
            continue
        place = _relative(binary.path, f"{plan.package}/lib")
        kept = [path for path in paths if _stays_inside(binary.path, path)]
        change = BinaryEdit(
            run_path=tuple(dict.fromkeys([*kept, place] if uses else kept)),
            replace_needed={old: new for old, new in names.items() if old != new},
        )
        if change.changes(parsed):
            yield binary.path, change


def _relative(member: str, folder: str) -> str:
    path = posixpath.relpath(folder, posixpath.dirname(member) or ".")
    return "$ORIGIN" if path == "." else f"$ORIGIN/{path}"


def _stays_inside(member: str, path: str) -> bool:
    """Whether a run path leads into the wheel itself."""
    head, _, rest = path.replace("${ORIGIN}", "$ORIGIN").partition("/")
    place = posixpath.normpath(posixpath.join(posixpath.dirname(member), rest))
    return head == "$ORIGIN" and not place.startswith(("..", _SDK_FOLDER))


def _added(plan: _Plan, folder: Path) -> Iterator[tuple[str, Path | bytes]]:
    """Path in the wheel to content: libraries, changed in copies of their own, and data."""
    for number, binary in enumerate(plan.bundle.libraries):
        source = _prepared(binary, plan.bundle.names, folder / str(number))
        for name in (binary.name, *plan.recipe.aliases.get(binary.name, ())):
            yield f"{plan.package}/lib/{name}", source
    for data in plan.folders:
        for path, source in data.files.items():
            yield f"{plan.package}/{path}", source


def _prepared(binary: Binary, names: Mapping[str, str], copy: Path) -> Path:
    source = Path(binary.path)
    if binary.library is None:
        return source
    renames = {name: names[name] for name in binary.needed if name in names}
    change = BinaryEdit(run_path=("$ORIGIN",), replace_needed=renames)
    if not change.changes(binary.library.elf):
        return source
    shutil.copy(source, copy)
    copy.chmod(copy.stat().st_mode | 0o200)
    try:
        edit_elf.change(copy, change)
    except WheelError as error:
        raise WheelError(f"{source} cannot be bundled: {error}", tip=error.tip) from error
    return copy


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
