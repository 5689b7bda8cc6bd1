"""Making a fat wheel: a linked wheel with the ROCm libraries and data that it needs inside.

What is in the wheel already is copied compressed; only what is added or must change is packed. The fat wheel
needs no SDK package, says so in its METADATA, and has a version of its own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from packaging.utils import canonicalize_name

from cairn import files
from cairn.errors import WheelError
from cairn.formats.zip.reader import Archive
from cairn.wheels.fat import library_edits, package_files, platform
from cairn.wheels.fat.plan import FatPlan, FatRequest, make_plan
from cairn.wheels.fat.recipe import plain
from cairn.wheels.fat.report import FatReport, report
from cairn.wheels.fat.rocm_tree import key_of
from cairn.wheels.metadata import cyclonedx, wheel_info
from cairn.wheels.metadata.wheel_info import WheelInfo
from cairn.wheels.rewrite import repin, wheel
from cairn.wheels.rewrite.wheel import Edit

__all__ = ["FatReport", "FatRequest", "make"]


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
    libraries = dict(library_edits.added(plan.bundle, plan.recipe, plan.package, plan.targets, folder))
    digests = {path: files.sha256_of(source) for path, source in libraries.items()}
    # The generated files: the package's version, the bill of materials, what loads the libraries.
    texts = package_files.version_file(archive, plan.package, plan.info.version, version)
    texts[f"{plan.info.dist_info}/{wheel_info.SBOM}"] = _bill_of_materials(plan, archive, version, digests)
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
        binaries=dict(library_edits.own_edits(plan.own, plan.bundle, plan.package)),
    )


def _bill_of_materials(plan: FatPlan, archive: Archive, version: str, digests: Mapping[str, str]) -> bytes:
    """That of the linked wheel, and the bundled libraries, of each its sha256 in hex (PEP 770)."""
    bundled = [cyclonedx.bundled_file(path, digest) for path, digest in sorted(digests.items())]
    linked = archive.read_any(f"{plan.info.dist_info}/{wheel_info.SBOM}")
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
