"""Making a fat wheel: a linked wheel with the ROCm libraries and data that it needs inside.

What is in the wheel already is copied compressed; only what is added or must change is packed. The fat wheel
needs no SDK package, says so in its METADATA, and has a version of its own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path

from packaging.utils import canonicalize_name

from cairn import files
from cairn.formats.zip.reader import Archive
from cairn.wheels.fat import bill_of_materials, library_edits, package_files, platform, report
from cairn.wheels.fat.plan import Plan, Request, make_plan
from cairn.wheels.fat.recipe import plain
from cairn.wheels.fat.report import Report
from cairn.wheels.fat.rocm_tree import stem_of
from cairn.wheels.metadata import wheel_info
from cairn.wheels.metadata.wheel_info import WheelInfo
from cairn.wheels.rewrite import wheel
from cairn.wheels.rewrite.wheel import Edit

__all__ = ["Report", "Request", "make"]


def make(request: Request) -> Report:
    """Write the fat wheel into `output_dir`.

    Raises:
        UsageError: no such ROCm tree.
        WheelError: the wheel cannot be made fat: a library, its data or the place that loads them is missing.
    """
    with Archive.open(request.wheel) as archive:
        plan = make_plan(request, archive)
        request.output_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fat.", dir=request.output_dir) as folder:
            change = _edit(plan, request, archive, Path(folder))
            made = wheel.apply_to(archive, plan.info, change, request.output_dir)
    return _report(plan, change, made)


def _edit(plan: Plan, request: Request, archive: Archive, folder: Path) -> Edit:
    """All changes of the wheel; `folder` gets the libraries that must not stay as the tree has them."""
    version = str(wheel_info.parsed_version(request.version or package_files.fat_version(plan.info.version)))
    libraries = dict(library_edits.added(plan.bundle, plan.recipe, plan.package, plan.targets, folder))
    digests = {path: files.sha256_of(source) for path, source in libraries.items()}
    texts = _texts(plan, archive, version, digests)
    dropped = _sdk_requirements(plan.info)
    return Edit(
        version=version,
        tags=platform.tags_of(plan.info, plan.platform, plan.own, plan.bundle, request.provided),
        remove_requirements=dropped,
        remove_extras=_emptied_extras(plan.info, dropped),
        add_files={
            **libraries,
            **{f"{plan.package}/{path}": file for data in plan.folders for path, file in data.files.items()},
            **{path: text for path, text in texts.items() if path not in archive},
        },
        replace_files={path: text for path, text in texts.items() if path in archive},
        digests=digests,
        binaries=dict(library_edits.own_edits(plan.own, plan.bundle, plan.package)),
    )


def _texts(plan: Plan, archive: Archive, version: str, digests: Mapping[str, str]) -> dict[str, bytes]:
    """The files written anew: what loads the libraries, what tells the version, what lists it all."""
    texts = package_files.version_file(archive, plan.package, plan.info.version, version)
    bill = bill_of_materials.fat_document(archive, plan.info, version, plan.rocm_version, digests)
    texts[f"{plan.info.dist_info}/{wheel_info.SBOM}"] = bill
    if plan.hooked:
        texts[f"{plan.package}/{package_files.MODULE}"] = package_files.module_text(_preloads(plan)).encode()
    return texts


def _sdk_requirements(info: WheelInfo) -> tuple[str, ...]:
    names = {canonicalize_name(wheel_info.requirement(text).name) for text in info.requires_dist}
    return tuple(sorted(name for name in names if name == "rocm" or name.startswith("rocm-sdk-")))


def _emptied_extras(info: WheelInfo, dropped: Collection[str]) -> tuple[str, ...]:
    """The extras that asked for nothing but SDK packages, such as `device-gfx942`."""
    requirements = [wheel_info.requirement(text) for text in info.requires_dist]
    found = []
    for extra in info.extras:
        mark = f'extra == "{canonicalize_name(extra)}"'
        names = [canonicalize_name(r.name) for r in requirements if mark in str(r.marker)]
        if names and all(name in dropped for name in names):
            found.append(extra)
    return tuple(found)


def _preloads(plan: Plan) -> list[str]:
    """What is loaded at import, in order of need: what the linked wheel loaded, and all opened by name."""
    opened = {entry.opened.lower() for entry in plan.recipe.opened}
    wanted = {plain(plan.recipe.shortnames.get(name, name)) for name in plan.preloads}
    wanted = wanted or {plain(entry.stem) for entry in plan.recipe.libraries}
    return [b.name for b in plan.bundle.libraries if plain(stem_of(b.name)[0]) in wanted | opened]


def _report(plan: Plan, change: Edit, made: Path) -> Report:
    parts = report.parts_of(plan.bundle, plan.folders)
    return Report(
        wheel=str(made),
        version=str(change.version),
        targets=tuple(map(str, plan.targets)),
        parts=parts,
        sizes=report.totals(parts),
        changed=tuple(change.binaries),
        dropped=change.remove_requirements,
        left_out=(*plan.left_out, *report.shortfalls(plan.bundle, plan.folders, plan.targets)),
        size=made.stat().st_size,
    )
