"""Making a fat wheel: a linked wheel with the ROCm libraries and data that it needs inside.

All that goes in is found before anything is written. What is in the wheel already is copied compressed; only
what is added or must change is packed. The fat wheel needs no SDK package, says so in its METADATA, and has a
version of its own. The report says what it got, by library and target, and what it did not get.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.utils import canonicalize_name

from cairn import files
from cairn.errors import WheelError
from cairn.formats import cyclonedx
from cairn.formats.zip.reader import Archive
from cairn.targets import TargetId, parse_target_id
from cairn.wheels.contents import binaries
from cairn.wheels.contents.binaries import Binary
from cairn.wheels.fat import data_files, package_files, platform
from cairn.wheels.fat.data_files import DataFolder
from cairn.wheels.fat.libraries import (
    Collector,
    LeftOut,
    LibraryBundle,
    library_files,
    mark_trimmed,
    own_edits,
    sizes,
)
from cairn.wheels.fat.platform import WheelPlatform, platform_of
from cairn.wheels.fat.recipe import Recipe, plain, recipe, serves
from cairn.wheels.fat.rocm_tree import RocmTree, key_of, stem_of, system_folders
from cairn.wheels.metadata import wheel_info
from cairn.wheels.metadata.wheel_info import WheelInfo
from cairn.wheels.rewrite import repin, wheel
from cairn.wheels.rewrite.wheel import Edit

__all__ = ["FatReport", "FatRequest", "make"]


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
    trimmed = tuple(mark_trimmed(library, targets) for library in bundle.libraries)
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


def make(request: FatRequest) -> FatReport:
    """Write the fat wheel into `output_dir`.

    Raises:
        UsageError: no such ROCm tree.
        WheelError: a library, its data or the hook that loads them is missing.
    """
    with Archive.open(request.wheel) as archive:
        plan = make_plan(request, archive)
        request.output_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fat.", dir=request.output_dir) as folder:
            change = _edit(plan, request, archive, Path(folder))
            path = wheel.apply_to(archive, plan.info, change, request.output_dir)
    return report(plan, change, path)


def _edit(plan: FatPlan, request: FatRequest, archive: Archive, folder: Path) -> Edit:
    """All changes of the wheel; `folder` gets copies of the libraries that must change."""
    version = str(wheel_info.parsed_version(request.version or package_files.fat_version(plan.info.version)))
    libraries = dict(library_files(plan.bundle, plan.recipe, plan.package, plan.targets, folder))
    digests = {path: files.sha256_of(source) for path, source in libraries.items()}
    # The generated files: the package's version, the bill of materials, what loads the libraries.
    texts = package_files.version_file(archive, plan.package, plan.info.version, version)
    texts[f"{plan.info.dist_info}/{cyclonedx.NAME}"] = _bill_of_materials(plan, archive, version, digests)
    if plan.hooked:
        texts[f"{plan.package}/{package_files.MODULE}"] = package_files.module_text(_preloads(plan)).encode()
    # pip must not install an SDK that the wheel no longer uses.
    dropped, extras = _sdk_requirements(plan.info)
    return Edit(
        version=version,
        tags=platform.tags_of(
            plan.info,
            plan.platform,
            plan.own,
            [library.binary for library in plan.bundle.libraries],
            names=plan.bundle.names.keys(),
            provided=request.provided,
        ),
        remove_requirements=dropped,
        remove_extras=extras,
        add_files={
            **libraries,
            **{f"{plan.package}/{path}": file for data in plan.folders for path, file in data.files.items()},
            **{path: text for path, text in texts.items() if path not in archive},
        },
        replace_files={path: text for path, text in texts.items() if path in archive},
        digests=digests,
        binaries=dict(own_edits(plan.own, plan.bundle, plan.package)),
    )


def _bill_of_materials(plan: FatPlan, archive: Archive, version: str, digests: Mapping[str, str]) -> bytes:
    """That of the linked wheel, and the bundled libraries, of each its sha256 in hex (PEP 770)."""
    bundled = [cyclonedx.bundled_file(path, digest) for path, digest in sorted(digests.items())]
    linked = archive.read_any(f"{plan.info.dist_info}/{cyclonedx.NAME}")
    if linked is not None:
        return cyclonedx.with_version(linked, version, bundled)
    rocm = plan.rocm_version
    try:
        wheel_info.parsed_version(rocm or "")
    except WheelError:  # the tree says nothing, or nothing that is a version
        rocm = None
    name = plan.info.distribution
    return cyclonedx.document(name, version, sources=(), rocm_version=rocm, bundled=bundled)


def _sdk_requirements(info: WheelInfo) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The requirements of SDK packages, and the extras that ask for nothing else, such as `device-gfx942`."""
    requirements = [wheel_info.requirement(text) for text in info.requires_dist]
    names = {canonicalize_name(required.name) for required in requirements}
    dropped = set(filter(repin.is_sdk, names))
    extras = []
    for extra in info.extras:
        mark = f'extra == "{canonicalize_name(extra)}"'
        projects = [
            canonicalize_name(required.name) for required in requirements if mark in str(required.marker)
        ]
        if projects and dropped.issuperset(projects):
            extras.append(extra)
    return tuple(sorted(dropped)), tuple(extras)


def _preloads(plan: FatPlan) -> list[str]:
    """What is loaded at import, in order of need: what the linked wheel loaded, and all opened by name."""
    # What is opened by name is found by the loader where it is loaded already, wherever it lies.
    opened = {entry.opened.lower() for entry in plan.recipe.opened}
    stems = {plain(plan.recipe.shortnames.get(name, name)) for name in plan.preloads}
    stems = stems or {plain(entry.stem) for entry in plan.recipe.libraries}
    return [b.name for b in plan.bundle.libraries if key_of(b.name) in stems | opened]


@dataclass(frozen=True, kw_only=True)
class CarriedPart:
    """A library, or the data of one.

    Attributes:
        name: its path in the package's folder.
        size: bytes.
        sizes: target to bytes that serve it; data that serves all targets counts as `any`.
        files: how many files.
    """

    name: str
    size: int
    sizes: Mapping[str, int]
    files: int = 1


@dataclass(frozen=True, kw_only=True)
class FatReport:
    """What was made.

    Attributes:
        wheel: the new wheel.
        version: its version.
        targets: the targets that it serves.
        parts: what it carries.
        sizes: target to bytes that serve it, of all parts.
        changed: binaries of the wheel whose run paths or needs changed.
        dropped: requirements that it has no longer.
        left_out: what it does not carry, and why.
        size: bytes of the wheel.
    """

    wheel: str
    version: str
    targets: tuple[str, ...]
    parts: tuple[CarriedPart, ...]
    sizes: Mapping[str, int]
    changed: tuple[str, ...]
    dropped: tuple[str, ...]
    left_out: tuple[LeftOut, ...]
    size: int


def report(plan: FatPlan, change: Edit, path: Path) -> FatReport:
    """What was made by a plan and its change of the wheel."""
    parts = tuple(_parts(plan.bundle, plan.folders))
    totals: dict[str, int] = {}
    for part in parts:
        for target, size in part.sizes.items():
            totals[target] = totals.get(target, 0) + size
    return FatReport(
        wheel=str(path),
        version=str(change.version),
        targets=tuple(map(str, plan.targets)),
        parts=parts,
        sizes=dict(sorted(totals.items())),
        changed=tuple(change.binaries),
        dropped=change.remove_requirements,
        left_out=(*plan.left_out, *_shortfalls(plan.bundle, plan.folders, plan.targets)),
        size=path.stat().st_size,
    )


def _parts(bundle: LibraryBundle, folders: Sequence[DataFolder]) -> Iterator[CarriedPart]:
    """Every library and every folder of data."""
    for library in bundle.libraries:
        yield CarriedPart(name=f"lib/{library.name}", size=library.binary.size, sizes=library.sizes)
    for folder in folders:
        size = sum(path.stat().st_size for path in folder.files.values())
        yield CarriedPart(name=folder.target, size=size, sizes=folder.sizes, files=len(folder.files))


def _shortfalls(
    bundle: LibraryBundle, folders: Sequence[DataFolder], targets: Sequence[TargetId]
) -> Iterator[LeftOut]:
    """Which parts have nothing for some of the wanted targets, and what was left out of them."""
    for library in bundle.libraries:
        # All of its code counts, since what is trimmed is for none of the wanted targets.
        code_targets = [code.target for code in library.binary.code_objects]
        lacking = [str(t) for t in targets if code_targets and not serves(code_targets, (t,))]
        if lacking:
            yield LeftOut(name=f"lib/{library.name}", reason=f"it has no code for {', '.join(lacking)}")
        if library.trimmed:
            removed = sizes(library.trimmed)
            reason = (
                f"its code for {', '.join(sorted(removed))} ({sum(removed.values())} bytes) was taken out"
            )
            yield LeftOut(name=f"lib/{library.name}", reason=reason)
    for folder in folders:
        if folder.left_out:
            reason = f"{folder.left_out} files of {folder.left_out_size} bytes are for other targets"
            yield LeftOut(name=folder.target, reason=reason)
        if folder.lacking:
            yield LeftOut(name=folder.target, reason=f"it has no file for {', '.join(folder.lacking)}")
